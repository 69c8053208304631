"""Whether tensors are equal, or nearly, or hold certain numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, DTypeError
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import TensorBase, from_host
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.arithmetic import sub
from dl4all.ops.elementwise.comparison import eq, isfinite, isnan, le
from dl4all.ops.elementwise.logic import logical_and, logical_or
from dl4all.ops.elementwise.rounding import abs


@export("dl", "Tensor")
def equal(input: Any, other: Any) -> bool:
    """Whether two tensors have one shape and the same elements; nan equals nothing.

    Example:
        >>> import dl4all as dl
        >>> dl.equal(dl.tensor([1, 2]), dl.tensor([1, 2])), dl.equal(dl.tensor([1, 2]), dl.tensor([1]))
        (True, False)
    """
    return bool(input.shape == other.shape and eq(input, other).on_host().all())


@export("dl", "Tensor")
def isclose(input: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    """Whether elements differ by no more than ``atol + rtol * abs(other)``.

    Args:
        input, other: of one dtype; their shapes broadcast.
        rtol, atol: how far they may be apart, from 0 on. Infinities are close to themselves only.
        equal_nan: whether nan is close to nan.

    Raises:
        ArgumentError: a tolerance is negative.
        DTypeError: the dtypes differ.

    Example:
        >>> import dl4all as dl
        >>> dl.isclose(dl.tensor([1.0, 2.0]), dl.tensor([1.000001, 2.1])).tolist()
        [True, False]
    """
    if input.dtype != other.dtype:
        raise DTypeError(f"[isclose] expected operands of one dtype, got {input.dtype} and {other.dtype}")
    if rtol < 0 or atol < 0:
        raise ArgumentError(f"[isclose] tolerances must be at least 0, got rtol={rtol} and atol={atol}")
    same = eq(input, other)
    if equal_nan:
        same = logical_or(same, logical_and(isnan(input), isnan(other)))
    if input.dtype.kind == "b":
        return same
    allowed = abs(other) * rtol + atol
    return logical_or(same, logical_and(isfinite(allowed), le(abs(sub(input, other)), allowed)))


@export("dl", "Tensor")
def allclose(input: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether all elements are close, as :func:`isclose` says.

    Raises:
        ArgumentError, DTypeError: as for :func:`isclose`.

    Example:
        >>> import dl4all as dl
        >>> dl.allclose(dl.tensor([1.0, 2.0]), dl.tensor([1.000001, 2.0]))
        True
    """
    return bool(isclose(input, other, rtol, atol, equal_nan).on_host().all())


@export("dl")
@reads("elements", "test_elements")
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Any:
    """Whether elements come in another tensor; they are looked up on the host.

    Args:
        elements, test_elements: tensors; one may be a number.
        assume_unique: has no effect.
        invert: ask whether they do not come in it.

    Returns:
        bool, of the shape of `elements`.

    Raises:
        DTypeError: neither is a tensor.

    Example:
        >>> import dl4all as dl
        >>> dl.isin(dl.tensor([1, 2, 3]), dl.tensor([2, 3])).tolist()
        [False, True, True]
    """
    tensors = [x for x in (elements, test_elements) if isinstance(x, TensorBase)]
    if not tensors:
        raise DTypeError("[isin] expected a tensor and numbers, got numbers only")
    there, wanted = (
        x.on_host() if isinstance(x, TensorBase) else np.asarray(x) for x in (elements, test_elements)
    )
    found = np.isin(there, wanted, invert=invert)
    return from_host(type(tensors[0]).result_class, np.asarray(found), tensors[0].device, copy=False)
