"""Choosing between kernels: by rule, and by what was found before and is kept on disk."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
from typing import Any

import pytest

import dl4all as dl
from dl4all.ops.core.kernels import autotune
from dl4all.ops.core.kernels.autotune import TuningSpace, choose
from dl4all.runtime.records import device_records
from tests.conftest import REPOSITORY
from tests.support.autotune_harness import Bench, lucky
from tests.support.forked_process import ForkedProcess

# Which


def test_the_rule_decides_where_nothing_was_tuned(bench: Bench) -> None:
    assert [bench.choose(n) for n in (5, 6, 7, 8, 5)] == ["usual"] * 5
    assert bench.asked == 2  # once for each class
    assert bench.ran == []


def test_the_first_of_the_rule_that_fits(bench: Bench) -> None:
    bench.refuses.add("usual")
    assert bench.choose() == "other"
    bench.again()
    bench.refuses.add("other")
    with pytest.raises(
        dl.errors.ArgumentError, match=r"^\[test\] no kernel fits cpu for \(3,\); use the CPU$"
    ):
        bench.choose()


def test_what_was_found_is_used_by_this_process_and_the_next(bench: Bench) -> None:
    assert bench.choose() == "usual"
    bench.cost["third"] = 0.5
    found = bench.tune()
    assert (found.usual, found.chosen, found.finished, found.refused) == ("usual", "third", True, {})
    assert found.seconds["usual"] == 1.0
    assert found.seconds["third"] == 0.5
    assert bench.choose(6) == "third"
    bench.again()
    assert bench.choose(7) == "third"
    assert bench.choose(8) == "usual"  # of another class
    assert bench.ran == []


def test_more_classes_than_are_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was tuned is read again, and the rule is asked again."""
    monkeypatch.setattr(autotune, "MOST_CLASSES", 3)
    bench.again()
    lucky(bench)
    assert bench.choose() == "third"
    for problem in [1 << bits for bits in range(4, 40)]:
        assert bench.choose(problem) == "usual"
        state = bench.device.tables["tuning"]
        assert len(state.chosen) <= 3
        assert not state.unknown
    assert bench.choose() == "third"
    assert bench.ran == []


@pytest.mark.parametrize(("cost", "chosen"), [(0.97, "usual"), (0.90, "third"), (1.0, "usual")])
def test_only_what_is_clearly_faster_wins(bench: Bench, cost: float, chosen: str) -> None:
    bench.cost["third"] = cost
    assert bench.tune().chosen == chosen


