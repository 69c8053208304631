"""``x @ w.T`` for few rows of x and a row-major w, as in a fully connected layer."""

from __future__ import annotations

from typing import Literal, NamedTuple

from dl4all.ops.core.kernels import autotune
from dl4all.ops.core.kernels.launch import MAX_GRID_SIZE, as_bits, ceil_div, run, shader
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.linalg.gemm import GemmProblem, gemm
from dl4all.ops.linalg.packed_formats import FORMATS, PackedFormat
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.spirv import Shader
from dl4all.scheduler.device.device import Device

MATVEC_MAX_ROWS = 8  # with more rows, the tiles of gemm are faster
MAX_ROWS = 4  # of the input that one workgroup computes together
MAX_INNER_BITS = 20  # longer sums are one class for the tuner
MAX_LOOP_BITS = 16  # of the loop count that every device allows: llvmpipe leaves a loop after 65535 rounds
MAX_FEATURES = MAX_GRID_SIZE * 4


class MatvecProblem(NamedTuple):
    """The sizes of a product of x (rows, inner) with w (features, inner)."""

    rows: int
    features: int
    inner: int


class Workgroup(NamedTuple):
    """The invocations that add up together, and the output features that they compute."""

    size: int
    features: int


Method = Workgroup | Literal["tiles"]
"""The unit that computes output features: a workgroup, or a tile of :func:`gemm`."""

WORKGROUPS = {"8x8": Workgroup(8, 8), "64x4": Workgroup(64, 4)}
METHODS: dict[str, Method] = {**WORKGROUPS, "tiles": "tiles"}
LINEAR = "uint rows, features, inner, x_offset, w_offset"
MATVEC_PUSH = {
    False: PushBlock("linalg/linear.comp", LINEAR + ";", BIAS=0, FORMAT=0),
    True: PushBlock("linalg/linear.comp", LINEAR + ", bias_offset;", BIAS=1, FORMAT=0),
}
PACKED_PUSH = {
    name: PushBlock("linalg/linear.comp", LINEAR + ", scale_offset, blocks;", FORMAT=format.number)
    for name, format in FORMATS.items()
}


def _shader(workgroup: Workgroup, rows: int, step: int, *, bias: bool = False, format: int = 0) -> Shader:
    size, features = workgroup
    return shader(
        "linalg/linear.comp", SIZE=size, FEATURES=features, ROWS=rows, VEC=step, BIAS=int(bias), FORMAT=format
    )


MATVEC = {
    (workgroup, rows, step, bias): _shader(workgroup, rows, step, bias=bias)
    for workgroup in WORKGROUPS.values()
    for rows in (1, 2, MAX_ROWS)
    for step in (1, 4)  # numbers that an invocation reads at once
    for bias in (False, True)
}
PACKED = {
    (format.name, workgroup, rows): _shader(workgroup, rows, 4, format=format.number)
    for format in FORMATS.values()
    for workgroup in WORKGROUPS.values()
    for rows in (1, 2, MAX_ROWS)
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
    together = _rows_together(rows)
    step = 1 if (inner | x.offset | w.offset) % 4 else 4
    code = MATVEC[method, together, step, bias is not None]
    groups = (ceil_div(features, method.features), ceil_div(rows, together), 1)
    run(code, groups, push, *operands, out, flops=2 * rows * features * inner)


def packed_matvec(
    out: TensorBase, x: TensorBase, w: TensorBase, scales: TensorBase, format: PackedFormat
) -> None:
    """Fill `out` (rows, features) with the product of x (rows, inner) and weights in few bits.

    All are contiguous, x and the bytes of w begin at multiples of 4, and scales, of (features, numbers), hold
    float16.
    """
    (rows, inner), (features, numbers) = x.shape, scales.shape
    usual = SPACE.usual(out.device, SPACE.key(MatvecProblem(rows, features, inner)))
    workgroup, together = WORKGROUPS[usual], _rows_together(rows)
    of_scale = inner // format.weights * format.scales // numbers
    push = PACKED_PUSH[format.name].pack(rows, features, inner, x.offset, w.offset, scales.offset, of_scale)
    grid = (ceil_div(features, workgroup.features), ceil_div(rows, together), 1)
    flops = 2 * rows * features * inner
    run(PACKED[format.name, workgroup, together], grid, push, x, w, as_bits(scales), out, flops=flops)


def _rows_together(rows: int) -> int:
    return min(rows, MAX_ROWS) if rows != 3 else MAX_ROWS


def _key(p: MatvecProblem) -> tuple[int, ...]:
    """The tuner's class of a problem. Up to MAX_ROWS rows are one step; the next ones take the time again."""
    steps = min(ceil_div(p.rows, MAX_ROWS).bit_length(), 4)
    return steps, p.features.bit_length(), min(p.inner.bit_length(), MAX_INNER_BITS), int(p.inner % 4 == 0)


def _rule(info: DeviceInfo, key: tuple[int | str, ...]) -> tuple[str, ...]:
    """The best methods for a device and a class of problems. The last one fits every device."""
    # A processor's vectors have 8 lanes; GPUs want whole waves that read neighbours.
    return ("8x8", "tiles") if info.type == "software" else ("64x4", "8x8", "tiles")


def _fits(device: Device, method: Method, key: tuple[int | str, ...]) -> bool:
    if method == "tiles":
        return True
    rounds_bits = int(key[2]) - method.size.bit_length() + 1
    return rounds_bits <= MAX_LOOP_BITS and 2 ** int(key[1]) <= MAX_GRID_SIZE * method.features


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
SPACE = autotune.declare(
    autotune.TuningSpace("linear", METHODS, _key, _rule, _fits, _prepare, PROBLEMS, version=2)
)
