"""Which of the collected tests a run takes.

The usual run takes on each device each value of each parameter of a test, and but for Kompute, which runs the
vulkan backend's shaders, each pair of values of two parameters. It does not take the product: a fault that
shows only where three parameters meet is left to the full run (``DL4ALL_TEST_FULL=1``). Lists of cases that
were written by hand are one parameter, and stay whole.

A run under the validation layers and one on the least device (``DL4ALL_VALIDATION``, ``DL4ALL_LIMITS``) come
after a run without. They ask what a device is told, not which numbers come back. So of ops, backends,
allocators and schedulers they take each value once for each device, of the rest one case of each test, and of
what is tested for each op all ops' results and gradients.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dl4all.ops.core.op import Op
from tests.support.subcases import FULL

REPOSITORY = Path(__file__).parents[2]
VALIDATED = os.environ.get("DL4ALL_VALIDATION", "0") == "1"
AGAIN = VALIDATED or bool(os.environ.get("DL4ALL_LIMITS"))
DEVICE = re.compile(r"(cpu|null|numpy|vulkan|vulkan-staging|kompute)(:\d+)?")
# What lies above the ops knows nothing of backends, and asks a device for nothing that ops' own tests do not.
# Kompute runs the shaders of the vulkan backend, slowly on a software driver, for which it builds a pipeline
# for each set of buffers; and the validation layers look at commands. So of the tests in these folders, a
# layer's, an optimizer's, a training's and a network's go through both; all of them in a full run. Not so
# those in multi_device: there several threads, devices and instances are at work at once.
ABOVE_OPS = (
    "tests/amp", "tests/autograd", "tests/automl", "tests/cli", "tests/data", "tests/distributions",
    "tests/examples", "tests/functions", "tests/llm", "tests/meta", "tests/models", "tests/nn", "tests/onnx",
    "tests/optim", "tests/search", "tests/serving", "tests/training", "tests/utils", "tests/test_memory.py",
    "tests/allocator/test_training.py", "tests/graph/accelerator", "tests/graph/test_control_flow.py",
)  # fmt: skip
ONE_OF_EACH_KIND = {
    "test_a_training",
    "test_every_device_gives_the_same_logits",
    "test_output",
    "test_values_equal_pytorch",
}
NOT_AGAIN = (
    *("cli", "data", "distributions", "examples", "io", "typing", "utils", "runtime/spirv"),
    *("attacks/test_caches.py", "attacks/test_exits.py", "attacks/test_folders.py", "attacks/test_fork.py"),
    *("attacks/test_memory_limits.py", "attacks/test_numbers.py", "attacks/test_random_programs.py"),
    *("graph/test_random_functions.py", "models/test_pretrained.py", "ops/test_every_op_in_torch.py"),
    *("ops/test_too_large.py", "runtime/test_file_cache.py", "runtime/test_machines.py"),
    *("runtime/test_minimum_limits.py", "runtime/test_plugins.py", "runtime/test_validation.py"),
    *("runtime/vulkan/test_null_hardware.py", "torch/test_bad_use.py", "torch/test_op_databases.py"),
)
"""What is not run again, beside the files that lie in no folder: it looks at files, processes or numbers."""
EACH_VALUE_AGAIN = (
    *("tests/allocator", "tests/conformance", "tests/graph/codegen", "tests/ops", "tests/runtime"),
    *("tests/scheduler", "dl4all/testing"),
)
"""Folders whose tests write commands themselves: other values of parameters, other commands."""
KOMPUTE_AGAIN = ("tests/allocator", "tests/runtime", "tests/scheduler", "tests/conformance", "dl4all/testing")
"""Where Kompute is used in other ways than by ops, under the validation layers."""
EACH_OP_AGAIN = {"test_against_the_cpu", "test_elementwise_ops_take_every_dtype", "test_forward"}
OTHERS_AGAIN = 8
"""Of the other tests for each op, those of each eighth op."""

Combination = tuple[tuple[int, str], ...]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what is not run again."""
    if not AGAIN or FULL or REPOSITORY / "tests" not in collection_path.parents:
        return None
    name = collection_path.relative_to(REPOSITORY / "tests").as_posix()
    return True if name in NOT_AGAIN or ("/" not in name and name.startswith("test_")) else None


