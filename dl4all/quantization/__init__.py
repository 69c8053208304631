"""Weights in fewer bits, under torchao's names.

└── weight_only.py   quantize_, Int8WeightOnlyConfig, QuantizedLinear
"""

from __future__ import annotations

from dl4all.quantization.weight_only import Int8WeightOnlyConfig, QuantizedLinear, quantize_

__all__ = ["Int8WeightOnlyConfig", "QuantizedLinear", "quantize_"]
