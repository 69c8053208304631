"""Questions about dtypes, and the rules by which dtypes combine."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.errors import DTypeError
from dl4all.ops.core.arguments.mixed_dtypes import scalars_of_another_dtype
from dl4all.ops.core.dtypes import FLOAT8, FLOATING, KIND_RANKS, checked_dtype, default, kind_of, promoted
from dl4all.ops.core.dtypes import finfo as finfo
from dl4all.ops.core.op import NUMBERS
from dl4all.ops.core.promotion import promote
from dl4all.ops.core.tensor_base import DTypeLike, Scalar, TensorBase
from dl4all.scheduler.device.current import cuda_device, set_default_device

__all__ = [
    "can_cast",
    "finfo",
    "get_default_dtype",
    "iinfo",
    "is_complex",
    "is_floating_point",
    "is_same_size",
    "is_signed",
    "is_tensor",
    "numel",
    "promote_types",
    "result_type",
    "set_default_dtype",
    "set_default_tensor_type",
]


def get_default_dtype() -> np.dtype[Any]:
    """The dtype of new tensors of floats where none is named.

    Example:
        >>> import dl4all as dl
        >>> dl.get_default_dtype()
        dtype('float32')
    """
    return default.dtype


def set_default_dtype(d: DTypeLike) -> None:
    """Have new tensors of floats, and new layers, get this dtype where none is named; in all threads.

    It decides over ``dl.zeros(2)``, ``dl.rand(2)`` and ``dl.tensor(0.5)``. Ops that make floats of integers
    give float32 all the same.

    Args:
        d: float32, float64, float16 or bfloat16.

    Raises:
        DTypeError: it is none of those.

    Example:
        >>> import dl4all as dl
        >>> dl.set_default_dtype(dl.float64)
        >>> dl.tensor(0.5).dtype
        dtype('float64')
        >>> dl.set_default_dtype(dl.float32)
    """
    dtype = checked_dtype("set_default_dtype", d)
    if kind_of(dtype) != "f":
        raise DTypeError(f"[set_default_dtype] expected a dtype of floats, got {dtype}")
    default.dtype = dtype


def set_default_tensor_type(t: object) -> None:
    """:func:`set_default_dtype` by a class of tensors or its name, as old scripts do.

    Raises:
        DTypeError: it is no class of tensors of floats.
        BackendMissingError: it is one of ``dl.cuda``, which has new tensors go to the accelerator, and there
            is none.

    Example:
        >>> import dl4all as dl
        >>> dl.set_default_tensor_type(dl.FloatTensor)
    """
    names = {
        "FloatTensor": "float32",
        "DoubleTensor": "float64",
        "HalfTensor": "float16",
        "BFloat16Tensor": "bfloat16",
    }
    name = t if isinstance(t, str) else getattr(t, "__name__", str(t))
    if name.rpartition(".")[2] not in names:
        raise DTypeError(
            f"[set_default_tensor_type] expected dl.FloatTensor, DoubleTensor or HalfTensor, got {t!r}; "
            "dl.set_default_device and dl.set_default_dtype set the device and the dtype"
        )
    if "cuda" in str(t):
        set_default_device(cuda_device("set_default_tensor_type"))
    set_default_dtype(names[name.rpartition(".")[2]])


iinfo = np.iinfo


def is_tensor(obj: object) -> bool:
    """Whether an object is a tensor.

    Example:
        >>> import dl4all as dl
        >>> dl.is_tensor(dl.zeros(2)), dl.is_tensor([0.0])
        (True, False)
    """
    return isinstance(obj, TensorBase)


def is_floating_point(input: TensorBase) -> bool:
    """Whether the elements are floats.

    Example:
        >>> import dl4all as dl
        >>> dl.is_floating_point(dl.tensor([1.0])), dl.is_floating_point(dl.tensor([1]))
        (True, False)
    """
    return input.dtype in FLOATING


def is_complex(input: TensorBase) -> bool:
    """False: there are no complex numbers.

    Example:
        >>> import dl4all as dl
        >>> dl.is_complex(dl.zeros(2))
        False
    """
    return False


def is_signed(input: TensorBase) -> bool:
    """Whether the dtype has negative numbers.

    Example:
        >>> import dl4all as dl
        >>> dl.is_signed(dl.tensor([1])), dl.is_signed(dl.tensor([True]))
        (True, False)
    """
    return kind_of(input.dtype) in "fis"


def is_same_size(input: TensorBase, other: TensorBase) -> bool:
    """Whether two tensors have the same shape.

    Example:
        >>> import dl4all as dl
        >>> dl.is_same_size(dl.zeros(2, 3), dl.zeros(3, 2))
        False
    """
    return input.shape == other.shape


def numel(input: TensorBase) -> int:
    """The number of elements.

    Example:
        >>> import dl4all as dl
        >>> dl.numel(dl.zeros(2, 3))
        6
    """
    return input.numel()


def result_type(tensor1: TensorBase | Scalar, tensor2: TensorBase | Scalar) -> np.dtype[Any]:
    """The dtype of the result of arithmetic on two tensors, or on a tensor and a number.

    A tensor without axes counts only if its kind is higher than that of a tensor with axes.

    Raises:
        DTypeError: an operand is neither a tensor nor a number.

    Example:
        >>> import dl4all as dl
        >>> dl.result_type(dl.tensor([1]), 2.5)
        dtype('float32')
    """
    for operand in (tensor1, tensor2):
        if not isinstance(operand, (TensorBase, *NUMBERS)):
            raise DTypeError(
                f"[result_type] expected a tensor or a number, got {type(operand).__name__}; "
                "of dtypes there is promote_types"
            )
    if isinstance(tensor1, TensorBase) or isinstance(tensor2, TensorBase):
        ignored = scalars_of_another_dtype((tensor1, tensor2))
        counting = [operand for operand in (tensor1, tensor2) if not any(operand is x for x in ignored)]
        return promote("result_type", counting, "common")
    return _dtype_of_numbers(tensor1, tensor2)


def _dtype_of_numbers(*numbers: Scalar) -> np.dtype[Any]:
    kinds = [kind_of(np.asarray(number).dtype) for number in numbers]
    return np.dtype("float32" if "f" in kinds else "int64" if set(kinds) & {"i", "u"} else "bool")


def promote_types(type1: DTypeLike, type2: DTypeLike) -> np.dtype[Any]:
    """The smallest dtype that holds both, of the higher of their kinds.

    Raises:
        DTypeError: tensors cannot have one of them, or one is a float of 8 bits and the other another dtype.

    Example:
        >>> import dl4all as dl
        >>> dl.promote_types(dl.int64, dl.float16), dl.promote_types(dl.uint8, dl.int8)
        (dtype('float16'), dtype('int16'))
    """
    first, second = checked_dtype("promote_types", type1), checked_dtype("promote_types", type2)
    if KIND_RANKS[first] != KIND_RANKS[second] and not FLOAT8 & {first, second}:
        return max(first, second, key=KIND_RANKS.__getitem__)
    return promoted(first, second)


def can_cast(from_: DTypeLike, to: DTypeLike) -> bool:
    """Whether a dtype's kind is not above another's: bool, integers, floats.

    Raises:
        DTypeError: tensors cannot have one of them.

    Example:
        >>> import dl4all as dl
        >>> dl.can_cast(dl.int64, dl.float16), dl.can_cast(dl.float32, dl.int64)
        (True, False)
    """
    first, second = checked_dtype("can_cast", from_), checked_dtype("can_cast", to)
    return KIND_RANKS[first] <= KIND_RANKS[second]
