"""Searches: whatever objectives, workers and storages do, finished trials stay and the search ends."""

from __future__ import annotations

import functools
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import psutil
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, ConfigError, DeviceError, FileFormatError
from dl4all.search import storage as storages
from dl4all.search.study import counts
from tests.search.spaces import flat
from tests.support.forked_process import SEARCH, ForkedProcess, run_forked

pytestmark = pytest.mark.usefixtures("deadline")
started = functools.partial(ForkedProcess, preload=SEARCH)
run = functools.partial(dl.search.run, devices=["cpu"], algorithm="random", seed=0)
WIDTHS = dl.arange(20.0)


def net(s: dl.search.Choices) -> dl.nn.Module:
    return dl.nn.Linear(s.integer("inputs", 1, 30), 2)


def size(model: Any, trial: Any) -> float:
    return float(model.in_features)


def states(study: optuna.Study) -> dict[str, int]:
    names = [trial.state.name for trial in study.trials]
    return {name: names.count(name) for name in sorted(set(names))}


def test_objectives_that_fail_let_their_trial_fail() -> None:
    def objective(model: Any, trial: Any) -> Any:
        answers = [
            1.0,
            dl.tensor(2.0),
            np.float32(3),
            True,
            None,
            float("nan"),
            "four",
            (1.0, 2.0),
            [5.0],
            "6",
        ]
        if trial.number == len(answers):
            raise KeyError("of mine")
        if trial.number == len(answers) + 1:
            dl.zeros(1 << 43)
        if trial.number == len(answers) + 2:
            raise optuna.TrialPruned
        return answers[trial.number] if trial.number < len(answers) else float("inf")

    study = run(net, objective, trials=14)
    assert [trial.value for trial in study.trials] == [
        1.0, 2.0, 3.0, 1.0, None, None, None, None, 5.0, 6.0, None, None, None, float("inf")
    ]  # fmt: skip
    errors = [trial.user_attrs.get("error", "").strip().splitlines()[-1:] for trial in study.trials]
    assert errors[4] == ["ValueError: [search] the objective is to return a number, it returned None"]
    assert errors[5][0].endswith("it returned nan")
    assert errors[7][0].endswith("it returned (1.0, 2.0)")
    assert errors[10] == ["KeyError: 'of mine'"]
    assert "OutOfMemoryError" in errors[11][0]
    assert states(study) == {"COMPLETE": 7, "FAIL": 6, "PRUNED": 1}


def test_networks_that_cannot_be_made_fail() -> None:
    def odd(s: dl.search.Choices) -> dl.nn.Module:
        width = s.integer("width", 1, 10)
        return dl.nn.MultiheadAttention(width * 4 + s.choice("more", [0, 1]), 4)

    study = run(odd, lambda model, trial: 1.0, trials=20)
    assert 0 < states(study)["FAIL"] < 20 == len(study.trials)
    assert all("heads" in t.user_attrs["error"] for t in study.trials if t.state.name == "FAIL")
    assert not dl.search.Space(odd).exact


def test_several_objectives_have_a_front() -> None:
    study = run(
        net, lambda model, trial: (model.in_features, abs(model.in_features - 10)), trials=30,
        algorithm="nsga2", directions=["maximize", "minimize"],
    )  # fmt: skip
    front = {tuple(trial.values) for trial in study.best_trials}
    assert all(inputs >= 10 for inputs, _ in front)
    assert len(front) > 2


def test_a_seed_gives_the_same_trials_and_going_on_others(tmp_path: Path) -> None:
    first, second = (run(flat, lambda *_: 0.0, trials=12) for _ in range(2))
    assert [t.params for t in first.trials] == [t.params for t in second.trials]
    storage = tmp_path / "study.log"
    run(flat, lambda *_: 0.0, trials=12, storage=storage)
    longer = run(flat, lambda *_: 0.0, trials=24, storage=storage, resume=True)
    assert [t.params for t in longer.trials[:12]] == [t.params for t in first.trials]
    assert [t.params for t in longer.trials[12:]] != [t.params for t in first.trials]
    assert len(run(flat, lambda *_: 0.0, trials=20, storage=storage, resume=True).trials) == 24


