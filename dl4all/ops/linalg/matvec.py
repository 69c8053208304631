"""The product of a few rows with a matrix whose rows lie along the sum, as in a fully connected layer."""

from __future__ import annotations

from typing import Literal, NamedTuple

from dl4all.ops.core import autotune
from dl4all.ops.core.launch import MAX_GRID_SIZE, ceil_div, pack, run, shader
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.linalg.gemm import Matrices, gemm
from dl4all.runtime.device_info import DeviceInfo
from dl4all.scheduler.device import Device

WORKGROUP = 64
ROWS = 4  # of the input that one invocation, or workgroup, takes along
LARGEST = 17  # bits of a size from which on more of the same follows
ROUNDS = 16  # bits of how often a loop may go round on every device: llvmpipe leaves it after 65535 times


class Sizes(NamedTuple):
    """Of a product of ``rows`` x ``inner`` with ``features`` x ``inner``."""

    rows: int
    features: int
    inner: int


Way = Literal["invocation", "workgroup", "tiles"]
"""Who computes an output feature: an invocation, a workgroup, or a tile of the product of matrices."""

WAYS: dict[str, Way] = {"invocation": "invocation", "workgroup": "workgroup", "tiles": "tiles"}
MATVEC = {
    (way, bias): shader("linalg/linear.comp", TREE=int(way == "workgroup"), BIAS=int(bias))
    for way in ("invocation", "workgroup")
    for bias in (False, True)
}


def matvec(out: TensorBase, x: TensorBase, w: TensorBase, bias: TensorBase | None, rows: int) -> None:
    """Fill `out` with ``x @ w.T``, plus `bias` if given; all are contiguous, and x has so many rows."""
    way = autotune.choose(SPACE, out.device, Sizes(rows, *w.shape))
    matvec_with(way, out, x, w, bias, rows)


def matvec_with(
    way: Way, out: TensorBase, x: TensorBase, w: TensorBase, bias: TensorBase | None, rows: int
) -> None:
    """The same in a way that the device can."""
    features, inner = w.shape
    if way == "tiles":
        problem = Matrices(
            m=rows, n=features, k=inner, lda=inner, ldb=inner, ldc=features,
            a_offset=x.offset, b_offset=w.offset, turn_b=True, bias_row=0, bias_column=1,
        )  # fmt: skip
        gemm(out, x, w, bias, problem)
        return
    operands = (x, w) if bias is None else (x, w, bias)
    push = pack(rows, features, inner, *(operand.offset for operand in operands))
    groups = (features if way == "workgroup" else ceil_div(features, WORKGROUP), ceil_div(rows, ROWS), 1)
    run(MATVEC[way, bias is not None], groups, push, *operands, out, flops=2 * rows * features * inner)


def _key(q: Sizes) -> tuple[int, ...]:
    """A way takes one to ROWS rows in the same time, and starts anew for the next."""
    steps = min(ceil_div(q.rows, ROWS).bit_length(), 4)
    return steps, q.features.bit_length(), min(q.inner.bit_length(), LARGEST)


def _rule(info: DeviceInfo, key: tuple[int | str, ...]) -> tuple[str, ...]:
    """GPUs read neighbours at once; a workgroup pays off where each invocation of it has something to do."""
    gpu = info.type in ("discrete", "integrated", "virtual") and 2 ** int(key[2]) > WORKGROUP
    return ("workgroup", "invocation", "tiles") if gpu else ("invocation", "tiles")


def _fits(device: Device, way: Way, key: tuple[int | str, ...]) -> bool:
    if way == "workgroup":
        return int(key[1]) <= MAX_GRID_SIZE.bit_length()
    return way == "tiles" or int(key[2]) <= ROUNDS


def _prepare(device: Device, q: Sizes) -> autotune.Work[Way]:
    shapes = (q.rows, q.inner), (q.features, q.inner), (q.rows, q.features)
    x, w, out = (autotune.uninitialized(device, *shape) for shape in shapes)
    return autotune.Work(lambda way: matvec_with(way, out, x, w, None, q.rows), out)


PROBLEMS = (
    ("ResNet-18, last layer", Sizes(1, 1000, 512)),
    ("VGG-16, second layer", Sizes(1, 4096, 4096)),
    ("MLP, one picture", Sizes(1, 256, 784)),
    ("MLP, four pictures", Sizes(4, 256, 784)),
    ("GPT, feed forward of a token", Sizes(1, 1536, 384)),
    ("GPT, vocabulary", Sizes(1, 50257, 384)),
)
SPACE = autotune.declare(autotune.Space("linear", WAYS, _key, _rule, _fits, _prepare, PROBLEMS))
