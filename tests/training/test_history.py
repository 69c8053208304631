"""The rows of a run and their file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dl4all.training import History


def test_a_row_that_could_not_be_written_comes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the file; half a line is no line of it afterwards."""
    file = tmp_path / "history.jsonl"
    history = History(file)
    history.add({"epoch": 1, "loss": 0.5})
    open_file = Path.open

    def full(self: Path, mode: str = "r", **options: Any) -> Any:
        with open_file(self, mode, **options) as stream:
            stream.write('{"epo')
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*history\.jsonl'"):
        history.add({"epoch": 2, "loss": 0.25})
    monkeypatch.setattr(Path, "open", open_file)
    assert file.read_text().endswith('{"epo')
    history.add({"epoch": 3, "loss": 0.125})
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert rows == history.rows
    assert history["loss"] == [0.5, 0.25, 0.125]
