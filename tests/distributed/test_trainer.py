"""A Trainer over several processes: the same numbers as one, going on from its checkpoints, and launches."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.data.shard import RowShare
from dl4all.errors import ArgumentError
from tests.distributed.processes import command, free_port, launched, run_ranks
from tests.distributed.programs import classifier, samples, trainer, weights

Result = tuple[Any, Any]


def alone(folder: Path, name: str, **options: Any) -> Result:
    """The weights and the history of one process."""
    trainer(str(folder), json.dumps({"name": name, "folder": str(folder / name), **options}))
    return results(folder, name, 1)


def together(folder: Path, count: int, *runs: dict[str, Any]) -> None:
    """Train by several processes, several times."""
    texts = [json.dumps({"distributed": True, "folder": str(folder / run["name"]), **run}) for run in runs]
    for ended in run_ranks(count, "trainer", str(folder), *texts):
        assert ended.status == 0, ended.output


def results(folder: Path, name: str, count: int) -> Result:
    """The weights and the history, which are the same in all processes."""
    weights = [np.load(folder / f"{name}-{rank}.npy") for rank in range(count)]
    rows = [json.loads((folder / f"{name}-{rank}.json").read_text()) for rank in range(count)]
    for rank in range(1, count):
        assert np.array_equal(weights[0], weights[rank])
        assert rows[0] == rows[rank]
    return weights[0], rows[0]


def close(found: Result, expected: Result) -> None:
    assert np.linalg.norm(found[0] - expected[0]) <= 1e-6 * np.linalg.norm(expected[0])
    assert len(found[1]) == len(expected[1])
    for ours, theirs in zip(found[1], expected[1], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)


def same(found: Result, expected: Result) -> None:
    assert np.array_equal(found[0], expected[0])
    assert found[1] == expected[1]


def test_processes_train_as_one_does(tmp_path: Path) -> None:
    """103 samples in batches of 50: in the last one, of 3 rows, a process has none."""
    runs: list[dict[str, Any]] = [
        {"name": "accumulated", "epochs": 2, "accumulate": 2},
        {"name": "compiled", "epochs": 2, "compile": True},
        {"name": "hybrid", "epochs": 2, "devices": ["cpu", "cpu#1"]},
    ]
    together(tmp_path, 2, *runs)
    for run in runs:
        plain = {k: v for k, v in run.items() if k not in ("devices", "name", "compile")}
        expected = alone(tmp_path, f"one-{run['name']}", plain=run["name"] == "compiled", **plain)
        close(results(tmp_path, run["name"], 2), expected)


def test_going_on(tmp_path: Path) -> None:
    """With as many processes the same bits, from within an epoch, too; with one fewer, nearly."""
    run = str(tmp_path / "run")
    together(
        tmp_path,
        2,
        {"name": "whole", "epochs": 3},
        {"name": "begun", "epochs": 2, "folder": run, "checkpoint_every": 2},
        {"name": "again", "epochs": 3, "folder": run, "refused": "holds the checkpoints of an earlier run"},
    )
    for name in ("one", "within"):
        shutil.copytree(run, tmp_path / name)
    newest = max((tmp_path / "within").glob("step-*"))
    shutil.rmtree(newest)  # what is left is the checkpoint within the second epoch
    together(
        tmp_path,
        2,
        {"name": "end", "epochs": 3, "folder": run, "resume": True},
        {"name": "within", "epochs": 3, "resume": True},
    )
    whole = results(tmp_path, "whole", 2)
    same(results(tmp_path, "end", 2), whole)
    same(results(tmp_path, "within", 2), whole)
    close(alone(tmp_path, "one", epochs=3, resume=True), whole)


def test_the_state_of_an_optimizer_may_be_spread(tmp_path: Path) -> None:
    """Checkpoints have the whole one, from which processes go on with the bits of the optimizer alone."""
    run = str(tmp_path / "run")
    together(
        tmp_path,
        2,
        {"name": "whole", "epochs": 3},
        {"name": "begun", "epochs": 2, "zero": True, "folder": run, "checkpoint_every": 2},
        {"name": "end", "epochs": 3, "zero": True, "folder": run, "resume": True},
    )
    same(results(tmp_path, "end", 2), results(tmp_path, "whole", 2))


def local_steps(count: int, every: int, epochs: int) -> Any:
    """The weights of as many networks that make steps of their own, of which the mean is taken."""
    nets = [classifier(plain=True).to("cpu")]
    state = dl.get_rng_state()
    nets += [classifier(plain=True).to("cpu") for _ in range(1, count)]
    dl.set_rng_state(state)
    optimizers = [dl.optim.SGD(net.parameters(), lr=0.05, momentum=0.9) for net in nets]
    loader = dl.data.DataLoader(dl.data.TensorDataset(*samples()), 50, shuffle=True, device="cpu")
    rows, step = [0] * count, 0

    def mean() -> None:
        shares = [own / max(sum(rows), 1) for own in rows]
        for same in zip(*(net.parameters() for net in nets), strict=True):
            whole = sum(one.detach() * share for one, share in zip(same, shares, strict=True))
            for one in same:
                with dl.no_grad():
                    one.copy_(whole)
        rows[:] = [0] * count

    for _ in range(epochs):
        for x, y in loader:
            for rank, (net, optimizer) in enumerate(zip(nets, optimizers, strict=True)):
                own = RowShare(rank, count).rows(len(x))
                rows[rank] += own.stop - own.start
                optimizer.zero_grad()
                if own.stop > own.start:
                    dl.nn.functional.cross_entropy(net(x[own]), y[own]).backward()
                    dl.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
            step += 1
            if step % every == 0:
                mean()
        if sum(rows):
            mean()
    return weights(nets[0])


def test_steps_of_their_own(tmp_path: Path) -> None:
    """Of 103 samples in batches of 50 a process has none of the last batch, and makes no step with it."""
    local = {"epochs": 3, "sync_every": 2}
    run = str(tmp_path / "run")
    together(
        tmp_path,
        2,
        {"name": "plain", "plain": True, **local},
        {"name": "compiled", "compile": True, "stop_on_nan": False, **local},
        {"name": "whole", **local},
        {"name": "begun", **local, "epochs": 2, "folder": run, "checkpoint_every": 1},
        {"name": "end", **local, "folder": run, "resume": True},
        {"name": "hybrid", "devices": ["cpu", "cpu#1"], **local},
    )
    expected = local_steps(2, 2, 3)
    for name in ("plain", "compiled"):
        found, _ = results(tmp_path, name, 2)
        assert np.linalg.norm(found - expected) <= 1e-6 * np.linalg.norm(expected)
    assert results(tmp_path, "hybrid", 2)[1][-1]["loss"] < results(tmp_path, "hybrid", 2)[1][0]["loss"]
    assert len(results(tmp_path, "whole", 2)[1]) == len(results(tmp_path, "end", 2)[1]) == 3


def test_a_launch_restarts_and_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    """Rank 1 kills itself after the second epoch; the second start of both resumes."""
    together(tmp_path, 2, {"name": "whole", "epochs": 3})
    options = {"name": "killed", "folder": str(tmp_path / "run"), "distributed": True, "epochs": 3}
    text = json.dumps({**options, "resume": True, "die": [1, 2]})
    ended = launched(["-n", "2", "--max-restarts", "1"], command("trainer", str(tmp_path), text)[1:])
    assert ended.status == 0, ended.output
    same(results(tmp_path, "killed", 2), results(tmp_path, "whole", 2))


def test_what_a_trainer_cannot_share() -> None:
    dl.distributed.init_process_group(
        rank=0, world_size=1, init_method=f"tcp://127.0.0.1:{free_port()}", timeout=5
    )
    try:
        net = dl.nn.Sequential(dl.nn.Linear(2, 3), dl.nn.BatchNorm1d(3))
        optimizer = dl.optim.SGD(net.parameters(), lr=0.1)
        made = dl.Trainer(net, dl.nn.MSELoss(), optimizer, device="cpu", distributed=True, progress=False)
        with pytest.raises(ArgumentError, match=r"takes a dl\.data\.DataLoader of all processes' batches"):
            made.fit([(dl.ones(4, 2), dl.ones(4, 3))], 1)
        with pytest.raises(ArgumentError, match="compiled gradients do not wait"):
            dl.Trainer(net, dl.nn.MSELoss(), optimizer, device="cpu", distributed=True, compile=True)
    finally:
        dl.distributed.destroy_process_group()
