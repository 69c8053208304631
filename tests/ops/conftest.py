"""Which devices the ops are tested on, and a place to tune."""

from __future__ import annotations

from pathlib import Path

import pytest

import dl4all as dl
from dl4all.ops.core.op import Op
from tests.support.autotune_harness import Bench
from tests.support.selection import AGAIN, within
from tests.support.subcases import FULL

# Kompute builds a pipeline for every set of buffers, which takes a software driver most of a test's time. It
# runs the same SPIR-V as the vulkan backend, so of the tests of ops those run through it that have every op
# compute with each layout and dtype, and the first example back; and none of them where only what kernels do
# to a device is looked at again, under the validation layers or as the least device. There the files that
# compare more numbers of the same kernels are left out, too, and but for a full run other values of operands.
THROUGH_KOMPUTE = {
    "test_the_kernels_sort",
    "test_forward",
    "test_against_the_cpu",
    "test_elementwise_ops_take_every_dtype",
    "test_bits",
}
MORE_NUMBERS = (  # ends of file names
    *("_against_torch", "test_buffer_indices", "test_fuzz", "test_fuzz_torch", "test_hostile"),
)
OTHER_VALUES = {
    "test_every_op",  # of test_too_large.py
    "test_forward_with_fewer_workgroups_than_work",
    "test_long_loops_are_right",
    "test_numbers_on_either_side",
    "test_ops_launch_the_shaders_that_they_declare",
    "test_other_floats",
    "test_special_pairs",
    "test_special_values_go_through_as_in_numpy",
}


def _runs(item: pytest.Item) -> bool:
    if not within(item, ("tests/ops",)):
        return True
    name = getattr(item, "originalname", "")
    if AGAIN and (item.path.stem.endswith(MORE_NUMBERS) or (name in OTHER_VALUES and not FULL)):
        return False
    if "kompute:0" not in item.name:
        return True
    slow = name == "test_against_the_cpu" and "attention" in item.name  # ten seconds each
    return not AGAIN and name in THROUGH_KOMPUTE and not slow


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    runs = {item: _runs(item) for item in items}
    config.hook.pytest_deselected(items=[item for item in items if not runs[item]])
    # All tests of an op one after the other: a process compiles its pipelines once.
    items[:] = sorted((item for item in items if runs[item]), key=_op_name)


def _op_name(item: pytest.Item) -> str:
    op = (
        item.callspec.params.get("op")
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        else None
    )
    return op.name if isinstance(op, Op) else ""


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("DL4ALL_TUNE", raising=False)
    monkeypatch.chdir(tmp_path)
    cpu = dl.device("cpu")
    monkeypatch.setattr(cpu, "tables", dict(cpu.tables))
    cpu.tables.pop("tuning", None)
    return Bench(monkeypatch, tmp_path)
