"""The matrix product with cooperative matrices: half the bytes inside of it, and the hardware's matrix units.

Operands are rounded to float16, so it is taken only where :func:`set_float32_matmul_precision` allows that,
and only where measurements on the device have found it to be faster: no rule picks it.
"""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass

from dl4all.errors import BackendMissingError, ShaderError
from dl4all.ops.core.kernels import autotune
from dl4all.ops.core.kernels.launch import MAX_GRID_SIZE, ceil_div, run, shader
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import OPTIONAL_SHADERS
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.linalg import gemm as plain
from dl4all.ops.linalg.gemm import GemmProblem
from dl4all.runtime import spirv
from dl4all.runtime.device_info import DeviceInfo
from dl4all.scheduler.device.device import Device

COOPERATIVE_GEMM_PUSH = PushBlock(
    "linalg/cooperative_gemm.comp",
    "uint m, n, k, lda, ldb, ldc, a_step, b_step, c_step, a_offset, b_offset, c_offset, has_bias, "
    "bias_offset, bias_row, bias_column, bias_step;",
)
COOPERATIVE_GEMM = shader("linalg/cooperative_gemm.comp", ELEMENT="float16_t")
OPTIONAL_SHADERS.append(COOPERATIVE_GEMM)
TYPES = ("float16", "float16", "float32", "float32")  # of A, B, C and the result
NEEDS = frozenset({"cooperative_matrix", "float16", "memory_model"})
BLOCKS = 2  # subgroups of a workgroup along M, and along N
DEPTH = 32  # of the pieces in shared memory, along K
PITCH = 8  # elements between their rows, beyond what is used
TOLERANCE = 4e-3  # of a result, relative to its largest: float16 rounds by 5e-4
logger = logging.getLogger("dl4all")


@dataclass(frozen=True)
class CooperativeTile:
    """Rows and columns of C that a workgroup computes, of fragments m x n with k terms each."""

    m: int
    n: int
    k: int
    rows: int
    columns: int

    @property
    def constants(self) -> tuple[int, ...]:
        """The shader's, without the lanes of the workgroup and the layout."""
        blocks = (self.rows // (BLOCKS * self.m), self.columns // (BLOCKS * self.n), DEPTH // self.k)
        return (self.m, self.n, self.k, *blocks, BLOCKS, BLOCKS)

    @property
    def shared_bytes(self) -> int:
        pieces = self.rows * (DEPTH + PITCH) + DEPTH * (self.columns + PITCH)
        return 2 * pieces + 4 * BLOCKS**2 * self.m * self.n


FRAGMENTS = ((16, 16, 16), (16, 8, 16), (8, 16, 16), (8, 8, 16), (8, 8, 8))
TILES = {
    f"{rows}x{columns} of {m}x{n}x{k}": CooperativeTile(m, n, k, rows, columns)
    for m, n, k in FRAGMENTS
    for rows, columns in ((32, 32), (64, 64), (128, 64), (128, 128))
}
FLOAT32 = "float32"


def reduced_gemm(
    c: TensorBase, a: TensorBase, b: TensorBase, bias: TensorBase | None, problem: GemmProblem
) -> bool:
    """Fill `c` with the products of operands that are rounded to float16; False where float32 is better."""
    if not c.device.features >= NEEDS:
        return False
    tile = autotune.choose(SPACE, c.device, problem)
    if tile is None or not takes(tile, problem):
        return False
    cooperative_gemm(tile, c, a, b, bias, problem)
    return True


def takes(tile: CooperativeTile, p: GemmProblem) -> bool:
    """Whether a tile's kernel can compute a problem, with one launch."""
    groups = (ceil_div(p.n, tile.columns), ceil_div(p.m, tile.rows), p.batch)
    return not p.panel and 0 < p.k <= plain.MAX_TERMS_PER_LAUNCH and max(groups) <= MAX_GRID_SIZE


def cooperative_gemm(
    tile: CooperativeTile,
    c: TensorBase,
    a: TensorBase,
    b: TensorBase,
    bias: TensorBase | None,
    p: GemmProblem,
) -> None:
    """Fill `c` as :func:`dl4all.ops.linalg.gemm.gemm` does, with operands of float16 and sums of float32."""
    bias_layout = (0, 0, 0, 0, 0)
    if bias is not None:
        bias_layout = (1, bias.offset + p.bias_offset, p.bias_row, p.bias_column, p.bias_step)
    push = COOPERATIVE_GEMM_PUSH.pack(
        p.m, p.n, p.k, p.lda, p.ldb, p.ldc, p.a_step, p.b_step, p.c_step, p.a_offset, p.b_offset, p.c_offset,
        *bias_layout,
    )  # fmt: skip
    layout = (int(p.transpose_a), int(p.transpose_b))
    run(
        COOPERATIVE_GEMM,
        (ceil_div(p.n, tile.columns), ceil_div(p.m, tile.rows), p.batch),
        push,
        *(a, b, a if bias is None else bias, c),
        constants=(_lanes(c.device.info), *tile.constants, *layout),
        flops=2 * p.m * p.n * p.k * p.batch,
    )


def _lanes(info: DeviceInfo) -> int:
    return info.subgroup_size * BLOCKS**2


# Choice of the tile


def _rule(info: DeviceInfo, key: tuple[int | str, ...]) -> tuple[str, ...]:
    return (FLOAT32,)


def _fits(device: Device, tile: CooperativeTile | None, key: tuple[int | str, ...]) -> bool:
    if tile is None:
        return True
    info, limits = device.info, device.info.limits
    shapes = {(s.m, s.n, s.k) for s in info.cooperative_matrices if (s.a, s.b, s.c, s.result) == TYPES}
    panel = key[-1]
    return (
        not panel
        and device.features >= NEEDS
        and (tile.m, tile.n, tile.k) in shapes
        and _lanes(info) <= min(limits.workgroup_invocations, limits.workgroup_size[0])
        and tile.shared_bytes <= limits.shared_memory
        and compiles()
    )


@functools.cache
def compiles() -> bool:
    """Whether the shader is there, or can be compiled: older compilers do not know the extension."""
    try:
        spirv.load(COOPERATIVE_GEMM)
    except (ShaderError, BackendMissingError) as error:
        logger.debug("products with cooperative matrices are not offered: %s", error)
        return False
    return True


def _prepare(device: Device, p: GemmProblem) -> autotune.Work[CooperativeTile | None]:
    problem, (a, b, c) = plain.prepare_dense(device, p)

    def run(tile: CooperativeTile | None) -> None:
        if tile is None:
            usual = autotune.choose(plain.SPACE, device, problem)
            plain.gemm_with_tile(usual, c, a, b, None, problem)
        else:
            cooperative_gemm(tile, c, a, b, None, problem)

    return autotune.Work(run, c)


SPACE: autotune.TuningSpace[GemmProblem, CooperativeTile | None] = autotune.declare(
    autotune.TuningSpace(
        name="cooperative_gemm",
        candidates={FLOAT32: None, **TILES},
        key=plain.SPACE.key,
        rule=_rule,
        fits=_fits,
        prepare=_prepare,
        problems=[(name, problem) for name, problem in plain.PROBLEMS if not problem.panel],
        tolerance=TOLERANCE,
        needs=NEEDS,
    )
)

plain.reduced_gemm = reduced_gemm
