"""A kernel's first launch, and later ones: what is compiled when, and what is kept where.

python examples/course/shader_cache.py --picture cache.svg
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

import dl4all as dl
from dl4all.cli.run import run

sys.path.insert(0, str(Path(__file__).parents[2]))

from examples.course.measurement import draw_bars, gpu

PROCESS = """
import sys, time
import dl4all as dl

device = dl.device(sys.argv[1])
x = dl.rand(64, 64, device=device)
device.synchronize()
times = []
for _ in range(3):
    start = time.perf_counter()
    kernel = dl.kernel(
        '''
        layout(local_size_x = 64) in;
        layout(binding = 0) readonly buffer X { float x[]; };
        layout(binding = 1) writeonly buffer Y { float y[]; };
        layout(push_constant) uniform Push { uint n; };
        void main() {
            const uint i = gl_GlobalInvocationID.x;
            if (i < n) y[i] = sin(x[i]) * exp(x[i]) + log(1.0 + x[i]);
        }
        ''',
        name="mine",
        outputs=lambda x: [(x.shape, x.dtype)],
        groups=lambda x: -(-x.numel() // 64),
        push=lambda x: [("uint", x.numel())],
    )
    kernel(x)
    device.synchronize()
    times.append(time.perf_counter() - start)
print(*times)
"""


def launches(device: dl.Device, cache: str) -> list[float]:
    """Milliseconds of the first three launches of a kernel in a process with this cache."""
    environment = os.environ | {"DL4ALL_CACHE_DIR": cache}
    done = subprocess.run(
        [sys.executable, "-c", PROCESS, device.name],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return [1e3 * float(word) for word in done.stdout.split()]


@click.command()
@click.option("--device", default="auto", show_default=True, help="auto, vulkan:0, kompute:0, ...")
@click.option("--picture", metavar="FILE.svg", help="Draw the times.")
def main(device: str, picture: str | None) -> None:
    place = gpu(device)
    with tempfile.TemporaryDirectory() as cache:
        first, second = launches(place, cache), launches(place, cache)
        kept = sorted({path.suffix for path in Path(cache).rglob("*") if path.is_file()})
    found = {
        "first in the first process": first[0],
        "second there": first[1],
        "third there": first[2],
        "first in the second process": second[0],
        "second there ": second[1],
    }
    print(f"A kernel on {place}, from its text to its result")
    for name, ms in found.items():
        print(f"{name:<30} {ms:>9.2f} ms")
    print(f"The cache holds files of {', '.join(kept)}.")
    start = time.perf_counter()
    dl.rand(8, 8, device=place).sum().item()
    print(f"An op of the library takes {1e3 * (time.perf_counter() - start):.2f} ms the first time here.")
    draw_bars(picture, f"A kernel on {place}, from its text to its result", "ms", found)


if __name__ == "__main__":
    run(main, "shader_cache")
