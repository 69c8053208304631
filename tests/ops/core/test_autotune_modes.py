"""When candidates are tried: never, when asked, or when first needed, within budgets."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest

import dl4all as dl
from dl4all.config import tune_setting
from dl4all.errors import ConfigError, DeviceLostError, OutOfMemoryError
from dl4all.ops.core.kernels import autotune
from dl4all.ops.core.kernels.autotune import choose
from dl4all.runtime.records import device_records
from tests.support.autotune_harness import SECONDS, Bench, lucky


def test_off_follows_the_rules_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    lucky(bench)
    monkeypatch.setenv("DL4ALL_TUNE", "0")
    assert bench.choose() == "usual"
    assert bench.ran == []
    assert bench.tune().chosen == "third"  # it is kept for others
    assert bench.choose() == "usual"


@pytest.mark.parametrize("way", ["DL4ALL_TUNE=lazy", "DL4ALL_TUNE=1", "file"])
def test_lazy_tries_once_for_each_class(bench: Bench, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "file":
        (bench.folder / "dl4all.toml").write_text("tune = true\n")
    else:
        monkeypatch.setenv("DL4ALL_TUNE", way.partition("=")[2])
    monkeypatch.setattr(autotune, "LAZY_SECONDS", SECONDS)
    monkeypatch.setattr(
        autotune, "_TuningState", functools.partial(autotune._TuningState, seconds=9 * SECONDS)
    )
    bench.cost["third"] = 0.5
    assert bench.choose() == "third"
    assert bench.ran
    bench.ran.clear()
    assert bench.choose(6) == "third"
    assert bench.ran == []
    assert bench.choose(100) == "third"
    assert bench.ran
    bench.again()
    assert bench.choose() == "third"
    assert bench.ran == []


def lazily(monkeypatch: pytest.MonkeyPatch, each: float, total: float) -> None:
    monkeypatch.setenv("DL4ALL_TUNE", "lazy")
    monkeypatch.setattr(autotune, "LAZY_SECONDS", each)
    monkeypatch.setattr(autotune, "_TuningState", functools.partial(autotune._TuningState, seconds=total))


def test_lazy_keeps_to_its_budgets(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.cost |= {"usual": 0.01, "other": 0.012, "third": 0.004}
    lazily(monkeypatch, each=1.0, total=2.5)
    spent = []
    for bits in range(1, 30):
        before = bench.now
        bench.choose(2**bits)
        spent.append(bench.now - before)
    assert max(spent) <= 1.0 + 0.03  # what is under way is finished
    assert 2.0 < sum(spent) <= 2.5 + 0.03 or spent[-1] == 0
    assert spent[-1] == 0


def test_a_class_without_time_goes_by_the_rule_and_is_not_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.cost["third"] = 0.1
    lazily(monkeypatch, each=3.0, total=100.0)
    assert bench.choose() == "usual"
    assert bench.results == []
    bench.ran.clear()
    assert bench.choose() == "usual"
    assert bench.ran == []  # not twice in a process


def test_lazy_does_not_measure_within_a_profile(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.cost["third"] = 0.5
    lazily(monkeypatch, each=SECONDS, total=SECONDS)
    with dl.profile():
        assert bench.choose() == "usual"
    assert bench.ran == []
    assert bench.choose() == "third"


def test_lazy_does_not_measure_while_another_process_does(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.cost["third"] = 0.5
    lazily(monkeypatch, each=SECONDS, total=SECONDS)
    with device_records.alone(1.0) as may:
        assert may
        assert bench.choose() == "usual"
    assert bench.ran == []
    assert bench.choose() == "third"


def test_a_candidate_made_of_others_is_measured_as_they_are_now(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the inner search would be part of the time."""
    inner = dataclasses.replace(bench.space, name="inner")
    chosen = []
    bench.does["third"] = lambda _: chosen.append(choose(inner, bench.device, 5))
    lazily(monkeypatch, each=SECONDS, total=9 * SECONDS)
    bench.cost["third"] = 0.5
    assert bench.choose() == "third"
    assert set(chosen) == {"usual"}
    bench.does.clear()
    assert choose(inner, bench.device, 5) == "third"


@pytest.mark.parametrize("error", [OutOfMemoryError("full"), DeviceLostError("gone")])
def test_lazy_survives_what_goes_wrong(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(result: Any) -> None:
        raise error

    bench.does["other"] = fail
    lazily(monkeypatch, each=SECONDS, total=9 * SECONDS)
    assert bench.choose() == "usual"
    bench.again()
    bench.does.clear()
    assert autotune._refused(bench.space, bench.device, dead=True) == (
        {"other": "the process ended while it was tried"} if isinstance(error, DeviceLostError) else {}
    )


def test_lazy_without_a_folder_to_write_goes_by_the_rule(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench.folder / "file").write_text("")
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(bench.folder / "file"))
    lazily(monkeypatch, each=SECONDS, total=9 * SECONDS)
    assert bench.choose() == "usual"


@pytest.mark.parametrize(
    ("variable", "file", "mode"),
    [
        (None, None, "kept"), ("", None, "kept"), ("0", None, "off"), ("1", None, "lazy"),
        ("lazy", None, "lazy"), (None, "tune = true", "lazy"), (None, "tune = false", "off"),
        ("", "tune = false", "off"),
        ("lazy", "tune = false", "lazy"), ("0", "tune = true", "off"), (None, 'device = "cpu"', "kept"),
    ],
)  # fmt: skip
def test_the_setting(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, variable: str | None, file: str | None, mode: str
) -> None:
    if variable is not None:
        monkeypatch.setenv("DL4ALL_TUNE", variable)
    if file is not None:
        (bench.folder / "dl4all.toml").write_text(file)
    assert tune_setting() == mode


@pytest.mark.parametrize("value", ["no", "2", "Lazy", " 0"])
def test_other_words_are_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("DL4ALL_TUNE", value)
    with pytest.raises(ConfigError, match=rf"^DL4ALL_TUNE must be 0, 1, lazy or empty, not '{value}'$"):
        bench.choose()


def test_another_word_in_the_file_is_refused(bench: Bench) -> None:
    (bench.folder / "dl4all.toml").write_text('tune = "lazy"\n')
    with pytest.raises(ConfigError, match=r"tune must be true or false, not 'lazy'$"):
        bench.choose()
