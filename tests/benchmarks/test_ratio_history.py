"""The history of the benchmarks' ratios: what is taken from a benchmark's JSON, kept, compared and drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from benchmarks import ratio_history
from benchmarks.ratio_history import BENCHMARKS, Entry, append, change, main, read, series, table

FOUND: dict[str, Any] = {
    "resnet18": {"milliseconds_per_image": {
        "PyTorch CPU": {"median": 20.0, "fastest": 1.0}, "cpu": {"median": 30.0, "fastest": 2.0},
        "vulkan:0": {"median": 70.0, "fastest": 3.0}}},
    "training": {"mlp": {"pytorch": 2.0, "cpu": 3.0, "vulkan:0": 5.0}, "gpt": {"pytorch": 8.0, "cpu": 4.0}},
    "optimizers": {"sgd": {"pytorch": {"ms": 4.0, "host": 9.0, "dispatches": 0},
                           "cpu": {"ms": 6.0, "host": 9.0, "dispatches": 0}}},
}  # fmt: skip
RATIOS = {
    "resnet18": {"cpu": 1.5, "vulkan:0": 3.5},
    "training": {"mlp cpu": 1.5, "mlp vulkan:0": 2.5, "gpt cpu": 0.5},
    "optimizers": {"sgd cpu": 1.5},
}


def entry(day: int, ratio: float, name: str = "training mlp cpu", machine: str = "a board") -> Entry:
    return Entry(f"2026-03-{day:02}T03:17:00+00:00", f"c{day}", machine, name, ratio)


def test_every_benchmark_has_an_example_here() -> None:
    assert set(BENCHMARKS) == set(FOUND) == set(RATIOS)


@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_ratios_are_times_over_those_of_pytorch(name: str) -> None:
    assert BENCHMARKS[name].ratios(FOUND[name]) == RATIOS[name]


def test_a_history_is_read_as_it_was_written_in_the_order_of_time(tmp_path: Path) -> None:
    file = tmp_path / "new" / "ratios.jsonl"
    assert read(file) == []
    append(file, [entry(2, 1.25)])
    append(file, [entry(1, 3.0), entry(3, 2.0)])
    assert read(file) == [entry(1, 3.0), entry(2, 1.25), entry(3, 2.0)]


@pytest.mark.parametrize(
    "line",
    [
        '{"date": "2026-03-01"}',
        "not json",
        '{"date": "", "commit": "", "machine": "", "name": "", "ratio": null}',
    ],
)
def test_a_broken_line_is_named(line: str, tmp_path: Path) -> None:
    file = tmp_path / "ratios.jsonl"
    append(file, [entry(1, 1.5)])
    with file.open("a") as out:
        out.write(line + "\n")
    with pytest.raises(click.ClickException, match=r"ratios\.jsonl:2: not an entry"):
        read(file)


def test_a_change_is_against_the_median_of_the_ten_before() -> None:
    assert change([2.0]) is None
    assert change([100.0, *[2.0] * 5, *[4.0] * 5, 6.0]) == pytest.approx(1.0)
    assert change([1.0, 3.0, 8.0, 1.5]) == pytest.approx(-0.5)


def test_machines_are_kept_apart() -> None:
    entries = [entry(1, 2.0), entry(2, 9.0, machine="another"), entry(3, 3.0)]
    assert [one.ratio for one in series(entries)["a board", "training mlp cpu"]] == [2.0, 3.0]
    text = table(entries)
    assert "| training mlp cpu | 3.00 | +50% | 2 | c3 | 2026-03-03 |" in text
    assert "| training mlp cpu | 9.00 |  | 1 | c2 | 2026-03-02 |" in text
    assert text.index("## a board") < text.index("3.00") < text.index("## another") < text.index("9.00")


def test_a_run_adds_to_the_history_and_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = [
        {"training mlp cpu": 2.0, "resnet18 cpu": 1.5},
        {"training mlp cpu": 1.0, "resnet18 cpu": 1.5},
    ]
    monkeypatch.setattr(ratio_history, "measure", lambda devices: measured.pop(0))
    monkeypatch.setattr("os.getloadavg", lambda: (0.5, 9.0, 9.0))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    monkeypatch.setenv("GITHUB_SHA", "0123456789abcdef")
    folder = tmp_path / "kept"
    arguments = ["--folder", str(folder), "--device", "cpu"]
    for count in (2, 4):
        done = CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert done.exit_code == 0
        assert len((folder / "ratios.jsonl").read_text().splitlines()) == count
    kept = json.loads((folder / "ratios.jsonl").read_text().splitlines()[0])
    assert kept.pop("date").endswith("+00:00")
    assert kept.pop("machine")
    assert kept == {"commit": "012345678", "name": "training mlp cpu", "ratio": 2.0}
    assert "| training mlp cpu | 1.00 | -50% | 2 | 012345678 |" in (folder / "trend.md").read_text()
    assert (folder / "trend.md").read_text() in (tmp_path / "summary.md").read_text()
    assert (folder / "trend.png").read_bytes().startswith(b"\x89PNG")


def test_a_busy_machine_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (4.5, 0.0, 0.0))
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    done = CliRunner().invoke(main, ["--folder", str(tmp_path / "kept")])
    assert done.exit_code == 1
    assert "busy (load 4.5 on 4 cores)" in done.output
    assert not (tmp_path / "kept").exists()


def test_nothing_to_show_is_said(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["--folder", str(tmp_path), "--show-only"])
    assert done.exit_code == 1
    assert "has no entries yet" in done.output


def test_a_benchmark_that_fails_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "resnet18.py").write_text("raise SystemExit(3)")
    monkeypatch.setattr(ratio_history, "HERE", tmp_path)
    with pytest.raises(click.ClickException, match=r"resnet18\.py ended with exit status 3"):
        ratio_history.measure(("cpu",))
