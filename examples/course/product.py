"""A product of matrices four times: naive, coalesced, tiled, and with a block of results in registers.

python examples/course/product.py --picture product.svg
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

import dl4all as dl
from dl4all.cli.run import run

sys.path.insert(0, str(Path(__file__).parents[2]))

from examples.course.measurement import draw_bars, gpu, medians

HEAD = """
layout(binding = 0) readonly buffer A { float a[]; };
layout(binding = 1) readonly buffer B { float b[]; };
layout(binding = 2) writeonly buffer C { float c[]; };
layout(push_constant) uniform Push { uint n; };
"""

NAIVE = """
layout(local_size_x = 16, local_size_y = 16) in;
// Neighbouring invocations have neighbouring ROWS: they read a, and write c, n elements apart.
void main() {
    const uint row = gl_GlobalInvocationID.x, column = gl_GlobalInvocationID.y;
    float sum = 0.0;
    for (uint k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}
"""

COALESCED = """
layout(local_size_x = 16, local_size_y = 16) in;
// Neighbouring invocations have neighbouring COLUMNS: one read of memory serves all of them.
void main() {
    const uint row = gl_GlobalInvocationID.y, column = gl_GlobalInvocationID.x;
    float sum = 0.0;
    for (uint k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}
"""

TILED = """
layout(local_size_x = 16, local_size_y = 16) in;
shared float a_tile[16][16], b_tile[16][16];
// A workgroup reads each element of its rows and columns once, and keeps tiles of them in shared memory.
void main() {
    const uint x = gl_LocalInvocationID.x, y = gl_LocalInvocationID.y;
    const uint row = gl_GlobalInvocationID.y, column = gl_GlobalInvocationID.x;
    float sum = 0.0;
    for (uint k = 0; k < n; k += 16) {
        a_tile[y][x] = a[row * n + k + x];
        b_tile[y][x] = b[(k + y) * n + column];
        barrier();
        for (uint i = 0; i < 16; ++i) sum += a_tile[y][i] * b_tile[i][x];
        barrier();
    }
    c[row * n + column] = sum;
}
"""

BLOCKED = """
layout(local_size_x = 8, local_size_y = 8) in;
// Each invocation has 8 x 8 results in registers: sixteen reads for 64 multiply-adds.
void main() {
    const uint row = gl_GlobalInvocationID.y * 8, column = gl_GlobalInvocationID.x * 8;
    vec4 sums[8][2];
    for (uint i = 0; i < 8; ++i) { sums[i][0] = vec4(0.0); sums[i][1] = vec4(0.0); }
    for (uint k = 0; k < n; ++k) {
        const uint at = k * n + column;
        const vec4 left = vec4(b[at], b[at + 1], b[at + 2], b[at + 3]);
        const vec4 right = vec4(b[at + 4], b[at + 5], b[at + 6], b[at + 7]);
        for (uint i = 0; i < 8; ++i) {
            const float one = a[(row + i) * n + k];
            sums[i][0] += one * left;
            sums[i][1] += one * right;
        }
    }
    for (uint i = 0; i < 8; ++i) {
        for (uint j = 0; j < 8; ++j) c[(row + i) * n + column + j] = sums[i][j / 4][j % 4];
    }
}
"""

PEAK = """
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { uint rounds; };
// Eight independent chains of multiply-adds on four floats each, and no memory.
void main() {
    const vec4 factor = vec4(x[0]);
    vec4 s[8];
    for (uint i = 0; i < 8; ++i) s[i] = vec4(gl_GlobalInvocationID.x + i);
    for (uint k = 0; k < rounds; ++k) {
        for (uint i = 0; i < 8; ++i) s[i] = s[i] * factor + factor;
    }
    vec4 sum = vec4(0.0);
    for (uint i = 0; i < 8; ++i) sum += s[i];
    y[gl_GlobalInvocationID.x] = sum.x + sum.y + sum.z + sum.w;
}
"""
PEAK_GROUPS, PEAK_ROUNDS = 64, 512


def product(name: str, shader: str, tile: int) -> Any:
    """A kernel for square matrices; a workgroup has `tile` x `tile` results."""
    return dl.kernel(
        HEAD + shader,
        name=name,
        outputs=lambda a, b: [(a.shape, a.dtype)],
        groups=lambda a, b: (a.shape[0] // tile, a.shape[0] // tile),
        push=lambda a, b: [("uint", a.shape[0])],
        flops=lambda a, b: 2 * a.shape[0] ** 3,
    )


PRODUCTS = {
    "naive": product("naive", NAIVE, 16),
    "coalesced": product("coalesced", COALESCED, 16),
    "tiled": product("tiled", TILED, 16),
    "register-blocked": product("blocked", BLOCKED, 64),
}
multiply_adds = dl.kernel(
    PEAK,
    name="peak",
    outputs=lambda x: [((PEAK_GROUPS * 64,), x.dtype)],
    groups=lambda x: PEAK_GROUPS,
    push=lambda x: [("uint", PEAK_ROUNDS)],
)


@click.command()
@click.option("--device", default="auto", show_default=True, help="auto, vulkan:0, kompute:0, ...")
@click.option("--size", default=512, show_default=True, help="Rows and columns: a multiple of 64.")
@click.option("--repeat", default=5, show_default=True, help="Rounds.")
@click.option("--picture", metavar="FILE.svg", help="Draw the rates.")
def main(device: str, size: int, repeat: int, picture: str | None) -> None:
    place = gpu(device)
    a, b = dl.rand(size, size, device=place), dl.rand(size, size, device=place)
    expected = a @ b
    for name, kernel in PRODUCTS.items():
        assert (kernel(a, b) - expected).abs().max().item() < 1e-3 * size, name
    one = dl.ones(1, device=place)
    calls: dict[str, Any] = {name: lambda k=kernel: k(a, b) for name, kernel in PRODUCTS.items()}
    calls |= {"dl4all's own": lambda: a @ b, "peak": lambda: multiply_adds(one)}
    found = medians(calls, place, repeat)
    peak = 2 * 32 * PEAK_GROUPS * 64 * PEAK_ROUNDS / found.pop("peak") / 1e6
    rates = {name: 2 * size**3 / ms / 1e6 for name, ms in found.items()}
    print(f"{size} x {size} on {place}; the peak of multiply-adds is {peak:.1f} GFLOP/s")
    for name, rate in rates.items():
        print(f"{name:<18} {found[name]:>9.2f} ms {rate:>8.1f} GFLOP/s {rate / peak:>7.1%} of the peak")
    draw_bars(picture, f"A product of {size} x {size} on {place}", "GFLOP/s", rates | {"peak": peak})


if __name__ == "__main__":
    run(main, "product")
