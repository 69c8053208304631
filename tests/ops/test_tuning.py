"""Choosing between kernels: by rule, by what was found before, and by trying. No test looks at real times."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.config import tune_setting
from dl4all.errors import ConfigError, DeviceLostError, OutOfMemoryError, ShaderError
from dl4all.ops import matvec, tuning
from dl4all.ops.base import TensorBase, from_host
from dl4all.ops.dot import atomic_dot
from dl4all.ops.gemm import PROBLEMS as PRODUCTS
from dl4all.ops.gemm import SPACE as GEMM
from dl4all.ops.tuning import SPACES, Space, Work, choose
from dl4all.runtime import records
from tests.conftest import REPOSITORY, need

RIGHT = np.array([1.0, -2.0, 4.0], np.float32)
SECONDS = 1000.0


class Bench:
    """A space whose candidates cost what they are told to, on a clock that only they move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.device = dl.device("cpu")
        self.folder = folder
        self.now = 0.0
        self.cost = {"usual": 1.0, "other": 2.0, "third": 3.0}
        self.does: dict[str, Callable[[Any], None]] = {}
        self.ran: list[str] = []
        self.asked = 0
        self.refuses: set[str] = set()
        self.space = self.make()
        monkeypatch.setattr(tuning, "clock", lambda: self.now)
        monkeypatch.setattr(tuning, "sample", self.sample)

    def make(self, version: int = 1, **more: str) -> Space[int, str]:
        return Space(
            "test",
            {name: name for name in self.cost} | more,
            key=lambda q: (q.bit_length(),),
            rule=self.rule,
            fits=lambda device, candidate, key: candidate not in self.refuses,
            prepare=self.prepare,
            version=version,
        )

    def rule(self, info: Any, key: Any) -> tuple[str, ...]:
        self.asked += 1
        return "usual", "other"

    def prepare(self, device: dl.Device, problem: int) -> Work[str]:
        out: TensorBase = from_host(TensorBase, np.zeros(3, np.float32), device, copy=True)
        return Work(functools.partial(self.run, out), out)

    def run(self, out: TensorBase, candidate: str) -> None:
        self.ran.append(candidate)
        self.now += self.cost[candidate]
        result = out.on_host()
        result[:] = RIGHT
        self.does.get(candidate, lambda result: None)(result)

    def sample(self, work: Any, times: int, device: dl.Device) -> float:
        begun = self.now
        work()
        return self.now - begun

    def again(self) -> None:
        """As another process would find things."""
        self.device.tables.pop("tuning", None)
        self.ran.clear()

    def choose(self, problem: int = 5) -> str:
        return choose(self.space, self.device, problem)

    def tune(self, problem: int = 5, seconds: float = SECONDS) -> tuning.Outcome:
        return tuning.tune(self.space, self.device, problem, seconds)

    @property
    def results(self) -> list[Path]:
        return list(self.folder.glob("tuning/*/test/*.json"))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("DL4ALL_TUNE", raising=False)
    monkeypatch.chdir(tmp_path)
    cpu = dl.device("cpu")
    monkeypatch.setattr(cpu, "tables", dict(cpu.tables))
    cpu.tables.pop("tuning", None)
    return Bench(monkeypatch, tmp_path)


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

    monkeypatch.setattr(tuning, "sample", sample)
    assert bench.tune().chosen == "third"


