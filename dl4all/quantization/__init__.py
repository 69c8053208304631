"""Weights in fewer bits, under torchao's names.

├── quantize.py   quantize_ and its configs
└── weights.py    Int8Weight, Int4Weight: what takes a weight's place
"""

from __future__ import annotations

from dl4all.quantization.quantize import (
    Int4WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    WeightConfig,
    quantize_,
)
from dl4all.quantization.weights import Int4Weight, Int8DynamicWeight, Int8Weight, QuantizedWeight

__all__ = [
    "Int4Weight",
    "Int4WeightOnlyConfig",
    "Int8DynamicActivationInt8WeightConfig",
    "Int8DynamicWeight",
    "Int8Weight",
    "Int8WeightOnlyConfig",
    "QuantizedWeight",
    "WeightConfig",
    "quantize_",
]
