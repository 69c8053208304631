"""The shares of folders in a run, and the table of where its time went."""

from __future__ import annotations

from tests.support.folder_shares import LINES, SHARES, excess, table


def test_the_table_of_folders() -> None:
    spent = {f"tests/{letter}": float(number) for number, letter in enumerate("abcdefghijklmnopqrstuvwxyz")}
    lines = table(spent, dict.fromkeys(spent, 3))
    assert len(lines) == LINES + 1
    assert lines[0].split() == ["25.0", "s", "3", "tests", "tests/z"]
    assert lines[-1].split() == ["15.0", "s", "18", "tests", "6", "others"]


def test_a_folder_has_no_more_cases_than_its_share() -> None:
    fits = [f"tests/io/test_files.py::test_{number}" for number in range(SHARES["tests/io"])]
    others = ["tests/docs/test_docs.py::test_it", "tests/ops/conv/test_fft.py::test_it"]
    assert excess([*fits, *others]) == {}
    assert excess([*fits, "tests/io/deep/test_more.py::test_it"]) == {"tests/io": len(fits) + 1}
    assert excess(["tests/new/test_it.py::test_it"]) == {"tests/new": 1}
