"""Devices of a test process that has grown are closed, but not under a fixture that lives on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import process_memory

ONE, OTHER = Path("one.py"), Path("other.py")


@pytest.mark.parametrize(
    ("path", "following", "grown", "closed"),
    [
        (ONE, ONE, True, 0),  # its server may be asked again, also where the next test does without
        (ONE, OTHER, True, 1),
        (OTHER, OTHER, True, 1),
        (OTHER, ONE, False, 0),
        (ONE, None, True, 0),
    ],
)
def test_between_two_tests(
    path: Path, following: Path | None, grown: bool, closed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(process_memory, "_with_fixtures", {ONE})
    monkeypatch.setattr(process_memory, "_peak", (0, ""))
    monkeypatch.setattr(process_memory, "_resident", lambda: 1 << 50 if grown else 0)
    monkeypatch.setattr(process_memory, "close_devices", lambda: calls.append(1))
    item: Any = SimpleNamespace(path=path, nodeid=f"{path}::test_it")
    following_item: Any = None if following is None else SimpleNamespace(path=following)
    teardown = process_memory.pytest_runtest_teardown(item, following_item)
    next(teardown)
    assert calls == []
    with pytest.raises(StopIteration):
        next(teardown)
    assert len(calls) == closed