@pytest.hookimpl(trylast=True)  # of what is left
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only a full run takes."""
    if FULL:
        return
    taken = [item for item in items if not _only_in_full(item)]
    by_function: dict[tuple[Path, str], list[pytest.Item]] = defaultdict(list)
    for item in taken:
        by_function[item.path, item.nodeid.partition("[")[0]].append(item)
    kept = {item for cases in by_function.values() for item in covering(_sample(cases), once=AGAIN)}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def _sample(items: list[pytest.Item]) -> list[pytest.Item]:
    """One of every ``count`` cases of a test that is marked ``sampled(count)``, on each of its devices."""
    marker = items[0].get_closest_marker("sampled")
    if marker is None:
        return items
    (count,) = marker.args
    by_device: dict[Combination, list[pytest.Item]] = defaultdict(list)
    for item in sorted(items, key=lambda item: zlib.crc32(item.nodeid.encode())):
        by_device[_devices(item)].append(item)
    kept = {item for cases in by_device.values() for item in cases[::count]}
    return [item for item in items if item in kept]


def _devices(item: pytest.Item) -> Combination:
    return tuple(value for value in enumerate(_ids(item)) if DEVICE.fullmatch(value[1]))


def _only_in_full(item: pytest.Item) -> bool:
    if item.get_closest_marker("full"):
        return True
    through_kompute = "kompute:" in item.name
    name = getattr(item, "originalname", "")
    if name in ONE_OF_EACH_KIND:
        return False
    if (VALIDATED or through_kompute) and within(item, ABOVE_OPS):
        return True
    if not AGAIN:
        return False
    if through_kompute and not (VALIDATED and within(item, KOMPUTE_AGAIN)):
        return True
    op = _parameters(item).get("op")
    return (
        isinstance(op, Op) and name not in EACH_OP_AGAIN and zlib.crc32(op.name.encode()) % OTHERS_AGAIN != 0
    )


def within(item: pytest.Item, folders: Iterable[str]) -> bool:
    return not _parents(item.path).isdisjoint(folders)


@functools.cache
def _parents(path: Path) -> frozenset[str]:
    """A file and its folders within the repository; kept, as paths are slow and tests are many."""
    folders = (parent for parent in (path, *path.parents) if parent.is_relative_to(REPOSITORY))
    return frozenset(folder.relative_to(REPOSITORY).as_posix() for folder in folders)


def _parameters(item: pytest.Item) -> dict[str, Any]:
    return item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}


def covering(items: list[pytest.Item], *, once: bool) -> set[pytest.Item]:
    """Cases of one test in which each pair of two parameters' values occurs on each device; or each value.

    Those that bring most come first. Which ones they are depends on their names alone: the processes of a run
    must agree, and the next run should take the same ones.
    """
    if not once and all(len(_ids(item)) < 2 for item in items):
        return set(items)
    left = {item: _combinations(item, once) for item in items}
    kept: set[pytest.Item] = set()
    seen: set[Combination] = set()
    order = sorted(items, key=lambda item: zlib.crc32(item.nodeid.encode()))
    for least_share in (1.0, 0.5, 0.0):
        for item in order:
            new = left[item] - seen
            if item not in kept and new and len(new) >= least_share * len(left[item]):
                kept.add(item)
                seen |= left[item]
    return kept


def _ids(item: pytest.Item) -> Sequence[str]:
    """One for each `parametrize`, also where that sets several arguments; `indices` counts all cases."""
    ids: Sequence[str] = getattr(getattr(item, "callspec", None), "_idlist", ())
    return ids


def _combinations(item: pytest.Item, once: bool) -> set[Combination]:
    values = list(enumerate(_ids(item)))
    devices = _devices(item)
    if once and not within(item, EACH_VALUE_AGAIN) and not isinstance(_parameters(item).get("op"), Op):
        return {devices}
    others = [value for value in values if value not in devices]
    again = any(value.startswith(("kompute", "numpy")) for _, value in devices)
    if once or again or len(others) < 2:
        return {(*devices, value) for value in others} or {devices}
    return {(*devices, *pair) for pair in itertools.combinations(others, 2)}
