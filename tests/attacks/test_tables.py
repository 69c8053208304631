"""What is kept for shapes, where every step has other ones."""

from __future__ import annotations

import json

import pytest

from dl4all.ops.core.kernels.autotune import MOST_CLASSES
from tests.conftest import need, run_python


def grown(device: str, steps: int, most: int) -> list[int]:
    """The sizes of the tuner's tables after so many steps; fails if any table of the process has grown."""
    code = f"from tests.attacks.random_shapes import main; main({device!r}, {steps}, {most})"
    done = run_python(code, DL4ALL_TOP="0", DL4ALL_TUNE="0", DL4ALL_FALLBACK="silent")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["grown"] == []
    tables: list[int] = found["tables"]
    return tables


def test_no_table_grows_with_the_shapes_that_were_computed() -> None:
    """On a device that computes nothing, whose tables are those of every other one."""
    assert grown("null:0", 400, 100) == [100, 0]


@pytest.mark.full
@pytest.mark.parametrize("device", ["null:0", "cpu", pytest.param("vulkan:0", marks=pytest.mark.vulkan)])
def test_5000_shapes(device: str) -> None:
    if device != "null:0":
        need(device)
    tables = grown(device, 5000, MOST_CLASSES)
    assert all(size <= MOST_CLASSES for size in tables)
