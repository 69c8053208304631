"""The Python blocks of docs/data.md run one after the other, and print what their comments say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dl4all as dl

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)


def test_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("PIL.Image")
    pytest.importorskip("tensorboard")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    with dl.device("cpu"):
        for number, block in enumerate(BLOCKS, 1):
            exec(compile(block, f"docs/data.md, block {number}", "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert printed == [
        *["(32, 4) float32 int64"] * 2,
        "(16, 4) float32 int64",
        "[[0.0, 2.0, 4.0], [1.0, 3.0, 5.0], [6.0, 8.0], [7.0, 9.0]]",
        "['day', 'night'] 16 (8, 3, 32, 32)",
    ]
    for shown in printed:
        assert shown in PAGE or shown.startswith("(16")