def test_what_slows_everything_down_does_not_count(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third is a tenth faster, whatever the weather: most rounds are ten times as long as others."""
    cost = {"usual": 1.0, "other": 1.1, "third": 0.9}
    rounds = iter(range(10_000))
    weather = 1.0

    def sample(work: Any, times: int, device: dl.Device) -> float:
        nonlocal weather
        if work.args[-1] == "usual":
            bench.now += 1
            weather = 1.0 if next(rounds) % 3 == 0 else 10.0
        return cost[work.args[-1]] * weather

    monkeypatch.setattr(autotune, "sample", sample)
    assert bench.tune().chosen == "third"


def test_what_is_not_faster_at_its_best_does_not_win(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """In most rounds, though: something held the other one up."""
    count = iter(range(10_000))

    def sample(work: Any, times: int, device: dl.Device) -> float:
        bench.now += 1
        if work.args[-1] == "usual":
            return 0.5 if next(count) == 9 else 1.0
        return 0.6 if work.args[-1] == "third" else 9.0

    monkeypatch.setattr(autotune, "sample", sample)
    assert bench.tune().chosen == "usual"


def test_what_is_slower_in_many_rounds_does_not_win(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = iter(range(10_000))

    def sample(work: Any, times: int, device: dl.Device) -> float:
        bench.now += 1
        if work.args[-1] == "third":
            return 0.5 if next(rounds) % 5 < 3 else 1.2
        return 1.0

    monkeypatch.setattr(autotune, "sample", sample)
    assert bench.tune().chosen == "usual"


def test_what_is_much_slower_is_not_tried_often(bench: Bench) -> None:
    bench.cost |= {"other": 100.0, "third": 1.1}
    bench.tune(seconds=10_000)
    assert bench.ran.count("other") == 2  # to compare its result, and once for its time
    assert bench.ran.count("usual") >= autotune.MIN_ROUNDS


def test_candidates_that_do_not_fit_are_not_run(bench: Bench) -> None:
    bench.cost["third"] = 0.1
    bench.refuses.add("third")
    found = bench.tune()
    assert "third" not in bench.ran
    assert found.chosen == "usual"
    assert "third" not in found.seconds


# What is on disk


def test_results_are_of_a_device_a_driver_and_a_declaration(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    lucky(bench)
    info = bench.device.info
    for change in ({"uuid": "other"}, {"driver_version": "next"}, {"driver": "other"}):
        monkeypatch.setattr(bench.device, "info", dataclasses.replace(info, **change))  # type: ignore[arg-type]
        bench.again()
        assert bench.choose() == "usual"
    monkeypatch.setattr(bench.device, "info", info)
    for space in (bench.make(version=2), bench.make(fourth="fourth"), bench.make(third="changed")):
        bench.again()
        assert choose(space, bench.device, 5) == "usual"
    bench.again()
    assert bench.choose() == "third"


def test_a_candidate_that_fits_no_more_is_not_used(bench: Bench) -> None:
    lucky(bench)
    bench.refuses.add("third")
    assert bench.choose() == "usual"


@pytest.mark.parametrize("damage", ["nothing left", "cut short", "a bit", "zeros", "of another class"])
def test_a_damaged_result_is_left_out_with_a_warning(
    bench: Bench, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    lucky(bench)
    [file] = bench.results
    whole = file.read_bytes()
    bench.tune(100)
    [other] = set(bench.results) - {file}
    file.write_bytes(
        {
            "nothing left": b"",
            "cut short": whole[:-9],
            "a bit": whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:],
            "zeros": bytes(len(whole)),
            "of another class": other.read_bytes(),
        }[damage]
    )
    bench.again()
    with caplog.at_level(logging.WARNING, "dl4all"):
        assert bench.choose() == "usual"
        assert bench.choose() == "usual"
    [message] = [record.getMessage() for record in caplog.records]
    assert message.startswith("a result of tuning is left out, it is ")
    assert str(file) in message
    lucky(bench)
    assert bench.choose() == "third"


@pytest.mark.parametrize("content", [{}, {"chosen": "fifth"}, {"chosen": None}, {"chosen": ["third"]}])
def test_a_result_that_says_nothing_is_left_out(bench: Bench, content: dict[str, Any]) -> None:
    lucky(bench)
    [file] = bench.results
    words = autotune._words(bench.space, bench.device, (3,))
    assert device_records.file(str(file.parent.relative_to(bench.folder)), words) == file
    device_records.write(file, words, content)
    assert bench.choose() == "usual"


def test_results_can_be_forgotten(bench: Bench) -> None:
    lucky(bench)
    bench.tune(100)
    assert autotune.forget(bench.device, "test") == 2
    assert bench.choose() == "usual"
    assert autotune.forget(bench.device, "test") == 0


STORE = """
import sys
import dl4all as dl
from dl4all.ops.core import autotune
device = dl.device("cpu")
names = {"a": 1, "b": 2}
space = autotune.TuningSpace("test", names, lambda q: (q,), lambda *_: ("a",), lambda *_: True, None)
for q in range(40):
    for name in (sys.argv[1], "both"):
        words = autotune._words(space, device, (name, q))
        file = autotune.device_records.file(autotune._folder(device, "test"), words)
        autotune.device_records.write(file, words, {"chosen": "b"})
"""


def test_processes_that_tune_at_once_lose_nothing(bench: Bench) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    processes = [
        ForkedProcess([sys.executable, "-c", STORE, name], env=environment) for name in ("one", "two")
    ]
    assert [process.wait() for process in processes] == [0, 0]
    space = TuningSpace[Any, int](
        "test",
        {"a": 1, "b": 2},
        lambda q: q,
        lambda *_: ("a",),
        lambda *_: True,
        bench.prepare,  # type: ignore[arg-type]
    )
    assert len(bench.results) == 120
    assert {choose(space, bench.device, (n, q)) for n in ("one", "two", "both") for q in range(40)} == {2}