def test_the_device_of_a_trial_is_the_default_one(device: str) -> None:
    before = dl.get_default_device()
    study = dl.search.run(
        net, lambda model, trial: float(str(model.weight.device) == device == str(dl.zeros(1).device)),
        devices=[device], trials=3,
    )  # fmt: skip
    assert [trial.value for trial in study.trials] == [1.0, 1.0, 1.0]
    assert {trial.user_attrs["device"] for trial in study.trials} == {device}
    assert dl.get_default_device() is before


@pytest.mark.parametrize("workers", [1, 2])
def test_networks_above_the_limits_are_not_trained(workers: int) -> None:
    def limited(s: dl.search.Choices) -> dl.nn.Module:
        s.require(parameters=25, flops=200, inputs=(5, s.integer("inputs", 1, 30)))
        return net(s)

    study = run(limited, size, trials=15, workers=workers, algorithm="tpe")
    counted = [trial for trial in study.trials if counts(trial)]
    assert len(counted) == 15
    assert max(trial.params["inputs"] for trial in counted) <= 10
    large = [trial for trial in study.trials if trial.user_attrs.get("infeasible")]
    assert large
    assert min(trial.params["inputs"] for trial in large) > 10
    assert {trial.state.name for trial in large} == {"PRUNED"}
    inputs = counted[0].params["inputs"]
    found = counted[0].user_attrs["costs"]
    assert (found["parameters"], found["flops"]) == (2 * inputs + 2, 5 * 2 * 2 * inputs)
    assert set(found) == {"parameters", "flops", "memory", "milliseconds"}


def test_limits_that_no_network_meets() -> None:
    def limited(s: dl.search.Choices) -> dl.nn.Module:
        s.require(parameters=2)
        return net(s)

    with pytest.raises(ConfigError, match=r"none of the last 300 networks .* 2\.00 times the parameters"):
        run(limited, size, trials=5)


def test_limits_that_none_meets_any_more_end_the_search() -> None:
    most = 100

    def limited(s: dl.search.Choices) -> dl.nn.Module:
        s.require(parameters=most)
        return net(s)

    def tightens(model: Any, trial: Any) -> float:
        nonlocal most
        most = 1
        return 1.0

    with pytest.warns(UserWarning, match="none of the last 300 networks"):
        study = run(limited, tightens, trials=5)
    assert sum(map(counts, study.trials)) == 1


def killed_now_and_then(model: Any, trial: Any) -> float:
    trial.set_user_attr("inputs", model.in_features)
    trial.report(float(model.in_features), 0)
    assert not trial.should_prune()
    if trial.number % 3 == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    assert model.weight.device == WIDTHS.device
    return float(model.in_features)


@pytest.mark.parametrize("trials", [12, pytest.param(40, marks=pytest.mark.full)])
def test_workers_that_are_killed_lose_no_trial(trials: int) -> None:
    """Each trial is made once in the end, with the values that it had."""
    study = run(net, killed_now_and_then, trials=trials, workers=2)
    done = [trial for trial in study.trials if counts(trial)]
    killed = [trial for trial in study.trials if not counts(trial)]
    assert len(done) == trials
    assert {trial.state.name for trial in killed} <= {"FAIL"}
    assert len(killed) > trials / 8
    for trial in done:
        assert trial.user_attrs["inputs"] == trial.params["inputs"]
        assert trial.value == trial.params["inputs"] or "error" in trial.user_attrs or trial.value is None
    again = [trial for trial in study.trials if trial.user_attrs.get("retries")]
    assert sorted(t.params["inputs"] for t in again) == sorted(
        t.params["inputs"] for t in killed if t.user_attrs.get("retries", 0) < storages.MOST_RETRIES
    )
    assert not any(
        child.cmdline()[-2:-1] == ["dl4all.search.worker"] for child in psutil.Process().children()
    )


