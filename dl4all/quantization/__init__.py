"""Weights and inputs in fewer bits, under the names of torchao and torch.ao.quantization.

├── quantize.py    quantize_ and its configs
├── weights.py     QuantizedWeight, Int8Weight: what takes a weight's place
├── packed_weights.py  Int4Weight and other blocks of few bits
├── static.py      prepare, prepare_qat, convert: steps of inputs that are found beforehand
├── observers.py   what inputs were like, and which steps suit them
└── report.py      how each layer's results differ
"""

from __future__ import annotations

from dl4all.quantization.observers import (
    EntropyObserver,
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    ObserverBase,
    PercentileObserver,
)
from dl4all.quantization.packed_weights import Int4Weight, PackedWeight
from dl4all.quantization.quantize import (
    Int4WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    WeightConfig,
    quantize_,
)
from dl4all.quantization.report import LayerReport, layer_reports
from dl4all.quantization.static import (
    DeQuantStub,
    FakeQuantize,
    Int8StaticWeight,
    QConfig,
    QuantStub,
    convert,
    fuse_modules,
    get_default_qat_qconfig,
    get_default_qconfig,
    prepare,
    prepare_qat,
    quantize_dynamic,
)
from dl4all.quantization.weights import Int8DynamicWeight, Int8Weight, QuantizedWeight

__all__ = [
    "DeQuantStub",
    "EntropyObserver",
    "FakeQuantize",
    "HistogramObserver",
    "Int4Weight",
    "Int4WeightOnlyConfig",
    "Int8DynamicActivationInt8WeightConfig",
    "Int8DynamicWeight",
    "Int8StaticWeight",
    "Int8Weight",
    "Int8WeightOnlyConfig",
    "LayerReport",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "ObserverBase",
    "PackedWeight",
    "PercentileObserver",
    "QConfig",
    "QuantStub",
    "QuantizedWeight",
    "WeightConfig",
    "convert",
    "fuse_modules",
    "get_default_qat_qconfig",
    "get_default_qconfig",
    "layer_reports",
    "prepare",
    "prepare_qat",
    "quantize_",
    "quantize_dynamic",
]
