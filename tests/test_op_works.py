"""What the benchmark of all ops runs: each op with a kernel, and what it must move at least."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import dl4all as dl
from benchmarks.bandwidth import Device, Row, measured, shares
from benchmarks.op_works import WITHOUT, Work, tasks, variants, work
from dl4all.ops.core.op import REGISTRY

MEASURED = Path(__file__).parents[1] / "docs" / "measured" / "ops.json"
SMALL = tasks(4096)


def test_every_op_with_a_kernel_is_measured_or_has_a_reason() -> None:
    with_kernels = {name for name, op in REGISTRY.items() if op.kernel is not None}
    assert set(SMALL) | set(WITHOUT) == with_kernels
    assert not set(SMALL) & set(WITHOUT)


@pytest.mark.parametrize("name", sorted(set(SMALL) - {"conv1d", "conv3d"}))
def test_works(name: str) -> None:
    made = work(REGISTRY[name], SMALL[name], "cpu")
    result = made.run()
    assert isinstance(result, dl.Tensor)
    assert made.nbytes >= result.nbytes
    if result.dtype.kind == "f":  # inputs lie where ops are defined
        assert not np.isnan(result.numpy()).any()


def test_bytes_and_operations() -> None:
    assert work(REGISTRY["add"], SMALL["add"], "cpu").nbytes == 3 * 4 * 4096
    assert work(REGISTRY["gt"], SMALL["gt"], "cpu").nbytes == 2 * 4 * 4096 + 4096
    assert work(REGISTRY["matmul"], SMALL["matmul"], "cpu").flops == 2 * 512**3
    assert variants("cpu", 4096)["transpose"].run() is not None


def test_shares_are_of_the_usual_floor() -> None:
    ran = []
    device = Device(lambda: ran.append("copy"), 100, None, None)
    row = measured("double", Work(lambda: ran.append("op"), 200, 7), device, 0.0)
    assert ran == ["copy", "op"] * 3
    assert row.rate == 200 / row.seconds
    rows = [
        Row("slow", 2.0, 3.0, 6.0, False),
        Row("fast", 1.0, 4.0, 8.0, False),
        Row("beside a copy that was counted too short", 1.0, 2.0, 100.0, False),
        Row("mm", 1.0, 5.0, 5.0, True),
    ]
    assert list(shares(rows).values()) == [3 / 8, 4 / 8, 2 / 8, 1.0]


def test_what_was_measured_is_declared() -> None:
    found = json.loads(MEASURED.read_text())
    assert set(found["shares"]) <= set(SMALL)
    assert all(share > 0 for share in found["shares"].values())
