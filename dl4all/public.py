"""The names of ``dl4all``: what :mod:`dl4all.pytorch.first_use` loads when the first of them is used."""

from __future__ import annotations

import math

import numpy as np

from dl4all import (
    amp,
    autograd,
    automl,
    data,
    distributed,
    distributions,
    errors,
    fft,
    io,
    llm,
    memory,
    meta,
    models,
    nn,
    onnx,
    optim,
    quantization,
    search,
    serving,
    training,
)
from dl4all.amp import (
    autocast,
    clear_autocast_cache,
    get_autocast_dtype,
    is_autocast_enabled,
    set_autocast_dtype,
)
from dl4all.autograd import (
    enable_grad,
    grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
    vmap,
)
from dl4all.autograd.glsl_kernel import kernel
from dl4all.calibration import calibrate
from dl4all.errors import Dl4allError, OutOfMemoryError
from dl4all.functions import func, linalg, sparse
from dl4all.functions import names as _functions
from dl4all.functions.names import *
from dl4all.functions.sparse import spmm
from dl4all.graph.accelerator.program import accelerator_model
from dl4all.graph.run.compiled import compile
from dl4all.graph.run.control_flow import cond, scan, while_loop
from dl4all.io.serialization import load, save
from dl4all.memory import pin
from dl4all.multi_device.data_parallel.module import parallel
from dl4all.multi_device.pipeline.module import Pipeline
from dl4all.multi_device.pipeline.split import pipeline
from dl4all.multi_device.placement.placement import place
from dl4all.multi_device.serving.inference_queue import InferenceQueue
from dl4all.nn import parallel as _nn_parallel  # noqa: F401  # the part of nn that stands above multi_device
from dl4all.ops.core.dtypes import BFLOAT16, FLOAT8_E4M3FN, FLOAT8_E5M2
from dl4all.ops.core.memory_format import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    memory_format,
    preserve_format,
)
from dl4all.ops.core.tensor_base import Size
from dl4all.ops.linalg.matmul_precision import get_float32_matmul_precision, set_float32_matmul_precision
from dl4all.ops.random.generator import Generator
from dl4all.pytorch.missing import answers as _answers
from dl4all.pytorch.names import (
    accelerator,
    ao,
    backends,
    compiler,
    cuda,
    fx,
    hub,
    jit,
    mps,
    multiprocessing,
    profiler,
    random,
    special,
    utils,
    version,
    xpu,
)
from dl4all.pytorch.names import process_settings as _process_settings
from dl4all.pytorch.names.einops_backend import define_when_imported as _define_einops_backend
from dl4all.pytorch.names.jit import _assert as _assert
from dl4all.pytorch.names.process_settings import *
from dl4all.pytorch.names.version import __version__ as __version__
from dl4all.runtime.op_regions import debug_region
from dl4all.runtime.registry import devices
from dl4all.scheduler import fallback
from dl4all.scheduler.check_mode import debug
from dl4all.scheduler.device.current import get_default_device, set_default_device, synchronize
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.device.device import Device as device
from dl4all.scheduler.monitor.profile import profile
from dl4all.scheduler.streams.event import Event
from dl4all.scheduler.streams.group import DeviceGroup
from dl4all.scheduler.streams.stream import Stream
from dl4all.tensor import creation as _creation
from dl4all.tensor import dtypes as _dtypes
from dl4all.tensor import layouts as _layouts
from dl4all.tensor import legacy as _legacy
from dl4all.tensor import random as _random
from dl4all.tensor import ranges as _ranges
from dl4all.tensor import signal_windows as _signal_windows
from dl4all.tensor.creation import *
from dl4all.tensor.dtypes import *
from dl4all.tensor.layouts import *
from dl4all.tensor.legacy import *
from dl4all.tensor.print_options import set_printoptions
from dl4all.tensor.random import *
from dl4all.tensor.ranges import *
from dl4all.tensor.signal_windows import *
from dl4all.tensor.sparse import sparse_coo_tensor
from dl4all.tensor.tensor import Tensor
from dl4all.training import Trainer

