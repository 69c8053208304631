"""Three ops as one kernel of one's own, beside the ops and beside what dl.compile makes of them.

    python benchmarks/glsl_kernel.py [--device vulkan:0] [--rows 4096] [--columns 1024] [--repeat 21]

``silu(gate) * up + residual``: in immediate mode three kernels read five matrices and write three, one kernel
reads three and writes one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np

import dl4all as dl

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.turns import in_turn

GATED = """
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer Gate { vec4 gate[]; };
layout(binding = 1) readonly buffer Up { vec4 up[]; };
layout(binding = 2) readonly buffer Residual { vec4 residual[]; };
layout(binding = 3) writeonly buffer Y { vec4 y[]; };
layout(push_constant) uniform Push { uint quarters; };

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < quarters; i += step) {
        const vec4 g = gate[i];
        y[i] = g / (1.0 + exp(-g)) * up[i] + residual[i];
    }
}
"""

gated = dl.kernel(
    GATED,
    name="gated",
    outputs=lambda gate, up, residual: [(gate.shape, gate.dtype)],
    groups=lambda gate, up, residual: max(1, gate.numel() // 4 // 128 // 8),
    push=lambda gate, up, residual: [("uint", gate.numel() // 4)],
)


def in_ops(gate: Any, up: Any, residual: Any) -> Any:
    return dl.nn.functional.silu(gate) * up + residual


@click.command()
@click.option("--device", default="vulkan:0", show_default=True)
@click.option("--rows", default=4096, show_default=True)
@click.option("--columns", default=1024, show_default=True, help="A multiple of 4.")
@click.option("--repeat", default=21, show_default=True)
def main(device: str, rows: int, columns: int, repeat: int) -> None:
    """Three ops as one kernel."""
    dl.manual_seed(0)
    given = [dl.randn(rows, columns, device=device) for _ in range(3)]
    compiled = dl.compile(in_ops)
    calls: dict[str, Any] = {"three ops": in_ops, "dl.compile": compiled, "one kernel": gated}
    expected = in_ops(*given).numpy()
    for call in calls.values():
        np.testing.assert_allclose(call(*given).numpy(), expected, rtol=1e-5, atol=1e-5)

    def waiting(call: Any) -> Any:
        def run() -> None:
            call(*given)
            given[0].device.synchronize()

        return run

    times = in_turn({name: waiting(call) for name, call in calls.items()}, repeat, warm_up=5)
    first = median(times["three ops"].clock)
    for name, measured in times.items():
        print(f"{name:12} {median(measured.clock):8.2f} ms  {median(measured.clock) / first:5.2f}")


if __name__ == "__main__":
    main()
