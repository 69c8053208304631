"""What the usual run and those that come after it take of products of cases."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.support.selection import ABOVE_OPS, REPOSITORY, _sample, covering

DEVICES = ("cpu", "vulkan:0", "kompute:0")
OPS = REPOSITORY / "tests" / "ops" / "test_ops.py"


@dataclasses.dataclass(frozen=True)
class Case:
    """As much of a collected test as the choice looks at; ``callspec`` is itself."""

    _idlist: tuple[str, ...]
    path: Path
    sampled: int = 1

    @property
    def callspec(self) -> Case:
        return self

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return pytest.mark.sampled(self.sampled).mark if name == "sampled" and self.sampled > 1 else None

    @property
    def nodeid(self) -> str:
        return f"{self.path}::test_it" + (f"[{'-'.join(self._idlist)}]" if self._idlist else "")


def case(*ids: str, path: Path = OPS) -> Any:
    """A test with one value for each of its parameters."""
    return Case(ids, path)


def values(cases: set[Any]) -> set[tuple[str, ...]]:
    return {case._idlist for case in cases}


BESIDE_OPS = {
    "allocator", "attacks", "conformance", "graph", "multi_device", "ops", "quantization", "runtime",
    "scheduler", "tensor",
    "benchmarks", "distributed", "docs", "host_kernels", "io", "lab", "pytorch", "suite", "typing",
}  # fmt: skip
"""Folders of tests that use backends, memory and kernels themselves; those in the last line hardly do."""


def test_each_folder_is_above_the_ops_or_beside_them() -> None:
    """A folder that nobody has thought of would go through Kompute and the validation layers as ops do."""
    tests = REPOSITORY / "tests"
    above = {Path(name).name for name in ABOVE_OPS if (REPOSITORY / name).parent == tests}
    folders = {path.relative_to(tests).parts[0] for path in tests.glob("*/**/test_*.py")}
    assert folders | {"test_memory.py"} == BESIDE_OPS | above
    assert all((REPOSITORY / name).exists() for name in ABOVE_OPS)


PRODUCT = list(itertools.product(DEVICES, ("float32", "int64", "bool", "uint8"), "abcde", ("yes", "no")))


def test_each_pair_is_there_on_each_device_and_the_product_is_not() -> None:
    taken = values(covering([case(*ids) for ids in PRODUCT], once=False))
    for device in ("cpu", "vulkan:0"):
        for first, second in itertools.combinations(range(1, 4), 2):
            pairs = {(ids[first], ids[second]) for ids in PRODUCT}
            assert {(ids[first], ids[second]) for ids in taken if ids[0] == device} == pairs
        assert 20 <= sum(ids[0] == device for ids in taken) < 40  # the two longest parameters have 20 pairs


def test_kompute_runs_each_value_once() -> None:
    taken = values(covering([case(*ids) for ids in PRODUCT], once=False))
    through_kompute = [ids for ids in taken if ids[0] == "kompute:0"]
    for parameter in range(1, 4):
        assert {ids[parameter] for ids in through_kompute} == {ids[parameter] for ids in PRODUCT}
    assert 5 <= len(through_kompute) <= 11


def test_each_value_is_there_once_for_each_device() -> None:
    taken = values(covering([case(*ids) for ids in PRODUCT], once=True))
    for parameter in range(1, 4):
        assert {(ids[0], ids[parameter]) for ids in taken} == {(ids[0], ids[parameter]) for ids in PRODUCT}
    assert 15 <= len(taken) <= 33


@pytest.mark.parametrize("once", [False, True])
def test_lists_of_cases_stay_whole(once: bool) -> None:
    """On each device. Nor does a test without parameters go."""
    listed = [case(device, f"case{number}") for device in DEVICES for number in range(23)]
    assert covering(listed, once=once) == set(listed)
    alone = case()
    assert covering([alone], once=once) == {alone}


def test_what_lies_above_the_ops_runs_again_in_one_case_for_each_device() -> None:
    path = REPOSITORY / "tests" / "tensor" / "test_views.py"
    taken = values(covering([case(*ids, path=path) for ids in PRODUCT], once=True))
    assert sorted(ids[0] for ids in taken) == sorted(DEVICES)


def test_any_order_of_collection_gives_the_same_cases() -> None:
    cases = [case(*ids) for ids in PRODUCT]
    assert covering(cases, once=False) == covering(cases[::-1], once=False)


def test_a_sample_is_taken_on_each_device() -> None:
    ids = [(device, f"case{number}") for device in DEVICES for number in range(23)]
    cases: Any = [Case(one, OPS, sampled=5) for one in ids]
    taken = values(set(_sample(cases)))
    assert {one[0] for one in taken} == set(DEVICES)
    assert len(taken) == 5 * len(DEVICES)
    assert taken == values(set(_sample(cases[::-1])))
    assert len(_sample([case(*one) for one in ids])) == len(ids)
