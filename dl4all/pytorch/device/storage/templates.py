"""Empty tensors on any index of the device, which PyTorch's own function makes on index 0 only.

The one public way to name another index without a compiled extension is DLPack: a capsule may say which
device its memory is on (https://dmlc.github.io/dlpack/latest/c_api.html). One empty tensor for each index and
dtype comes that way; the others are views of it.
"""

from __future__ import annotations

import ctypes
import functools

import torch

from dl4all.tensor.mixins.interop import DLPACK_CODES

EXTENSION_DEVICE = 12
"""DLPack's kDLExtDev, which PyTorch takes for its backend of private use."""

INTEGER, UNSIGNED, FLOAT, COMPLEX, BOOL = 0, 1, 2, 5, 6  # DLPack's type codes
OWN_CODES = {getattr(torch, dtype.name): code for dtype, code in DLPACK_CODES.items()}
"""The codes of floats that have one for themselves."""


class _Device(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _ManagedTensor(ctypes.Structure):
    pass


_ManagedTensor._fields_ = (
    ("dl_tensor", _Tensor),
    ("manager_ctx", ctypes.c_void_p),
    ("deleter", ctypes.c_void_p),
)

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


def _code(dtype: torch.dtype) -> int:
    if dtype == torch.bool:
        return BOOL
    if dtype in OWN_CODES:
        return OWN_CODES[dtype]
    if dtype.is_complex:
        return COMPLEX
    if dtype.is_floating_point:
        return FLOAT
    return INTEGER if dtype.is_signed else UNSIGNED


@functools.cache
def template(index: int, dtype: torch.dtype) -> torch.Tensor:
    """A tensor without elements on ``dlall:index``."""
    shape, strides = (ctypes.c_int64 * 1)(0), (ctypes.c_int64 * 1)(1)
    kind = _DataType(_code(dtype), dtype.itemsize * 8, 1)
    managed = _ManagedTensor(_Tensor(None, _Device(EXTENSION_DEVICE, index), 1, kind, shape, strides, 0))
    # PyTorch may look at it after the interpreter has cleaned up: it is never freed.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(managed))
    result: torch.Tensor = torch._C._from_dlpack(_new_capsule(ctypes.addressof(managed), b"dltensor", None))
    return result
