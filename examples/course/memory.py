"""Memory hierarchies by measurement: sizes that fit into a cache, and strides that waste its lines.

python examples/course/memory.py --picture memory.svg
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
import numpy as np

import dl4all as dl
from dl4all.cli.run import run

sys.path.insert(0, str(Path(__file__).parents[2]))

from examples.course.measurement import draw_lines, gpu, medians

WALK = """
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { uint stride, mask, reads; };

void main() {
    float sum = 0.0;
    uint at = gl_GlobalInvocationID.x * stride;
    for (uint k = 0; k < reads; ++k, at += gl_NumWorkGroups.x * 64 * stride) sum += x[at & mask];
    y[gl_GlobalInvocationID.x] = sum;
}
"""
GROUPS, READS = 16, 512
"""Workgroups of 64 invocations, and how many elements each of these reads."""

walk = dl.kernel(
    WALK,
    name="walk",
    outputs=lambda x, stride, mask: [((GROUPS * 64,), x.dtype)],
    groups=lambda x, stride, mask: GROUPS,
    push=lambda x, stride, mask: [("uint", stride), ("uint", mask), ("uint", READS)],
)


def bandwidth_by_size(largest: int, repeat: int) -> dict[int, float]:
    """GB/s of the CPU when it adds one to so many bytes, again and again."""
    cpu = dl.device("cpu")
    found = {}
    for exponent in range(12, largest + 1, 2):
        x = np.ones(2**exponent // 4, np.float32)
        ms = medians({"add": lambda x=x: np.add(x, 1, out=x)}, cpu, repeat)["add"]  # type: ignore[misc]
        found[2**exponent] = 2 * x.nbytes / ms / 1e6
    return found


def nanoseconds_by_stride(elements: int, repeat: int) -> dict[int, float]:
    """Nanoseconds of each element that the CPU reads, when it takes every stride-th of many."""
    cpu = dl.device("cpu")
    x = np.ones(elements, np.float32)
    found = {}
    for stride in (1, 2, 4, 8, 16, 32, 64, 128):
        part = x[::stride]
        ms = medians({"sum": part.sum}, cpu, repeat)["sum"]
        found[stride] = 1e6 * ms / len(part)
    return found


def on_device(device: dl.Device, elements: int, repeat: int) -> dict[int, float]:
    """The same on a device: neighbouring invocations read elements that are `stride` apart."""
    x = dl.ones(elements, device=device)
    found = {}
    for stride in (1, 2, 4, 8, 16, 32, 64, 128):
        ms = medians({"walk": lambda s=stride: walk(x, s, elements - 1)}, device, repeat)["walk"]  # type: ignore[misc]
        found[stride] = 1e6 * ms / (GROUPS * 64 * READS)
    return found


@click.command()
@click.option("--device", default="auto", show_default=True, help="auto, vulkan:0, kompute:0, ...")
@click.option("--largest", default=26, show_default=True, help="Of the sizes in bytes: a power of two.")
@click.option("--repeat", default=5, show_default=True, help="Rounds.")
@click.option("--picture", metavar="FILE.svg", help="Draw the nanoseconds by stride.")
def main(device: str, largest: int, repeat: int, picture: str | None) -> None:
    place = gpu(device)
    print("Bytes that are read and written    GB/s of the CPU")
    for nbytes, rate in bandwidth_by_size(largest, repeat).items():
        print(f"{nbytes:>26,} {rate:>18.1f}")
    elements = 2 ** (largest - 2)
    cpu, there = nanoseconds_by_stride(elements, repeat), on_device(place, elements, repeat)
    print(f"\nStride    ns an element: CPU    {place}")
    for stride, ns in cpu.items():
        print(f"{stride:>6} {ns:>21.2f} {there[stride]:>11.2f}")
    title = f"Every n-th of {elements:,} floats"
    draw_lines(picture, title, ("stride", "ns an element"), {"CPU": cpu, str(place): there})


if __name__ == "__main__":
    run(main, "memory")
