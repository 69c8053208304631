"""``x @ w.T`` for few rows of x and a row-major w, as in a fully connected layer."""

from __future__ import annotations

from typing import Literal, NamedTuple

from dl4all.ops.core.kernels import autotune
from dl4all.ops.core.kernels.launch import MAX_GRID_SIZE, ceil_div, run, shader
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.linalg.gemm import GemmProblem, gemm
from dl4all.runtime.device_info import DeviceInfo
from dl4all.scheduler.device.device import Device

WORKGROUP = 64
ROWS = 4  # of the input that one invocation, or workgroup, computes together
MAX_INNER_BITS = 17  # longer sums are one class for the tuner
MAX_LOOP_BITS = 16  # of the loop count that every device allows: llvmpipe leaves a loop after 65535 rounds


class MatvecProblem(NamedTuple):
    """The sizes of a product of x (rows, inner) with w (features, inner)."""

    rows: int
    features: int
    inner: int


Method = Literal["invocation", "workgroup", "tiles"]
"""The unit that computes an output feature: an invocation, a workgroup, or a tile of :func:`gemm`."""

METHODS: dict[str, Method] = {"invocation": "invocation", "workgroup": "workgroup", "tiles": "tiles"}
LINEAR = "uint rows, features, inner, x_offset, w_offset"
MATVEC_PUSH = {
    bias: PushBlock("linalg/linear.comp", LINEAR + (", bias_offset;" if bias else ";"), BIAS=int(bias))
    for bias in (False, True)
}
MATVEC = {
    (method, bias): shader("linalg/linear.comp", TREE=int(method == "workgroup"), BIAS=int(bias))
    for method in ("invocation", "workgroup")
    for bias in (False, True)
}


def matvec(out: TensorBase, x: TensorBase, w: TensorBase, bias: TensorBase | None, rows: int) -> None:
    """Fill `out` with ``x @ w.T``, plus `bias` if given; x, of `rows` rows, and the others are contiguous."""
    method = autotune.choose(SPACE, out.device, MatvecProblem(rows, *w.shape))
    matvec_with_method(method, out, x, w, bias, rows)


def matvec_with_method(
    method: Method, out: TensorBase, x: TensorBase, w: TensorBase, bias: TensorBase | None, rows: int
) -> None:
    """Fill `out` as :func:`matvec` does, with a given method that the device can run."""
    features, inner = w.shape
    if method == "tiles":
        problem = GemmProblem(
            m=rows, n=features, k=inner, lda=inner, ldb=inner, ldc=features,
            a_offset=x.offset, b_offset=w.offset, transpose_b=True, bias_row=0, bias_column=1,
        )  # fmt: skip
        gemm(out, x, w, bias, problem)
        return
    operands = (x, w) if bias is None else (x, w, bias)
    push = MATVEC_PUSH[bias is not None].pack(
        rows, features, inner, *(operand.offset for operand in operands)
    )
    groups = (features if method == "workgroup" else ceil_div(features, WORKGROUP), ceil_div(rows, ROWS), 1)
    run(MATVEC[method, bias is not None], groups, push, *operands, out, flops=2 * rows * features * inner)


def _key(p: MatvecProblem) -> tuple[int, ...]:
    """The tuner's class of a problem. Up to ROWS rows take the same time; the next ones take it again."""
    steps = min(ceil_div(p.rows, ROWS).bit_length(), 4)
    return steps, p.features.bit_length(), min(p.inner.bit_length(), MAX_INNER_BITS)


def _rule(info: DeviceInfo, key: tuple[int | str, ...]) -> tuple[str, ...]:
    """The best methods for a device and a class of problems. The last one fits every device."""
    # GPUs read neighbours at once; a workgroup pays off where each of its invocations has something to do.
    gpu = info.type in ("discrete", "integrated", "virtual") and 2 ** int(key[2]) > WORKGROUP
    return ("workgroup", "invocation", "tiles") if gpu else ("invocation", "tiles")


def _fits(device: Device, method: Method, key: tuple[int | str, ...]) -> bool:
    if method == "workgroup":
        return int(key[1]) <= MAX_GRID_SIZE.bit_length()
    return method == "tiles" or int(key[2]) <= MAX_LOOP_BITS


def _prepare(device: Device, p: MatvecProblem) -> autotune.Work[Method]:
    shapes = (p.rows, p.inner), (p.features, p.inner), (p.rows, p.features)
    x, w, out = (autotune.uninitialized(device, *shape) for shape in shapes)
    return autotune.Work(lambda method: matvec_with_method(method, out, x, w, None, p.rows), out)


PROBLEMS = (
    ("ResNet-18, last layer", MatvecProblem(1, 1000, 512)),
    ("VGG-16, second layer", MatvecProblem(1, 4096, 4096)),
    ("MLP, one picture", MatvecProblem(1, 256, 784)),
    ("MLP, four pictures", MatvecProblem(4, 256, 784)),
    ("GPT, feed forward of a token", MatvecProblem(1, 1536, 384)),
    ("GPT, vocabulary", MatvecProblem(1, 50257, 384)),
)
SPACE = autotune.declare(autotune.Space("linear", METHODS, _key, _rule, _fits, _prepare, PROBLEMS))
