"""Branches that neighbours take apart, and workgroups that take more of the device than they use.

python examples/course/divergence.py --picture divergence.svg
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import click

import dl4all as dl
from dl4all.cli.run import run

sys.path.insert(0, str(Path(__file__).parents[2]))

from examples.course.measurement import draw_bars, gpu, medians

BRANCHES = """
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { uint n, block, ways; };
// Invocations of the same block of `block` neighbours take the same of `ways` branches.
float worked(float value, float factor) {
    for (uint k = 0; k < 32; ++k) value = value * factor + 0.5;
    return value;
}

void main() {
    for (uint i = gl_GlobalInvocationID.x; i < n; i += gl_NumWorkGroups.x * 64) {
        float value = x[i];
        switch ((i / block) % ways) {
            case 0: value = worked(value, 0.5); break;
            case 1: value = worked(value, 0.25) + 1.0; break;
            case 2: value = worked(value, 0.125) * 3.0; break;
            default: value = worked(value, 0.0625) - 2.0; break;
        }
        y[i] = value;
    }
}
"""

SHARED = """
layout(local_size_x = 64) in;
layout(constant_id = 0) const uint WORDS = 64;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { uint n; };
shared float reserved[WORDS];
// Shared memory that a workgroup reserves is not there for others, which could hide its waits.
void main() {
    const uint lane = gl_LocalInvocationID.x;
    for (uint i = gl_GlobalInvocationID.x; i < n; i += gl_NumWorkGroups.x * 64) {
        reserved[lane] = x[i];
        barrier();
        y[i] = reserved[(lane + 1) % 64] + reserved[WORDS - 64 + lane % 1];
        barrier();
    }
}
"""

branches = dl.kernel(
    BRANCHES,
    name="branches",
    outputs=lambda x, block, ways: [(x.shape, x.dtype)],
    groups=lambda x, block, ways: 64,
    push=lambda x, block, ways: [("uint", x.numel()), ("uint", block), ("uint", ways)],
)


def reserving(words: int) -> Any:
    """A kernel whose workgroups reserve so many words of shared memory, and use 64."""
    return dl.kernel(
        SHARED,
        name=f"reserving_{words}",
        outputs=lambda x: [(x.shape, x.dtype)],
        groups=lambda x: 64,
        push=lambda x: [("uint", x.numel())],
        constants={0: words},
    )


@click.command()
@click.option("--device", default="auto", show_default=True, help="auto, vulkan:0, kompute:0, ...")
@click.option("--elements", default=1 << 18, show_default=True, help="A power of two.")
@click.option("--repeat", default=5, show_default=True, help="Rounds.")
@click.option("--picture", metavar="FILE.svg", help="Draw the times.")
def main(device: str, elements: int, repeat: int, picture: str | None) -> None:
    place = gpu(device)
    x = dl.rand(elements, device=place)
    calls: dict[str, Any] = {"one branch for all": lambda: branches(x, 1, 1)}
    for ways in (2, 4):
        calls[f"{ways} branches, by blocks of 64"] = lambda w=ways: branches(x, 64, w)
        calls[f"{ways} branches, neighbours apart"] = lambda w=ways: branches(x, 1, w)
    for words in (64, 1024, 4096):
        calls[f"{words * 4:,} bytes of shared memory"] = functools.partial(reserving(words), x)
    found = medians(calls, place, repeat)
    print(f"{elements:,} elements on {place}")
    for name, ms in found.items():
        print(f"{name:<32} {ms:>8.3f} ms")
    draw_bars(picture, f"{elements:,} elements on {place}", "ms", found)


if __name__ == "__main__":
    run(main, "divergence")
