"""What is computed: matrix products and ResNet-18's 3x3 convolutions, in float32, with their right answers.

Every peer's process imports this file, so it needs nothing but NumPy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

TOLERANCE = 1e-3  # of the largest value of the right answer; float16 anywhere in the sums exceeds it


class Case(NamedTuple):
    """A product x @ w of matrices, or the convolution, padded by 1, of x (1, C, H, W) with w (O, C, 3, 3).

    >>> Case("small", (1, 2, 6, 6), (3, 2, 3, 3), 2).output
    (1, 3, 3, 3)
    """

    name: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    stride: int = 1  # of a convolution

    @property
    def is_convolution(self) -> bool:
        return len(self.x) == 4

    @property
    def output(self) -> tuple[int, ...]:
        if not self.is_convolution:
            return self.x[0], self.w[1]
        height, width = ((size - 1) // self.stride + 1 for size in self.x[2:])
        return self.x[0], self.w[0], height, width

    @property
    def flop(self) -> int:
        """Multiplications and additions of the plain algorithm."""
        summed = int(np.prod(self.w[1:])) if self.is_convolution else self.w[0]
        return 2 * summed * int(np.prod(self.output))


def convolution(channels: int, size: int, filters: int, stride: int) -> Case:
    name = f"conv-{channels}-{filters}-{size}" + ("" if stride == 1 else f"-stride{stride}")
    return Case(name, (1, channels, size, size), (filters, channels, 3, 3), stride)


CASES = {
    case.name: case
    for case in (
        Case("matmul-512", (512, 512), (512, 512)),
        Case("matmul-1024", (1024, 1024), (1024, 1024)),
        convolution(64, 56, 64, 1),
        convolution(64, 56, 128, 2),
        convolution(128, 28, 128, 1),
        convolution(128, 28, 256, 2),
        convolution(256, 14, 256, 1),
        convolution(256, 14, 512, 2),
        convolution(512, 7, 512, 1),
    )
}


def case_from(fields: dict[str, Any]) -> Case:
    """A case out of JSON, where a tuple is a list."""
    return Case(fields["name"], tuple(fields["x"]), tuple(fields["w"]), fields["stride"])


def inputs(case: Case) -> tuple[Array, Array]:
    """x and w, the same in every process."""
    rng = np.random.default_rng(sum(case.x) + sum(case.w))
    return rng.standard_normal(case.x, np.float32), rng.standard_normal(case.w, np.float32)


def windows(case: Case, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The 3x3 neighbourhoods of an image: (C, H', W', 3, 3) as a view."""
    padded = np.pad(x[0], ((0, 0), (1, 1), (1, 1)))
    channel, row, column = padded.strides
    return np.lib.stride_tricks.as_strided(
        padded,
        (case.x[1], *case.output[2:], 3, 3),
        (channel, case.stride * row, case.stride * column, row, column),
        writeable=False,
    )


def product(case: Case, x: npt.NDArray[Any], w: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The answer by NumPy, in the operands' type."""
    if not case.is_convolution:
        return np.asarray(x @ w)
    return np.tensordot(w, windows(case, x), ((1, 2, 3), (0, 3, 4)))[None]


def error(case: Case, answer: npt.NDArray[Any]) -> float:
    """The largest difference from the answer in float64, relative to its largest value; NaN where one is."""
    x, w = inputs(case)
    expected = product(case, x.astype(np.float64), w.astype(np.float64))
    if answer.shape != expected.shape or answer.dtype != np.float32:
        raise ValueError(
            f"{case.name}: expected float32 {expected.shape}, came {answer.dtype} {answer.shape}; "
            "the peer's script hands back something else"
        )
    return float(np.abs(answer - expected).max() / np.abs(expected).max())