_define_einops_backend()

float16, float32, float64 = np.dtype("float16"), np.dtype("float32"), np.dtype("float64")
bfloat16, float8_e4m3fn, float8_e5m2 = BFLOAT16, FLOAT8_E4M3FN, FLOAT8_E5M2
int8, int16, int32, int64 = np.dtype("int8"), np.dtype("int16"), np.dtype("int32"), np.dtype("int64")
uint8, bool_ = np.dtype("uint8"), np.dtype("bool")
qint8, quint8 = int8, uint8  # scales are beside them, not in them

__all__ = [
    "automl",
    "accelerator",
    "ao",
    "amp",
    "autocast",
    "clear_autocast_cache",
    "e",
    "inf",
    "get_autocast_dtype",
    "is_autocast_enabled",
    "set_autocast_dtype",
    "nan",
    "newaxis",
    "pi",
    "backends",
    "compiler",
    "cuda",
    "distributed",
    "fft",
    "fx",
    "jit",
    "linalg",
    "mps",
    "multiprocessing",
    "random",
    "special",
    "version",
    "xpu",
    "set_printoptions",
    "dtype",
    "short",
    "long",
    "half",
    "double",
    "complex128",
    "complex64",
    "bfloat16",
    "Device",
    "DeviceGroup",
    "Dl4allError",
    "Event",
    "Generator",
    "OutOfMemoryError",
    "InferenceQueue",
    "Pipeline",
    "Size",
    "Stream",
    "Tensor",
    "Trainer",
    "accelerator_model",
    "autograd",
    "bool_",
    "calibrate",
    "channels_last",
    "channels_last_3d",
    "contiguous_format",
    "memory_format",
    "preserve_format",
    "compile",
    "cond",
    "data",
    "debug",
    "debug_region",
    "device",
    "devices",
    "enable_grad",
    "distributions",
    "errors",
    "fallback",
    "func",
    "hub",
    "utils",
    "float8_e4m3fn",
    "float8_e5m2",
    "float16",
    "float32",
    "float64",
    "grad",
    "get_default_device",
    "get_float32_matmul_precision",
    "inference_mode",
    "int16",
    "int32",
    "int64",
    "int8",
    "io",
    "is_grad_enabled",
    "kernel",
    "load",
    "memory",
    "llm",
    "meta",
    "models",
    "nn",
    "no_grad",
    "onnx",
    "optim",
    "parallel",
    "pin",
    "pipeline",
    "place",
    "profile",
    "profiler",
    "qint8",
    "quantization",
    "search",
    "quint8",
    "save",
    "scan",
    "serving",
    "set_default_device",
    "set_float32_matmul_precision",
    "set_grad_enabled",
    "sparse",
    "sparse_coo_tensor",
    "spmm",
    "synchronize",
    "training",
    "uint8",
    "vmap",
    "while_loop",
    *_creation.__all__,
    *_dtypes.__all__,
    *_functions.__all__,
    *_process_settings.__all__,
    *_layouts.__all__,
    *_legacy.__all__,
    *_random.__all__,
    *_ranges.__all__,
    *_signal_windows.__all__,
]

double, half, long, short = float64, float16, int64, int16
dtype = np.dtype

# Names of dtypes that tensors cannot have: scripts list them, and every use is refused.
complex64, complex128 = np.dtype("complex64"), np.dtype("complex128")
cfloat, cdouble = complex64, complex128
e, inf, nan, pi, newaxis = math.e, math.inf, math.nan, math.pi, None
uint16, uint32, uint64 = np.dtype("uint16"), np.dtype("uint32"), np.dtype("uint64")

# PyTorch's names that Python has too: not in __all__, so that ``from dl4all import *`` hides nothing, and
# last, because from here on they hide Python's in this file.
float, int, bool = float32, int32, bool_

_answers.answer_everywhere(Tensor)