def test_what_is_not_faster_at_its_best_does_not_win(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """In most rounds, though: something held the other one up."""
    count = iter(range(10_000))

    def sample(work: Any, times: int, device: dl.Device) -> float:
        bench.now += 1
        if work.args[-1] == "usual":
            return 0.5 if next(count) == 9 else 1.0
        return 0.6 if work.args[-1] == "third" else 9.0

    monkeypatch.setattr(tuning, "sample", sample)
    assert bench.tune().chosen == "usual"


def test_what_is_slower_in_many_rounds_does_not_win(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = iter(range(10_000))

    def sample(work: Any, times: int, device: dl.Device) -> float:
        bench.now += 1
        if work.args[-1] == "third":
            return 0.5 if next(rounds) % 5 < 3 else 1.2
        return 1.0

    monkeypatch.setattr(tuning, "sample", sample)
    assert bench.tune().chosen == "usual"


def test_what_is_much_slower_is_not_tried_often(bench: Bench) -> None:
    bench.cost |= {"other": 100.0, "third": 1.1}
    bench.tune(seconds=10_000)
    assert bench.ran.count("other") == 2  # to compare its result, and once for its time
    assert bench.ran.count("usual") >= tuning.LEAST_ROUNDS


def test_candidates_that_do_not_fit_are_not_run(bench: Bench) -> None:
    bench.cost["third"] = 0.1
    bench.refuses.add("third")
    found = bench.tune()
    assert "third" not in bench.ran
    assert found.chosen == "usual"
    assert "third" not in found.seconds


# What is on disk


def lucky(bench: Bench) -> None:
    bench.cost["third"] = 0.5
    assert bench.tune().chosen == "third"
    bench.again()


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
    words = tuning._words(bench.space, bench.device, (3,))
    assert records.file(str(file.parent.relative_to(bench.folder)), words) == file
    records.write(file, words, content)
    assert bench.choose() == "usual"


def test_results_can_be_forgotten(bench: Bench) -> None:
    lucky(bench)
    bench.tune(100)
    assert tuning.forget(bench.device, "test") == 2
    assert bench.choose() == "usual"
    assert tuning.forget(bench.device, "test") == 0


STORE = """
import sys
import dl4all as dl
from dl4all.ops import tuning
device = dl.device("cpu")
space = tuning.Space("test", {"a": 1, "b": 2}, lambda q: (q,), lambda *_: ("a",), lambda *_: True, None)
for q in range(40):
    for name in (sys.argv[1], "both"):
        words = tuning._words(space, device, (name, q))
        file = tuning.records.file(tuning._folder(device, "test"), words)
        tuning.records.write(file, words, {"chosen": "b"})
"""


def test_processes_that_tune_at_once_lose_nothing(bench: Bench) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    processes = [
        subprocess.Popen([sys.executable, "-c", STORE, name], env=environment) for name in ("one", "two")
    ]
    assert [process.wait() for process in processes] == [0, 0]
    space = Space[Any, int](
        "test",
        {"a": 1, "b": 2},
        lambda q: q,
        lambda *_: ("a",),
        lambda *_: True,
        bench.prepare,  # type: ignore[arg-type]
    )
    assert len(bench.results) == 120
    assert {choose(space, bench.device, (n, q)) for n in ("one", "two", "both") for q in range(40)} == {2}


# Modes


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
    monkeypatch.setattr(tuning, "LAZY_SECONDS", SECONDS)
    monkeypatch.setattr(tuning, "_State", functools.partial(tuning._State, seconds=9 * SECONDS))
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
    monkeypatch.setattr(tuning, "LAZY_SECONDS", each)
    monkeypatch.setattr(tuning, "_State", functools.partial(tuning._State, seconds=total))


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
    with records.alone(1.0) as may:
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
    assert tuning._refused(bench.space, bench.device, dead=True) == (
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


# Candidates that are no good


def fail(result: Any) -> None:
    raise ShaderError("it does not compile")


WRONG: dict[str, tuple[Callable[[Any], None], str]] = {
    "a digit": (lambda result: np.multiply(result, 1.0001, out=result), "differs from usual by 1.0e-04"),
    "one element": (lambda result: result.__setitem__(0, 1.1), "differs from usual by 2.5e-02"),
    "no number": (lambda result: result.__setitem__(1, np.nan), "differs from usual by nan"),
    "infinity": (lambda result: result.__setitem__(1, np.inf), "differs from usual by inf"),
    "nothing": (lambda result: result.view(np.uint32).fill(tuning.NAN), "differs from usual by nan"),
    "an error": (fail, "failed: it does not compile"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_candidate_is_never_chosen(bench: Bench, wrong: str) -> None:
    does, words = WRONG[wrong]
    bench.cost["third"] = 0.01
    bench.does["third"] = does
    found = bench.tune()
    assert found.chosen == "usual"
    assert found.refused["third"].startswith(words)
    assert bench.ran.count("third") == 1
    bench.again()
    bench.does.clear()
    assert bench.tune(100).refused == found.refused  # nor for another class, nor in another process
    assert bench.ran.count("third") == 0
    tuning.forget(bench.device, "test")
    assert bench.tune().chosen == "third"


def test_what_turns_out_to_be_wrong_later_is_not_used_where_it_won(bench: Bench) -> None:
    lucky(bench)
    bench.does["third"] = WRONG["a digit"][0]
    bench.tune(100)
    bench.again()
    assert bench.choose() == "usual"


def test_rounding_is_not_wrong(bench: Bench) -> None:
    bench.cost["third"] = 0.5
    bench.does["third"] = lambda result: np.nextafter(result, np.float32(9), out=result)
    assert bench.tune().chosen == "third"


def test_a_rule_that_computes_no_numbers_refuses_nobody(bench: Bench) -> None:
    bench.does["usual"] = lambda result: result.fill(np.nan)
    with pytest.raises(dl.errors.DeviceError, match=r"^\[test\] usual computes no numbers on cpu"):
        bench.tune()
    assert tuning._refused(bench.space, bench.device) == {}


DIES = """
import os
import numpy as np
import dl4all as dl
from dl4all.ops import tuning
from dl4all.ops.base import TensorBase, from_host

def prepare(device, q):
    out = from_host(TensorBase, np.ones(3, np.float32), device, copy=True)
    def run(candidate):
        if candidate == "third":
            os.kill(os.getpid(), 9)
        out.on_host()[:] = 1
    return tuning.Work(run, out)

names = {name: name for name in ("usual", "other", "third")}
space = tuning.Space("test", names, lambda q: (3,), lambda *_: ("usual",), lambda *_: True, prepare)
tuning.tune(space, dl.device("cpu"), 5, 10.0)
"""


def test_a_candidate_that_ends_the_process_is_not_tried_again(bench: Bench) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", DIES], env=environment, check=False)
    assert done.returncode == -9
    bench.cost["third"] = 0.01
    found = bench.tune()
    assert found.refused == {"third": "the process ended while it was tried"}
    assert found.chosen == "usual"
    assert "third" not in bench.ran
    bench.again()
    assert bench.tune(100).refused == found.refused


def test_an_interrupted_search_is_no_evidence(bench: Bench) -> None:
    def interrupt(result: Any) -> None:
        raise KeyboardInterrupt

    bench.does["other"] = interrupt
    with pytest.raises(KeyboardInterrupt):
        bench.tune()
    bench.does.clear()
    bench.cost["other"] = 0.5
    assert bench.tune().chosen == "other"


# What is declared


def test_a_name_is_declared_once() -> None:
    assert {"gemm", "linear"} <= SPACES.keys()
    with pytest.raises(ValueError, match=r"^\[gemm\] is declared twice$"):
        tuning.declare(GEMM)


@pytest.mark.vulkan
@pytest.mark.parametrize(
    ("name", "label"),
    [
        *(("gemm", label) for label, q in PRODUCTS if q.m * q.n * q.k * q.batch < 2**25),
        *(("linear", label) for label, q in matvec.PROBLEMS if q.features * q.inner < 2**20),
    ],
)
def test_all_candidates_agree(name: str, label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a real device, with what it can run: a tile that was wrong would be refused."""
    need("vulkan:0")
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuning, "sample", lambda work, times, device: 1.0)
    space, place = SPACES[name], dl.device("vulkan:0")
    problem = dict(space.problems)[label]
    found = tuning.search(space, place, problem, 1000.0)
    key = space.key(problem)
    assert found.refused == {}
    assert found.chosen == found.usual
    assert set(found.seconds) == {n for n, c in space.candidates.items() if space.fits(place, c, key)}


@pytest.mark.vulkan
@pytest.mark.parametrize("way", matvec.WAYS)
@pytest.mark.parametrize(("rows", "features", "inner"), [(1, 1, 1), (1, 130, 67), (5, 3, 300), (4, 70, 13)])
@pytest.mark.parametrize("biased", [False, True])
def test_every_way_to_multiply_a_few_rows(
    way: str, rows: int, features: int, inner: int, biased: bool
) -> None:
    need("vulkan:0")
    rng = np.random.default_rng(rows + features + inner)
    x, w = rng.standard_normal((rows, inner), np.float32), rng.standard_normal((features, inner), np.float32)
    bias = rng.standard_normal(features, np.float32)
    place = [dl.from_numpy(values, "vulkan:0") for values in (x, w, bias)]
    out = dl.full((rows, features), float("nan"), device="vulkan:0")
    matvec.matvec_with(matvec.WAYS[way], out, place[0], place[1], place[2] if biased else None, rows)
    expected = x.astype(np.float64) @ w.T + (bias if biased else 0)
    np.testing.assert_allclose(out.numpy(), expected, atol=4e-7 * (inner + 4) * 3)


@pytest.mark.vulkan
@pytest.mark.parametrize("size", [1, 127, 70_001])
def test_atomic_additions_give_the_same_sum(size: int) -> None:
    """Within rounding: their order is another one each time."""
    need("vulkan:0")
    rng = np.random.default_rng(size)
    x, y = (rng.uniform(0.5, 2, size).astype(np.float32) for _ in range(2))
    out = dl.full((), float("nan"), device="vulkan:0")
    atomic_dot(out, dl.from_numpy(x, "vulkan:0"), dl.from_numpy(y, "vulkan:0"))
    np.testing.assert_allclose(out.item(), x.astype(np.float64) @ y, rtol=1e-5)
