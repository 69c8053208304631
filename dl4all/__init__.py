"""Deep learning on any GPU.

>>> import dl4all as dl
>>> x = dl.tensor([[1.0, -2.0], [3.0, 4.0]])
>>> dl.nn.functional.relu(x @ x).tolist()
[[0.0, 0.0], [15.0, 10.0]]
"""

from __future__ import annotations

import numpy as np

from dl4all import data, errors, io, models, nn
from dl4all.calibration import calibrate
from dl4all.errors import Dl4allError
from dl4all.nn.functional import softmax
from dl4all.ops import add, clone, div, matmul, mul, neg, relu, sub
from dl4all.runtime.registry import devices
from dl4all.scheduler.device import Device, device, synchronize
from dl4all.scheduler.profile import profile
from dl4all.tensor import (
    Tensor,
    empty,
    from_numpy,
    full,
    manual_seed,
    ones,
    rand,
    randn,
    tensor,
    topk,
    zeros,
)

__version__ = "0.1.0"

float16, float32, float64 = np.dtype("float16"), np.dtype("float32"), np.dtype("float64")
int8, int16, int32, int64 = np.dtype("int8"), np.dtype("int16"), np.dtype("int32"), np.dtype("int64")
uint8, bool_ = np.dtype("uint8"), np.dtype("bool")

__all__ = [
    "Device",
    "Dl4allError",
    "Tensor",
    "add",
    "bool_",
    "calibrate",
    "clone",
    "data",
    "device",
    "devices",
    "div",
    "empty",
    "errors",
    "float16",
    "float32",
    "float64",
    "from_numpy",
    "full",
    "int8",
    "int16",
    "int32",
    "int64",
    "io",
    "manual_seed",
    "matmul",
    "models",
    "mul",
    "neg",
    "nn",
    "ones",
    "profile",
    "rand",
    "randn",
    "relu",
    "softmax",
    "sub",
    "synchronize",
    "tensor",
    "topk",
    "uint8",
    "zeros",
]