@pytest.mark.full
def test_a_trial_that_always_kills_its_worker_is_given_up() -> None:
    def objective(model: Any, trial: Any) -> float:
        if model.in_features % 2:
            os._exit(3)
        return 1.0

    study = run(net, objective, trials=6, workers=2)
    done = [trial for trial in study.trials if counts(trial)]
    assert len(done) == 6
    for trial in done:
        assert trial.state.name == ("FAIL" if trial.params["inputs"] % 2 else "COMPLETE")
        assert trial.user_attrs.get("retries", 0) == (3 if trial.params["inputs"] % 2 else 0)


def test_functions_that_cannot_be_sent() -> None:
    lock = __import__("threading").Lock()
    with pytest.raises(ArgumentError, match=r"cannot be sent to processes: .*lock"):
        run(net, lambda model, trial: lock and 1.0, workers=2)


def test_functions_that_cannot_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refuses:
        def __reduce__(self) -> Any:
            return int, ("no number",)

    refuses = Refuses()
    with pytest.raises(ArgumentError, match="a worker cannot take the functions: ValueError"):
        run(net, lambda model, trial: refuses, workers=2)


def test_workers_that_do_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ends:
        def __reduce__(self) -> Any:
            return os._exit, (4,)

    ends = Ends()
    with pytest.raises(DeviceError, match="the worker for cpu ended before its first trial"):
        run(net, lambda model, trial: ends, workers=2)


SCRIPT = """
import sys, time, functools, os
import dl4all as dl

@functools.cache
def seconds():
    return 0.02

def net(s):
    return dl.nn.Linear(s.integer("inputs", 1, 30), 2)

def objective(model, trial):
    time.sleep(seconds())
    return model.in_features

storage, workers, trials = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
study = dl.search.run(net, objective, devices=["cpu"], workers=workers, trials=trials, storage=storage,
                      seed=0, algorithm="random", resume=True,
                      callback=lambda study, trial: print("finished", trial.number, flush=True))
print(len(study.trials), flush=True)
"""


