"""When a result of the device is right.

It has the reference's dtype and shape, and its values, to the precision that PyTorch's own tests ask for the
dtype times ten; or it is as near as the CPU's to what float64 gives. How near the CPU's is, where rounding is
amplified, is told by several of its results, of operands that differ in their last bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

TOLERANCES = {  # rtol, atol
    torch.float64: (1e-6, 1e-6),
    torch.float32: (1.3e-5, 1e-5),
    torch.float16: (2e-3, 1e-3),
    torch.bfloat16: (1.6e-2, 1e-3),
    torch.complex128: (1e-6, 1e-6),
    torch.complex64: (1.3e-5, 1e-5),
    torch.complex32: (2e-3, 1e-3),
}
EXACT = (0.0, 0.0)
SLACK = 4.0
"""How many times as far from float64's result as the CPU's one may be."""

ROUNDINGS = 8
"""Of how many sets of operands that differ in their last bits the CPU's error is the largest."""

DEVIATIONS = 7.0
"""How far apart the means of random results may be, in standard deviations of their difference."""


class Wrong(Exception):
    """A result differs."""


def compare(
    expected: Sequence[torch.Tensor],
    got: Sequence[torch.Tensor],
    what: str,
    precise: Callable[[], Sequence[torch.Tensor]] | None = None,
    elements: bool = True,
    rounded: Callable[[], Sequence[torch.Tensor]] | None = None,
) -> None:
    """Compare results.

    Args:
        expected: by the CPU.
        got: by the device.
        what: they are, for the message.
        precise: computes them in float64.
        elements: whether elements are compared, or dtypes and shapes only.
        rounded: computes them as the CPU does, of operands that differ in their last bits.

    Raises:
        Wrong
    """
    if len(expected) != len(got):
        raise Wrong(f"{what}: {len(expected)} tensors expected, got {len(got)}")
    wide: Sequence[torch.Tensor] | None = None
    for number, (one, other) in enumerate(zip(expected, got, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            raise Wrong(
                f"{what}: expected {tuple(one.shape)} {one.dtype}, got {tuple(other.shape)} {other.dtype}"
            )
        if not elements:
            continue
        one, other = _plain(one), _plain(other)
        rtol, atol = TOLERANCES.get(one.dtype, EXACT)
        try:
            torch.testing.assert_close(other, one, rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError as error:
            if precise is not None and one.dtype in TOLERANCES:
                wide = precise() if wide is None else wide
                if number < len(wide) and _as_near([one], other, _plain(wide[number])):
                    continue
                if number < len(wide) and rounded is not None:
                    own = [one, *(_plain(rounded()[number]) for _ in range(ROUNDINGS))]
                    if _as_near(own, other, _plain(wide[number])):
                        continue
            raise Wrong(f"{what}: {' '.join(str(error).split())}") from None


def _plain(one: torch.Tensor) -> torch.Tensor:
    one = one.detach()
    one = one.to_dense() if one.layout != torch.strided else one
    return one.cpu().resolve_conj().resolve_neg()


def _as_near(own: Sequence[torch.Tensor], other: torch.Tensor, precise: torch.Tensor) -> bool:
    if other.is_complex():
        own, other, precise = list(map(torch.view_as_real, own)), *map(torch.view_as_real, (other, precise))
    one, rounded = own[0], precise.to(other.dtype)
    if precise.shape != one.shape:
        return False
    # An infinity or nan is that of float64's result or the CPU's, which may have overflowed on its way.
    finite = other.isfinite() & rounded.isfinite()
    if not bool((finite | _same(other, one) | _same(other, rounded)).all()):
        return False
    target = precise.double()
    if not finite.any():
        return True
    unit = torch.finfo(one.dtype).eps * float(target[finite].abs().max())
    errors = [_largest_error(each, target, finite) for each in (other, *own)]
    return errors[0] <= SLACK * max(*errors[1:], unit)


def _same(some: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    return (some == others) | (some.isnan() & others.isnan())


def _largest_error(one: torch.Tensor, target: torch.Tensor, where: torch.Tensor) -> float:
    errors = (one.double() - target).abs()[where & one.isfinite()]
    return float(errors.max()) if errors.numel() else 0.0


def same_strides(expected: Sequence[torch.Tensor], got: Sequence[torch.Tensor]) -> str:
    """How strides differ from the CPU's where that can be seen; empty if they do not."""
    for one, other in zip(expected, got, strict=True):
        if one.layout != torch.strided or not one.numel():
            continue
        sizes = one.shape
        pairs = [(a, b) for a, b, size in zip(one.stride(), other.stride(), sizes, strict=True) if size > 1]
        if any(a != b for a, b in pairs):
            return f"{tuple(sizes)}: strides {one.stride()} expected, got {other.stride()}"
    return ""


def compare_moments(
    expected: Sequence[Sequence[torch.Tensor]], got: Sequence[Sequence[torch.Tensor]], what: str
) -> None:
    """Compare the distributions of random results, drawn as often on both sides.

    Raises:
        Wrong: the means of the elements or of their squares are further apart than chance explains. Elements
            are brought into [-pi/2, pi/2] first, so that all have moments.
    """
    for number in range(len(expected[0])):
        for power in (1, 2):
            ours, theirs = (_means([draw[number] for draw in draws], power) for draws in (got, expected))
            if not ours:
                continue
            spread = math.sqrt((_variance(ours) + _variance(theirs)) / len(ours))
            apart = abs(sum(ours) - sum(theirs)) / len(ours)
            if apart > DEVIATIONS * spread + 1e-3 or math.isnan(apart):
                raise Wrong(
                    f"{what}: moment {power} is {sum(ours) / len(ours):.4g}, the CPU's "
                    f"{sum(theirs) / len(theirs):.4g}, and {spread:.2g} is what chance explains"
                )


def _means(draws: Sequence[torch.Tensor], power: int) -> list[float]:
    if not draws[0].numel() or draws[0].is_complex():
        return []
    return [float((_plain(one).double().atan() ** power).mean()) for one in draws]


def _variance(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def all_equal(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Whether tensors are equal, nan to nan."""

    def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
        one, other = _plain(one), _plain(other)
        return one.shape == other.shape and bool(_same(one, other).all())

    return len(some) == len(others) and all(map(equal, some, others))


def all_close(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Whether the CPU's results of two calls differ by no more than rounding.

    LAPACK's last digits depend on where in memory its operands lie.
    """
    try:
        compare(some, others, "result")
    except Wrong:
        return False
    return True


def message(error: BaseException) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if not isinstance(error, Wrong) else text


def described(value: Any) -> str:
    """A sample in a few words: shapes of tensors, and all else."""
    if isinstance(value, torch.Tensor):
        return f"{list(value.shape)}" + (f"{value.dtype}".replace("torch.", " "))
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(map(described, value)) + ")"
    if isinstance(value, dict):
        return ", ".join(f"{key}={described(item)}" for key, item in value.items())
    return repr(value)
