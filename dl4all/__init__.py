"""Deep learning on any GPU.

>>> import dl4all as dl
>>> x = dl.tensor([[1.0, -2.0], [3.0, 4.0]])
>>> dl.nn.functional.relu(x @ x).tolist()
[[0.0, 0.0], [15.0, 10.0]]
"""

from __future__ import annotations

import numpy as np

from dl4all import _functions, autograd, data, errors, io, memory, models, nn, optim, training
from dl4all._functions import *
from dl4all.autograd import (
    enable_grad,
    grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
    vmap,
)
from dl4all.calibration import calibrate
from dl4all.errors import Dl4allError
from dl4all.memory import pin
from dl4all.ops.random.generator import Generator
from dl4all.runtime.registry import devices
from dl4all.scheduler.current import device, set_default_device, synchronize
from dl4all.scheduler.device import Device
from dl4all.scheduler.profile import profile
from dl4all.tensor import (
    Tensor,
    arange,
    as_tensor,
    asarray,
    bernoulli,
    can_cast,
    empty,
    empty_like,
    eye,
    finfo,
    from_dlpack,
    from_numpy,
    full,
    full_like,
    get_rng_state,
    iinfo,
    initial_seed,
    is_complex,
    is_floating_point,
    is_same_size,
    is_signed,
    is_tensor,
    linspace,
    logspace,
    manual_seed,
    meshgrid,
    multinomial,
    normal,
    numel,
    ones,
    ones_like,
    promote_types,
    rand,
    rand_like,
    randint,
    randint_like,
    randn,
    randn_like,
    randperm,
    result_type,
    scalar_tensor,
    seed,
    set_rng_state,
    tensor,
    tril_indices,
    triu_indices,
    zeros,
    zeros_like,
)
from dl4all.training import Trainer

__version__ = "0.1.0"

float16, float32, float64 = np.dtype("float16"), np.dtype("float32"), np.dtype("float64")
int8, int16, int32, int64 = np.dtype("int8"), np.dtype("int16"), np.dtype("int32"), np.dtype("int64")
uint8, bool_ = np.dtype("uint8"), np.dtype("bool")

__all__ = [
    *_functions.__all__,
    "Device",
    "Dl4allError",
    "Generator",
    "Tensor",
    "Trainer",
    "arange",
    "as_tensor",
    "asarray",
    "autograd",
    "bernoulli",
    "bool_",
    "calibrate",
    "can_cast",
    "data",
    "device",
    "devices",
    "empty",
    "empty_like",
    "enable_grad",
    "errors",
    "eye",
    "finfo",
    "float16",
    "float32",
    "float64",
    "from_dlpack",
    "from_numpy",
    "full",
    "full_like",
    "get_rng_state",
    "grad",
    "iinfo",
    "inference_mode",
    "initial_seed",
    "int8",
    "int16",
    "int32",
    "int64",
    "io",
    "is_complex",
    "is_floating_point",
    "is_grad_enabled",
    "is_same_size",
    "is_signed",
    "is_tensor",
    "linspace",
    "logspace",
    "manual_seed",
    "memory",
    "meshgrid",
    "models",
    "multinomial",
    "nn",
    "no_grad",
    "normal",
    "numel",
    "ones",
    "ones_like",
    "optim",
    "pin",
    "profile",
    "promote_types",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
    "result_type",
    "scalar_tensor",
    "seed",
    "set_default_device",
    "set_grad_enabled",
    "set_rng_state",
    "synchronize",
    "tensor",
    "training",
    "tril_indices",
    "triu_indices",
    "uint8",
    "vmap",
    "zeros",
    "zeros_like",
]