MEETING = """
import functools, os, sys, time

@functools.cache
def meet():
    open(os.path.join(sys.argv[4], str(os.getpid())), "w").close()
    end = time.monotonic() + 40
    while len(os.listdir(sys.argv[4])) < 2 and time.monotonic() < end:
        time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("ending", "number", "workers"),
    [
        ("log", signal.SIGKILL, 2),
        ("db", signal.SIGKILL, 1),
        ("log", signal.SIGINT, 1),
        ("db", signal.SIGINT, 2),
    ],
)
@pytest.mark.sampled(2)
def test_a_search_that_ends_early_goes_on(tmp_path: Path, ending: str, number: int, workers: int) -> None:
    storage, script = tmp_path / f"study.{ending}", tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(storage), str(workers)]
    with started([*command, "1000"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        for _ in range(5):
            assert process.stdout.readline().startswith(b"finished")
        children = psutil.Process(process.pid).children()
        assert len(children) == (2 if workers == 2 else 0)
        process.send_signal(number)
        process.wait(30)
    _, left = psutil.wait_procs(children, 10)
    assert not left
    finished = finished_of(storage)
    done = run_forked([*command, "30" if len(finished) < 25 else "200"], preload=SEARCH, check=True)
    assert done.stderr == ""
    study = optuna.load_study(study_name="search", storage=storages.opened(storage))
    before = [trial.number for trial in study.trials if trial.number in finished]
    assert before == finished
    assert sum(map(counts, study.trials)) in (30, 200)
    assert "RUNNING" not in states(study)
    lost = [trial for trial in study.trials if not counts(trial)]
    assert len(lost) <= workers
    again = [trial.params for trial in study.trials if trial.user_attrs.get("retries")]
    assert len(again) == len(lost)
    assert all(trial.params in ({}, *again) for trial in lost)


def finished_of(storage: Path) -> list[int]:
    """The numbers of finished trials."""
    study = optuna.load_study(study_name="search", storage=storages.opened(storage))
    return [trial.number for trial in study.trials if trial.state.name == "COMPLETE"]


def test_storages_that_are_none(tmp_path: Path) -> None:
    text, folder, garbage = tmp_path / "notes.txt", tmp_path / "none" / "study.db", tmp_path / "study.db"
    text.write_text("my notes")
    garbage.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 9)
    for path, message in (
        (text, "no journal"),
        (folder, "there is no folder"),
        (garbage, "cannot be read"),
        (tmp_path, "cannot be read"),
    ):
        before = path.read_bytes() if path.is_file() else None
        with pytest.raises(FileFormatError, match=message):
            run(net, size, trials=2, storage=path)
        assert (path.read_bytes() if path.is_file() else None) == before
    for name in ("", 3, "grpc://nowhere", "grpc://:8"):
        with pytest.raises(ArgumentError, match="expected"):
            run(net, size, trials=2, storage=name)  # type: ignore[arg-type]  # on purpose


def test_a_storage_that_was_cut_off_keeps_what_is_whole(tmp_path: Path) -> None:
    journal = tmp_path / "study.log"
    run(net, size, trials=10, storage=journal)
    whole = journal.read_bytes()
    values = [trial.value for trial in run(net, size, trials=10, storage=journal, resume=True).trials]
    lines = whole.splitlines(keepends=True)
    for cut in (1, 5, len(lines[-1]) - 1):
        journal.write_bytes(whole[:-cut])
        study = run(net, size, trials=12, storage=journal, resume=True)
        assert [trial.value for trial in study.trials[:9]] == values[:9]
        assert sum(map(counts, study.trials)) == 12
        journal.write_bytes(whole)


def test_a_storage_of_another_version(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    run(net, size, trials=2, storage=path)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE alembic_version SET version_num = 'v0.9.0.a'")
    with pytest.raises(FileFormatError, match="of another version"):
        run(net, size, trials=4, storage=path, resume=True)


def test_a_locked_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "study.db"
    run(net, size, trials=2, storage=path)
    real = optuna.storages.RDBStorage
    monkeypatch.setattr(
        storages, "RDBStorage", lambda url: real(url, engine_kwargs={"connect_args": {"timeout": 0.1}})
    )
    other = sqlite3.connect(path)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(FileFormatError, match="locked"):
        run(net, size, trials=4, storage=path, resume=True)

    def locks(model: Any, trial: Any) -> float:
        other.execute("BEGIN EXCLUSIVE")
        return 1.0

    other.rollback()
    with pytest.raises(FileFormatError, match="locked"):
        run(net, locks, trials=4, storage=path, resume=True)
    other.rollback()
    other.close()
    assert len(run(net, size, trials=4, storage=path, resume=True).trials) >= 4


def test_studies_of_one_storage(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    run(net, size, trials=3, storage=path)
    with pytest.raises(ArgumentError, match="a study 'search' already: resume=True"):
        run(net, size, trials=3, storage=path)
    with pytest.raises(ArgumentError, match="'search' is to maximize, and this search to minimize"):
        run(net, size, trials=3, storage=path, resume=True, direction="minimize")
    assert len(run(net, size, trials=2, storage=path, study_name="other").trials) == 2


def test_machines_share_a_study_by_grpc(tmp_path: Path) -> None:
    """Two searches at once, as from two machines, make the trials of one study."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve = (
        "import optuna, sys; optuna.storages.run_grpc_proxy_server("
        f"optuna.storages.RDBStorage('sqlite:///{tmp_path}/study.db'), host='127.0.0.1', port={port})"
    )
    server = subprocess.Popen([sys.executable, "-W", "ignore", "-c", serve], stderr=subprocess.DEVNULL)
    script = tmp_path / "script.py"
    # Neither may be done before the other has begun: each waits for the other in its first trial.
    script.write_text(MEETING + SCRIPT.replace("time.sleep(seconds())", "meet(); time.sleep(seconds())"))
    (tmp_path / "met").mkdir()
    command = [
        sys.executable, str(script), f"grpc://127.0.0.1:{port}", "1", "40", str(tmp_path / "met"),
    ]  # fmt: skip
    try:
        searches = [started(command, stdout=subprocess.DEVNULL) for _ in range(2)]
        assert [search.wait(60) for search in searches] == [0, 0]
        study = optuna.load_study(study_name="search", storage=storages.opened(tmp_path / "study.db"))
        assert 40 <= sum(map(counts, study.trials)) <= 41  # both may begin the last one
        assert len({trial.user_attrs["search"] for trial in study.trials}) == 2
    finally:
        server.kill()
        server.wait()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "trials=0"),
        ({"workers": 0}, "workers=0"),
        ({"timeout": 0}, "timeout=0"),
        ({"direction": "up"}, "'maximize' and 'minimize', got \\['up'\\]"),
        ({"directions": []}, "got \\[\\]"),
        ({"devices": []}, "at least one device"),
        ({"devices": "npu:0"}, "npu:0"),
        ({"algorithm": "annealing"}, "no algorithm 'annealing'"),
        ({"algorithm": "evolution", "directions": ["maximize", "minimize"]}, "for one objective"),
    ],
)
def test_bad_settings(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises((ArgumentError, DeviceError), match=message):
        run(net, size, **{"storage": tmp_path / "study.log", **options})
    assert not (tmp_path / "study.log").exists()


def test_a_timeout_ends_it() -> None:
    def slow(model: Any, trial: Any) -> float:
        time.sleep(0.05)
        return 1.0

    study = run(net, slow, trials=10_000, timeout=0.5)
    assert 2 <= len(study.trials) <= 12


def test_pruners_end_trials_of_workers() -> None:
    def objective(model: Any, trial: Any) -> float:
        for step in range(10):
            trial.report(float(model.in_features), step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return float(model.in_features)

    pruner = optuna.pruners.MedianPruner(n_startup_trials=3)
    study = run(net, objective, trials=30, workers=2, pruner=pruner)
    assert 3 < states(study)["PRUNED"] < 25
    assert sum(states(study).values()) == 30


def test_workers_share_the_processor_and_hear_what_cannot_be_sent() -> None:
    def objective(model: Any, trial: Any) -> float:
        assert trial.suggest_int("more", 1, 3) == trial.params["more"]
        trial.set_user_attr("threads", dl.get_num_threads())
        if trial.number == 1:
            trial.study  # noqa: B018
        return 1.0

    sampler = optuna.samplers.RandomSampler(seed=0)
    sampler.mine = lambda: None  # type: ignore[attr-defined]  # so that it cannot be pickled
    study = run(net, objective, trials=4, workers=2, algorithm=sampler)
    threads = {trial.user_attrs["threads"] for trial in study.trials}
    assert threads == {max(1, dl.get_num_threads() // 2)}
    errors = [trial.user_attrs["error"] for trial in study.trials if "error" in trial.user_attrs]
    assert len(errors) == 1
    assert "cannot have this of its trial" in errors[0]


def test_callbacks_see_every_trial() -> None:
    seen: list[int] = []
    study = run(net, size, trials=7, callback=lambda study, trial: seen.append(trial.number))
    assert seen == [trial.number for trial in study.trials]


def test_given_values_are_tried_first(tmp_path: Path) -> None:
    def two(s: dl.search.Choices) -> dl.nn.Module:
        return dl.nn.Linear(s.integer("inputs", 1, 30), s.integer("outputs", 1, 30))

    given = [{"inputs": 17, "outputs": 3}, {"outputs": 29}]
    options: dict[str, Any] = {"storage": tmp_path / "study.log", "first": given}
    study = run(two, size, trials=3, **options)
    assert study.trials[0].params == given[0]
    assert study.trials[1].params["outputs"] == 29
    again = run(two, size, trials=6, resume=True, **options)
    assert [trial.params["outputs"] for trial in again.trials].count(29) == 1, "they are tried once"
    with pytest.raises(ArgumentError, match="'width' is no hyperparameter of the space"):
        run(two, size, trials=1, first=[{"width": 2}])


def test_trials_have_their_device_whichever_is_entered() -> None:
    def place(model: dl.nn.Module, trial: Any) -> float:
        seen = []
        thread = threading.Thread(target=lambda: seen.append(dl.zeros(1).device))
        thread.start()
        thread.join()
        assert [str(dl.zeros(1).device), *map(str, seen)] == ["vulkan:0"] * 2
        return 1.0

    with dl.device("cpu"):
        study = run(net, place, devices=["vulkan:0"], trials=2)
        assert str(dl.get_default_device()) == "cpu"
    assert states(study) == {"COMPLETE": 2}
