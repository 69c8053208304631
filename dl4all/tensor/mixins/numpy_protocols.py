"""NumPy's functions of tensors: ``np.mean(t)`` is computed by NumPy on the host, operators stay dl4all's.

A function of arrays (``np.mean``, ``np.stack``) takes tensors as arrays and returns what NumPy returns, as
with PyTorch's tensors on the CPU. One that is a method of arrays and changes their elements or axes
(``np.clip``, ``np.reshape``) and a ufunc of one operand (``np.sqrt``) return a tensor on the tensor's device.
One of two operands is the operator of that name: a NumPy number may stand beside a tensor, an array
may not.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from dl4all.errors import DTypeError
from dl4all.ops.core.dtypes import DTYPES
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.memory.transfer import upload

OPERATORS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "add": (operator.add, "__radd__"),
    "subtract": (operator.sub, "__rsub__"),
    "multiply": (operator.mul, "__rmul__"),
    "divide": (operator.truediv, "__rtruediv__"),
    "floor_divide": (operator.floordiv, "__rfloordiv__"),
    "remainder": (operator.mod, "__rmod__"),
    "power": (operator.pow, "__rpow__"),
    "matmul": (operator.matmul, "__rmatmul__"),
    "bitwise_and": (operator.and_, "__rand__"),
    "bitwise_or": (operator.or_, "__ror__"),
    "bitwise_xor": (operator.xor, "__rxor__"),
    "less": (operator.lt, "__gt__"),
    "less_equal": (operator.le, "__ge__"),
    "greater": (operator.gt, "__lt__"),
    "greater_equal": (operator.ge, "__le__"),
    "equal": (operator.eq, "__eq__"),
    "not_equal": (operator.ne, "__ne__"),
}
"""NumPy's ufuncs of two operands: the operator, and the method of an operand on the right."""


DESCRIPTIONS: dict[Callable[..., Any], Callable[[TensorBase], Any]] = {
    np.shape: lambda tensor: tuple(tensor.shape),
    np.ndim: lambda tensor: len(tensor.shape),
    np.size: lambda tensor: tensor.numel(),
}
"""Functions that read no elements, which may not be there yet."""


TENSOR_FUNCTIONS = {
    np.around, np.clip, np.cumprod, np.cumsum, np.repeat, np.reshape, np.round, np.sort, np.squeeze,
    np.swapaxes, np.transpose,
}  # fmt: skip
"""Functions of a tensor's elements that return a tensor, as PyTorch's tensors do, which have such methods."""


def array_function(
    tensor: TensorBase, function: Callable[..., Any], types: Any, args: Any, kwargs: dict[str, Any]
) -> Any:
    """``__array_function__``: what NumPy's function returns for the elements on the host, or a tensor of it.

    Example:
        >>> import dl4all as dl
        >>> import numpy as np
        >>> np.mean(dl.tensor([1.0, 3.0])).item()
        2.0
    """
    if function in DESCRIPTIONS and len(args) == 1 and not kwargs:
        return DESCRIPTIONS[function](args[0])
    result = function(*_on_host(args), **_on_host(kwargs))
    if function in TENSOR_FUNCTIONS and args and args[0] is tensor and isinstance(result, np.ndarray):
        return upload(type(tensor).result_class, result, tensor.device, copy=True)
    return result


def _on_host(value: Any) -> Any:
    """Arguments with arrays in the places of tensors."""
    if isinstance(value, TensorBase):
        return value.numpy()  # type: ignore[attr-defined]  # of Tensor
    if type(value) in (tuple, list):
        return type(value)(map(_on_host, value))
    if type(value) is dict:
        return {name: _on_host(item) for name, item in value.items()}
    return value


def array_ufunc(tensor: TensorBase, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
    """``__array_ufunc__``: a tensor for a ufunc of one operand; of two, what dl4all's operator returns.

    Raises:
        DTypeError: it is another ufunc of two operands or another method of it, such as ``np.add.reduce``, or
            an array stands beside the tensor.

    Example:
        >>> import dl4all as dl
        >>> import numpy as np
        >>> np.sqrt(dl.tensor([4.0])).tolist()
        [2.0]
    """
    if method == "__call__" and ufunc.nin == 1 and ufunc.nout == 1 and not options:
        with np.errstate(all="ignore"):
            result = np.asarray(ufunc(_on_host(tensor)))
        if result.dtype in DTYPES:
            return upload(type(tensor).result_class, result, tensor.device, copy=False)
    elif method == "__call__" and ufunc.__name__ in OPERATORS and not options:
        apply, reflected = OPERATORS[ufunc.__name__]
        # Comparisons come with a NumPy number as an array without axes.
        left, right = (one[()] if isinstance(one, np.ndarray) and not one.ndim else one for one in inputs)
        if isinstance(left, TensorBase):
            return apply(left, right)
        result = getattr(right, reflected)(left)
        if result is not NotImplemented:
            return result
    raise DTypeError(
        f"[{ufunc.__name__}] NumPy's function does not take these operands beside a tensor; "
        "use dl4all's, dl.from_numpy(array), or .numpy()"
    )
