"""The list of faults that tools/faults.py puts into the code fits the code, and is broad."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.parts import PARTS
from tools.faults import ROOT, STAGES, Fault, apply, new_record, pending, read_faults, stages_of, table

FAULTS = read_faults()


def problem(fault: Fault, root: Path = ROOT) -> str:
    """What keeps a fault from being one."""
    count = (root / fault.file).read_text("utf-8").count(fault.old)
    if count != 1:
        return f"its old text occurs {count} times in {fault.file}"
    if fault.new == fault.old:
        return "it changes nothing"
    tests = [argument for argument in fault.near if argument.startswith(("tests/", "dl4all/testing/"))]
    missing = [name for name in tests if not (root / name.partition("::")[0]).exists()]
    return f"there is no {missing[0]}" if missing else "" if tests else "it names no tests"


def test_every_fault_can_be_put_into_its_file() -> None:
    assert {fault.name: problem(fault) for fault in FAULTS if problem(fault)} == {}


def test_the_list_is_broad() -> None:
    assert len(FAULTS) >= 60
    assert [name for name, count in Counter(fault.name for fault in FAULTS).items() if count > 1] == []
    parts = {fault.file.partition("/")[0] for fault in FAULTS}
    assert parts == {"dl4all", *PARTS}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with a file and a test for it."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_sums.py").touch()
    (tmp_path / "sums.py").write_text("total = a + b\ncount = a + 1\n")
    return tmp_path


def entry(old: str, new: str = "a - b", **more: dict[str, str]) -> Fault:
    return Fault("minus", "sign", "sums.py", old, new, ("tests/test_sums.py",), **more)


def test_a_fault_that_does_not_fit_is_seen(tree: Path) -> None:
    assert problem(entry("a + b"), tree) == ""
    assert problem(entry("a + "), tree) == "its old text occurs 2 times in sums.py"
    assert problem(entry("a * b"), tree) == "its old text occurs 0 times in sums.py"
    assert problem(entry("a + b", "a + b"), tree) == "it changes nothing"
    assert (
        problem(Fault("x", "x", "sums.py", "a + b", "", ("tests/gone.py",)), tree)
        == "there is no tests/gone.py"
    )
    assert problem(Fault("x", "x", "sums.py", "a + b", "", ("-k", "sums")), tree) == "it names no tests"


def test_a_fault_is_put_into_a_copy(tree: Path) -> None:
    apply(entry("a + b"), tree)
    assert (tree / "sums.py").read_text() == "total = a - b\ncount = a + 1\n"


def test_stages() -> None:
    """What validation sees is asked for by the fault; the rest follow each other until one sees it."""
    plain, layers = entry("a + b"), entry("a + b", env={"DL4ALL_VALIDATION": "1"})
    assert [stage.name for stage in stages_of(plain)] == ["near", "short", "long"]
    assert [stage.name for stage in stages_of(layers)] == list(STAGES)
    assert [stage.name for stage in stages_of(layers, "near")] == ["near"]
    assert stages_of(layers)[0].env == layers.env
    record = new_record(plain)
    assert pending(plain, record, "near")
    record["passed"].append("near")
    assert not pending(plain, record, "near")
    assert pending(plain, record, "long")
    record["caught_by"] = "tests/test_sums.py::test_minus"
    assert not pending(plain, record, "long")


def test_the_table_has_a_row_for_each_fault() -> None:
    caught, missed, new = (
        entry("a + b"),
        Fault("missed", "sign", "", "", "", ()),
        Fault("new", "x", "", "", "", ()),
    )
    seen = {"caught_by": "tests/test_sums.py::test_minus[a|b]", "stage": "near", "seconds": 7.4}
    records = {
        "minus": {**new_record(caught), **seen},
        "missed": {**new_record(missed), "passed": ["near", "short"], "seconds": 600.0},
    }
    lines = table([caught, missed, new], records).splitlines()
    assert lines[0].startswith("2 faults: caught 1 by near, 0 by short")
    assert lines[4:] == [
        r"| minus | sign | `tests/test_sums.py::test_minus[a\|b]` | near | 7 |",
        "| missed | sign | nothing in near, short | - | 600 |",
    ]
