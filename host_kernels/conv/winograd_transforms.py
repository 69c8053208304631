"""The transforms of Winograd's convolution with 3x3 filters, in tiles of 4x4 results.

Tiles of 6x6 elements of an image and filters are transformed, multiplied element by element, which takes 36
products in the place of 144, summed over channels, and transformed back. A transform multiplies by a small
matrix from both sides. The matrices interpolate at 0, +-3/4, +-3/2 and infinity, as those of
`shaders/conv/winograd.glsl` do: numbers that are exact, with a third of the errors of the usual +-1 and +-2.

Source: A. Lavin, S. Gray, "Fast algorithms for convolutional neural networks", CVPR 2016.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dl4all.runtime.cpu.llvm.ir import Code, IrValue

RESULTS, SIDE = 4, 6
"""Of a tile along each axis: results, and elements of the image that they are made of."""
ELEMENTS = SIDE * SIDE

P, Q = 0.75, 1.5
PP, QQ = P * P, Q * Q
BY_P, BY_Q = 0.5 / (PP * (PP - QQ)), 0.5 / (QQ * (QQ - PP))

Transform = Callable[[Code, Sequence[IrValue]], list[IrValue]]


def both_axes(code: Code, transform: Transform, grid: Sequence[Sequence[IrValue]]) -> list[list[IrValue]]:
    """The rows of a grid after the transform of its columns, then of its rows."""
    columns = [transform(code, column) for column in zip(*grid, strict=True)]
    return [transform(code, row) for row in zip(*columns, strict=True)]


def transform_image(code: Code, d: Sequence[IrValue]) -> list[IrValue]:
    """Six elements of a transformed image."""
    even_p, odd_p = _plus(code, d[4], -QQ, d[2]), _plus(code, d[3], -QQ, d[1])
    even_q, odd_q = _plus(code, d[4], -PP, d[2]), _plus(code, d[3], -PP, d[1])
    return [
        _plus(code, even_q, -QQ, _plus(code, d[2], -PP, d[0])),
        *_plus_and_minus(code, even_p, P, odd_p),
        *_plus_and_minus(code, even_q, Q, odd_q),
        _plus(code, _plus(code, d[5], -PP, d[3]), -QQ, odd_q),
    ]


def transform_filter(code: Code, g: Sequence[IrValue]) -> list[IrValue]:
    """Six elements of a transformed filter of three."""
    even_p, odd_p = _plus(code, g[0], PP, g[2]) * BY_P, g[1] * BY_P
    even_q, odd_q = _plus(code, g[0], QQ, g[2]) * BY_Q, g[1] * BY_Q
    return [
        g[0] * (1 / (PP * QQ)),
        *_plus_and_minus(code, even_p, P, odd_p),
        *_plus_and_minus(code, even_q, Q, odd_q),
        g[2],
    ]


def transform_result(code: Code, m: Sequence[IrValue]) -> list[IrValue]:
    """Four results of six transformed ones."""
    even_p, odd_p = m[1] + m[2], (m[1] - m[2]) * P
    even_q, odd_q = m[3] + m[4], (m[3] - m[4]) * Q
    return [
        m[0] + even_p + even_q,
        odd_p + odd_q,
        _plus(code, even_p * PP, QQ, even_q),
        _plus(code, _plus(code, m[5], PP, odd_p), QQ, odd_q),
    ]


def transform_gradient(code: Code, d: Sequence[IrValue]) -> list[IrValue]:
    """Six elements of the transformed gradient of four results."""
    even_p, odd_p = _plus(code, d[0], PP, d[2]), _plus(code, d[1], PP, d[3])
    even_q, odd_q = _plus(code, d[0], QQ, d[2]), _plus(code, d[1], QQ, d[3])
    return [
        d[0],
        *_plus_and_minus(code, even_p, P, odd_p),
        *_plus_and_minus(code, even_q, Q, odd_q),
        d[3],
    ]


def transform_back(code: Code, u: Sequence[IrValue]) -> list[IrValue]:
    """The gradient of a filter of three, of that of its six transformed elements."""
    even_p, odd_p = (u[1] + u[2]) * BY_P, (u[1] - u[2]) * (BY_P * P)
    even_q, odd_q = (u[3] + u[4]) * BY_Q, (u[3] - u[4]) * (BY_Q * Q)
    return [
        _plus(code, even_p + even_q, 1 / (PP * QQ), u[0]),
        odd_p + odd_q,
        _plus(code, _plus(code, u[5], PP, even_p), QQ, even_q),
    ]


def _plus(code: Code, value: IrValue, factor: float, other: IrValue) -> IrValue:
    """``value + factor * other``."""
    return code.intrinsic("fmuladd", code.constant(other.type, factor), other, value)


def _plus_and_minus(code: Code, value: IrValue, factor: float, other: IrValue) -> tuple[IrValue, IrValue]:
    return _plus(code, value, factor, other), _plus(code, value, -factor, other)
