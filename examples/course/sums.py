"""Sums in one pass and by a tree, alone and within softmax.

python examples/course/sums.py --picture sums.svg
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import numpy as np

import dl4all as dl
from dl4all.cli.run import run

sys.path.insert(0, str(Path(__file__).parents[2]))

from examples.course.measurement import draw_lines, gpu, medians

ONE_PASS = """
layout(local_size_x = 1) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { uint n, softmax; };
// One invocation for each row: each sum waits for the one before.
void main() {
    const uint row = gl_WorkGroupID.x * n;
    float largest = -1.0 / 0.0, sum = 0.0;
    for (uint k = 0; k < n; ++k) {
        const float value = x[row + k];
        if (softmax == 0) { sum += value; continue; }
        const float now = max(largest, value);  // the sum so far is rescaled when the largest element grows
        sum = sum * exp(largest - now) + exp(value - now);
        largest = now;
    }
    if (softmax == 0) y[gl_WorkGroupID.x] = sum;
    else for (uint k = 0; k < n; ++k) y[row + k] = exp(x[row + k] - largest) / sum;
}
"""

TREE = """
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { uint n, softmax; };
shared float part[64];
// 64 invocations have a part of a row each, and combine these in six steps.
float combined(float value, bool is_max) {
    const uint lane = gl_LocalInvocationID.x;
    barrier();
    part[lane] = value;
    barrier();
    for (uint half_lanes = 32; half_lanes > 0; half_lanes /= 2) {
        if (lane < half_lanes) {
            const float other = part[lane + half_lanes];
            part[lane] = is_max ? max(part[lane], other) : part[lane] + other;
        }
        barrier();
    }
    return part[0];
}

void main() {
    const uint row = gl_WorkGroupID.x * n, lane = gl_LocalInvocationID.x;
    float largest = -1.0 / 0.0, sum = 0.0;
    if (softmax == 0) {
        for (uint k = lane; k < n; k += 64) sum += x[row + k];
        sum = combined(sum, false);
        if (lane == 0) y[gl_WorkGroupID.x] = sum;
        return;
    }
    for (uint k = lane; k < n; k += 64) largest = max(largest, x[row + k]);
    largest = combined(largest, true);
    for (uint k = lane; k < n; k += 64) sum += exp(x[row + k] - largest);
    sum = combined(sum, false);
    for (uint k = lane; k < n; k += 64) y[row + k] = exp(x[row + k] - largest) / sum;
}
"""


def row_kernel(name: str, shader: str) -> Any:
    """A kernel of rows: their sums, or their softmax."""
    return dl.kernel(
        shader,
        name=name,
        outputs=lambda x, softmax: [(x.shape if softmax else x.shape[:1], x.dtype)],
        groups=lambda x, softmax: x.shape[0],
        push=lambda x, softmax: [("uint", x.shape[1]), ("uint", softmax)],
    )


KERNELS = {"one pass": row_kernel("one_pass", ONE_PASS), "tree": row_kernel("tree", TREE)}


@click.command()
@click.option("--device", default="auto", show_default=True, help="auto, vulkan:0, kompute:0, ...")
@click.option("--elements", default=1 << 20, show_default=True, help="Of all rows together: a power of two.")
@click.option("--repeat", default=5, show_default=True, help="Rounds.")
@click.option("--picture", metavar="FILE.svg", help="Draw the times.")
def main(device: str, elements: int, repeat: int, picture: str | None) -> None:
    place = gpu(device)
    lines: dict[str, dict[int, float]] = {}
    for length in (64, 512, 4096, 16_384):  # some drivers end all loops after 65,535 rounds
        x = dl.randn(elements // length, length, device=place)
        calls: dict[str, Any] = {
            f"{'softmax' if softmax else 'sum'}, {name}": lambda k=kernel, x=x, s=softmax: k(x, s)
            for softmax in (0, 1)
            for name, kernel in KERNELS.items()
        }
        calls |= {"sum, dl4all": lambda x=x: x.sum(1), "softmax, dl4all": lambda x=x: x.softmax(1)}
        for name, call in calls.items():
            wanted = x.numpy().sum(1) if "sum" in name else x.softmax(1).numpy()
            np.testing.assert_allclose(call().numpy(), wanted, rtol=2e-3, atol=2e-3 * np.sqrt(length))
        for name, ms in medians(calls, place, repeat).items():
            lines.setdefault(name, {})[length] = ms
    print(f"{elements:,} elements on {place}: ms by the length of a row")
    print(f"{'':<20}" + "".join(f"{length:>12,}" for length in next(iter(lines.values()))))
    for name, points in lines.items():
        print(f"{name:<20}" + "".join(f"{ms:>12.3f}" for ms in points.values()))
    draw_lines(picture, f"{elements:,} elements on {place}", ("elements of a row", "ms"), lines)


if __name__ == "__main__":
    run(main, "sums")
