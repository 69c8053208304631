"""Expressions of special numbers, as dl4all and PyTorch evaluate them, and where they differ.

An expression is Python source of one to three tensors ``x``, ``y`` and ``z``, in which ``L`` is the library
and ``F`` its functions, such as ``"F.softmax(x * y, 1)"``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.ops.core.dtypes import kind_of
from tests.support.operands import generator

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")

NDArray = npt.NDArray[Any]

SIZES = (
    0.0, 1e-45, 1e-38, 1e-30, 1e-8, 0.5, 1.0, 1.5, 2.0, 3.0, 25.0, 88.8, 104.0, 1e10, 1e19, 1e30, 3.4e38,
    np.inf,
)  # fmt: skip
VALUES = np.array([sign * size for size in SIZES for sign in (1, -1)] + [np.nan], np.float32)
"""Both zeros, subnormal and small numbers, the limits of exp, numbers whose squares overflow, the largest."""

SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)
OPERANDS = ("x", "y", "z")
RELATIVE_ERROR = 3e-5  # PyTorch's kernels and these are accurate to some units in the last place of 6e-8


class Case(NamedTuple):
    """An expression, and what is compared beside PyTorch's float32 and float64.

    Args:
        expression: see above.
        exact: an expression whose result in float64 is right too, where PyTorch's cancels.
        error: the absolute error that a result of numbers around 1 may have.
        by_rows: whether errors count in relation to the largest number of a row, as those of sums do.
    """

    expression: str
    exact: str = ""
    error: float = 0.0
    by_rows: bool = False


class Deliberate(NamedTuple):
    """Results that differ from PyTorch's, and are meant to.

    Args:
        expressions: of the cases.
        results: "value", or the operand whose gradient it is, separated by spaces.
        where: from the operands, a mask of the elements, or rows, that may differ.
        reason: why.
    """

    expressions: tuple[str, ...]
    results: str
    where: Callable[..., NDArray]
    reason: str


class Difference(NamedTuple):
    """One result that equals none of the accepted ones."""

    expression: str
    result: str  # "value", or the operand whose gradient it is
    operands: tuple[Any, ...]
    got: Any
    wanted: Any


def pairs(values: NDArray) -> list[NDArray]:
    """Two arrays of all pairs of the values."""
    both = np.array([*itertools.product(values, values)], values.dtype)
    return [both[:, 0].copy(), both[:, 1].copy()]


def differences(
    case: Case,
    operands: Sequence[NDArray],
    device: str,
    *,
    gradients: bool = True,
    deliberate: Iterable[Deliberate] = (),
) -> list[Difference]:
    """Where a case's value and gradients on a device equal none of the accepted ones.

    Accepted are PyTorch's results in float32 and, rounded, in float64, and those of operands whose subnormal
    numbers are 0: Vulkan lets devices flush them.

    Args:
        case: what is computed.
        operands: float32 arrays; their first axis counts the elements, or rows, that differ by themselves.
        device: where dl4all computes.
        gradients: whether gradients are compared too, those of random weights below 1.
        deliberate: differences that are meant.
    """
    with np.errstate(all="ignore"):
        accepted = _accepted(case, operands, gradients)
        results = _evaluate(dl, case.expression, operands, gradients, device)
        return [
            difference
            for name, got in results.items()
            for difference in _unlike(
                case, name, got, [a[name] for a in accepted if name in a], operands, deliberate
            )
        ]


def _accepted(case: Case, operands: Sequence[NDArray], gradients: bool) -> list[dict[str, NDArray]]:
    flushed = [np.where(np.abs(a) < SMALLEST_NORMAL, a * 0, a).astype(np.float32) for a in operands]
    runs = [(case.expression, arrays, dtype) for arrays in (operands, flushed) for dtype in ("32", "64")]
    if case.exact:
        runs += [(case.exact, arrays, "64") for arrays in (operands, flushed)]
    return [
        _evaluate(torch, expression, [a.astype(f"float{bits}") for a in arrays], gradients)
        for expression, arrays, bits in runs
    ]


def _evaluate(
    library: Any, expression: str, operands: Sequence[NDArray], gradients: bool, device: str = "cpu"
) -> dict[str, NDArray]:
    """The value, and the gradient of each operand that has one, by name."""
    tensors = dict(zip(OPERANDS, (library.tensor(a, device=device) for a in operands), strict=False))
    for tensor in tensors.values():
        tensor.requires_grad_(gradients)
    names = {"L": library, "F": library.nn.functional, "inf": np.inf, "nan": np.nan}
    value = eval(expression, names | tensors)
    results = {"value": value}
    if value.requires_grad:
        weights = generator("weights", tuple(value.shape)).uniform(0.5, 1, tuple(value.shape))
        value.backward(library.tensor(weights.astype(operands[0].dtype), device=device))
        for name, tensor in tensors.items():
            results[name] = library.zeros_like(tensor) if tensor.grad is None else tensor.grad
    return {
        name: result.detach().numpy(force=True) if library is torch else result.detach().numpy()
        for name, result in results.items()
    }


def _unlike(
    case: Case,
    name: str,
    got: NDArray,
    accepted: Sequence[NDArray],
    operands: Sequence[NDArray],
    deliberate: Iterable[Deliberate],
) -> list[Difference]:
    right = np.zeros(got.shape, bool)
    for wanted in accepted:
        if wanted.shape == got.shape:  # flushed operands may have fewer distinct elements
            right |= _equal(case, got, wanted, operands)
    count = len(operands[0])
    by_element = got.ndim > 0 and len(got) == count
    wrong = ~right.reshape(count, -1).all(1) if by_element else ~right.reshape(1, -1).all(1)
    for entry in deliberate:
        if case.expression in entry.expressions and name in entry.results.split():
            meant = np.asarray(entry.where(*operands))
            wrong &= ~meant if by_element else ~meant.any()
    return [
        Difference(
            case.expression,
            name,
            tuple(a[i].tolist() if by_element else a.tolist() for a in operands),
            got[i].tolist() if by_element else got.tolist(),
            accepted[0][i].tolist() if by_element else accepted[0].tolist(),
        )
        for i in np.flatnonzero(wrong)
    ]


def _equal(case: Case, got: NDArray, wanted: NDArray, operands: Sequence[NDArray]) -> NDArray:
    if kind_of(got.dtype) != "f":
        return np.asarray(got == wanted)
    a, b = got.astype(np.float64), wanted.astype(np.float32).astype(np.float64)
    error = RELATIVE_ERROR * np.abs(b) + 2 * SMALLEST_NORMAL + case.error
    if case.by_rows and b.ndim:
        error = error + 1e-6 * _largest(b)
        rows = [_largest(x) for x in operands if len(x) == len(b)]
        if b.ndim == 1 and rows:
            error = error + 1e-6 * np.maximum.reduce(rows)[:, 0]
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= error))


def _largest(rows: NDArray) -> NDArray:
    """The largest finite magnitude of each row."""
    magnitudes = np.where(np.isfinite(rows), np.abs(rows.astype(np.float64)), 0)
    return np.asarray(magnitudes.max(-1, keepdims=True))
