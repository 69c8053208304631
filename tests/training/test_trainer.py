"""The training loop: what it computes, keeps, resumes and refuses."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import dl4all as dl
from dl4all.data import DataLoader, TensorDataset
from dl4all.errors import ArgumentError, FolderInUseError, GradientError


def spiral(count: int = 90, **options: Any) -> DataLoader:
    return DataLoader(dl.data.spiral(count), device=None, **options)


def network(seed: int = 0, drop: float = 0.0) -> dl.nn.Sequential:
    dl.manual_seed(seed)
    nn = dl.nn
    return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Dropout(drop), nn.Linear(16, 3))


def trainer(net: dl.nn.Module, device: str = "cpu", **options: Any) -> dl.Trainer:
    optimizer = dl.optim.AdamW(net.parameters(), lr=0.02)
    options = {"metrics": ["accuracy"], "progress": False, **options}
    return dl.Trainer(net, dl.nn.CrossEntropyLoss(), optimizer, device=device, **options)


def weights(net: dl.nn.Module) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in net.state_dict().items()}


def test_it_does_what_the_plain_loop_does(device: str) -> None:
    net = network()
    history = trainer(net, device).fit(spiral(batch_size=16), epochs=3)
    other = network().to(device)
    optimizer, loss_of = dl.optim.AdamW(other.parameters(), lr=0.02), dl.nn.CrossEntropyLoss()
    for _ in range(3):
        for x, y in DataLoader(dl.data.spiral(90), 16, device=device):
            optimizer.zero_grad()
            loss_of(other(x), y).backward()
            optimizer.step()
    assert weights(net) == weights(other)
    assert [row["epoch"] for row in history.rows] == [1, 2, 3]
    assert history["loss"][2] < history["loss"][0]
    assert all(0 <= share <= 1 for share in history["accuracy"])


def test_accumulation_gives_the_gradients_of_the_large_batch() -> None:
    large, small = network(), network()
    trainer(large, metrics=()).fit(spiral(batch_size=45), epochs=2)
    trainer(small, metrics=(), accumulate=3).fit(spiral(batch_size=15), epochs=2)
    for one, other in zip(large.parameters(), small.parameters(), strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-4, atol=1e-5)


def accumulated(net: dl.nn.Module, clip: float | None, **options: Any) -> dl.Trainer:
    """Five batches, the last one small, in groups of three and two."""
    optimizer = dl.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    schedule = dl.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
    training = dl.Trainer(
        net, dl.nn.CrossEntropyLoss(), optimizer, ["accuracy"], "cpu", accumulate=3, clip_norm=clip,
        scheduler=schedule, scheduler_interval="step", progress=False, **options,
    )  # fmt: skip
    return training


@pytest.mark.parametrize("clip", [None, 0.2])
def test_a_last_group_is_divided_by_what_came(clip: float | None) -> None:
    """As PyTorch's users write it; gradients are clipped after they were divided."""
    net = network()
    torch = pytest.importorskip("torch")
    other = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    arrays = [torch.from_numpy(value.numpy().copy()) for value in net.state_dict().values()]
    other.load_state_dict(dict(zip(other.state_dict(), arrays, strict=True)))
    accumulated(net, clip).fit(spiral(batch_size=20), epochs=2)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.5, momentum=0.9)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
    batches = list(spiral(batch_size=20))
    for group in (batches[:3], batches[3:]) * 2:
        optimizer.zero_grad()
        for x, y in group:
            loss = torch.nn.functional.cross_entropy(other(torch.from_numpy(x)), torch.from_numpy(y))
            (loss / len(group)).backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(other.parameters(), clip)
        optimizer.step()
        schedule.step()
    for mine, theirs in zip(net.parameters(), other.parameters(), strict=True):
        np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_gradients_of_parameters_that_stay_as_they_are_do_not_pile_up() -> None:
    """Those of one step count for the clipping, as in a loop that calls ``net.zero_grad()``."""
    nets = network(), network()
    first, second = (dl.optim.SGD(net[3].parameters(), lr=0.5) for net in nets)
    loss_of = dl.nn.CrossEntropyLoss()
    dl.Trainer(nets[0], loss_of, first, device="cpu", clip_norm=0.1, progress=False).fit(
        spiral(batch_size=15), epochs=2
    )
    for _ in range(2):
        for x, y in DataLoader(dl.data.spiral(90), 15, device="cpu"):
            nets[1].zero_grad()
            loss_of(nets[1](x), y).backward()
            dl.nn.utils.clip_grad_norm_(nets[1].parameters(), 0.1)
            second.step()
    assert weights(nets[0]) == weights(nets[1])


def test_resuming_before_a_last_group_that_is_not_full(tmp_path: Path) -> None:
    def run(folder: Path, stop: int | None) -> tuple[dict[str, bytes], list[Any]]:
        net = network(seed=3 if stop else 77)
        training = accumulated(net, 0.2, folder=folder, checkpoint_every=1)
        seen = 0

        def loss(outputs: Any, targets: Any) -> Any:
            nonlocal seen
            if (seen := seen + 1) == stop:
                raise InterruptedError
            return dl.nn.functional.cross_entropy(outputs, targets)

        training.loss = loss
        training.fit(spiral(batch_size=20), 2, resume=True)
        return weights(net), training.history.rows

    with pytest.raises(InterruptedError):
        run(tmp_path / "broken", 5)
    assert run(tmp_path / "broken", None) == run(tmp_path / "whole", 99)


@pytest.mark.parametrize("interrupted", [1, 2, 3])
def test_a_resumed_run_is_the_undisturbed_one(tmp_path: Path, interrupted: int, device: str) -> None:
    """To the last bit: weights, optimizer, dropout masks and the order of the data, drawn with the masks."""

    def run(folder: Path, *epochs: int) -> tuple[dict[str, bytes], list[Any]]:
        for number, until in enumerate(epochs):
            net = network(seed=3 if number == 0 else 77, drop=0.3)
            training = trainer(net, device, folder=folder)
            history = training.fit(
                spiral(batch_size=16, shuffle=True), until, spiral(30, batch_size=30), resume=True
            )
        return weights(net), history.rows

    assert run(tmp_path / "whole", 4) == run(tmp_path / "broken", interrupted, 4)


def test_checkpoints_and_the_best(tmp_path: Path) -> None:
    training = trainer(network(), folder=tmp_path, keep=2)
    history = training.fit(spiral(batch_size=30), epochs=5)
    steps = [step for step, _ in dl.io.checkpoints(tmp_path)]
    assert steps[-2:] == [12, 15]
    best = int(np.argmin(history["loss"])) + 1
    assert dl.io.best_step(tmp_path) == 3 * best
    assert 3 * best in steps
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert lines == history.rows


def test_patience(tmp_path: Path) -> None:
    """The loss of a network that does not learn does not improve."""
    net = network()
    training = dl.Trainer(
        net, dl.nn.CrossEntropyLoss(), dl.optim.SGD(net.parameters(), lr=0.0), device="cpu", progress=False
    )
    assert len(training.fit(spiral(batch_size=90), epochs=50, patience=3)) == 4


def test_evaluation_and_prediction_leave_the_model_alone(device: str) -> None:
    net = network(drop=0.9)
    training = trainer(net, device)
    before = weights(net)
    first, again = training.evaluate(spiral(batch_size=7)), training.evaluate(spiral(batch_size=90))
    assert first["loss"] == pytest.approx(again["loss"], rel=1e-5)
    outputs = training.predict(spiral(batch_size=7))
    assert outputs.shape == (90, 3)
    assert first["accuracy"] == pytest.approx(float(np.mean(outputs.argmax(1) == np.arange(90) % 3)))
    assert weights(net) == before
    assert all(parameter.grad is None for parameter in net.parameters())


def test_schedulers_clipping_and_callbacks() -> None:
    net = network()
    optimizer = dl.optim.SGD(net.parameters(), lr=1.0)
    seen: list[float] = []
    dl.Trainer(
        net,
        dl.nn.CrossEntropyLoss(),
        optimizer,
        device="cpu",
        scheduler=dl.optim.lr_scheduler.ExponentialLR(optimizer, 0.5),
        clip_norm=0.1,
        callbacks=[lambda training, row: seen.append(optimizer.param_groups[0]["lr"])],
        progress=False,
    ).fit(spiral(batch_size=45), epochs=3)
    assert seen == [0.5, 0.25, 0.125]


def test_every_step_is_clipped(device: str) -> None:
    """With a rate of 1, each moves the parameters as far as the norm allows, the first one too."""
    net = network().to(device)

    def position() -> Any:
        return np.concatenate([p.detach().numpy().reshape(-1) for p in net.parameters()])

    places = [position()]
    dl.Trainer(
        net,
        dl.nn.CrossEntropyLoss(),
        dl.optim.SGD(net.parameters(), lr=1.0),
        device=device,
        clip_norm=1e-3,
        callbacks=[lambda training, row: places.append(position())],
        progress=False,
    ).fit(spiral(batch_size=90), epochs=3)
    np.testing.assert_allclose(np.linalg.norm(np.diff(places, axis=0), axis=1), 1e-3, rtol=0.01)


def test_a_loss_that_is_not_finite_stops_before_it_does_harm() -> None:
    net = network()
    data = TensorDataset(np.array([[1.0, 2.0], [np.nan, 1.0]], np.float32), np.array([0, 1]))
    training = trainer(net)
    with pytest.raises(GradientError, match=r"the loss is nan at batch 1 of epoch 1 \(step 1\)"):
        training.fit(DataLoader(data, 1, device=None), epochs=1)
    assert all(np.isfinite(parameter.detach().numpy()).all() for parameter in net.parameters())


def test_a_loss_that_is_not_finite_may_be_borne(caplog: pytest.LogCaptureFixture) -> None:
    data = TensorDataset(np.array([[1.0, 2.0], [np.inf, 1.0]], np.float32), np.array([0, 1]))
    training = trainer(network(), stop_on_nan=False, metrics=())
    training.fit(DataLoader(data, 1, device=None), epochs=1)
    assert [record.getMessage() for record in caplog.records] == [
        "[Trainer] the loss is nan at batch 1 of epoch 1 (step 1)"
    ]


def test_a_label_out_of_range_is_named(device: str) -> None:
    data = TensorDataset(np.ones((4, 2), np.float32), np.array([0, 1, 3, 2]))
    with pytest.raises(ArgumentError, match=r"target 3 is not one of 3 classes"):
        trainer(network(), device).fit(DataLoader(data, 2, device=None), epochs=1)


class Halving:
    """A scheduler that counts."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer, self.steps = optimizer, 0

    def step(self) -> None:
        self.steps += 1


@pytest.mark.parametrize(("interval", "steps"), [("epoch", 2), ("step", 6)])
def test_schedulers_go_by_epochs_or_steps(interval: str, steps: int) -> None:
    net = network()
    counting = Halving(None)
    training = trainer(net, scheduler=counting, scheduler_interval=interval, accumulate=2)
    training.fit(spiral(batch_size=18), epochs=2)  # 5 batches, which are 3 steps
    assert counting.steps == steps
    assert training.step == 6


def test_one_cycle_ends_with_its_last_step() -> None:
    net = network()
    optimizer = dl.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    cycle = dl.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=7)
    rates: list[float] = []
    dl.Trainer(
        net,
        dl.nn.CrossEntropyLoss(),
        optimizer,
        device="cpu",
        scheduler=cycle,
        scheduler_interval="step",
        callbacks=[lambda training, row: rates.append(cycle.get_last_lr()[0])],
        progress=False,
    ).fit(spiral(batch_size=30), epochs=2)
    assert rates[1] < rates[0] <= 0.1


def test_validation_is_of_the_averaged_parameters() -> None:
    net = network()
    ema = dl.optim.EMA(net.parameters(), decay=0.9)
    training = trainer(net, ema=ema)
    history = training.fit(spiral(batch_size=10), 2, spiral(30, batch_size=30))
    own = training.evaluate(spiral(30, batch_size=30))["loss"]
    with ema.averaged():
        averaged = training.evaluate(spiral(30, batch_size=30))["loss"]
    assert own != averaged
    assert history["val_loss"][-1] == averaged


@pytest.mark.parametrize(("accumulate", "order"), [(1, None), (2, 5), (2, None)])
@pytest.mark.parametrize("stop_after", [1, 4, 6, 7, 11])
def test_going_on_in_the_middle_of_an_epoch(
    tmp_path: Path, stop_after: int, accumulate: int, order: int | None
) -> None:
    """With a checkpoint after every step, an interruption after any batch loses nothing."""

    def run(folder: Path, stop: int | None, seed: int) -> tuple[dict[str, bytes], Any]:
        net = network(seed, drop=0.3)
        seen = 0

        def loss(outputs: Any, targets: Any) -> Any:
            nonlocal seen
            seen += net.training
            if seen == stop:
                raise InterruptedError
            return dl.nn.functional.cross_entropy(outputs, targets)

        optimizer = dl.optim.AdamW(net.parameters(), lr=0.02)
        options: dict[str, Any] = {"accumulate": accumulate, "progress": False, "folder": folder}
        training = dl.Trainer(
            net, loss, optimizer, ["accuracy"], "cpu", ema=dl.optim.EMA(net.parameters()), **options,
            checkpoint_every=1,
        )  # fmt: skip
        batches = spiral(batch_size=16, shuffle=True, seed=order, num_workers=1)
        try:
            training.fit(batches, 2, spiral(30, batch_size=30), resume=True)
        except InterruptedError:
            return run(folder, None, seed=77 if dl.io.checkpoints(folder) else seed)
        return weights(net), training.history.rows

    whole, broken = run(tmp_path / "whole", None, 3), run(tmp_path / "broken", stop_after, 3)
    assert whole == broken
    written = [(tmp_path / name / "history.jsonl").read_text() for name in ("whole", "broken")]
    assert written[0] == written[1]


def test_history_after_a_kill_has_no_row_twice(tmp_path: Path) -> None:
    """A row that was written before its checkpoint was, and half a line, are forgotten."""
    trainer(network(), folder=tmp_path).fit(spiral(batch_size=45), epochs=2)
    with (tmp_path / "history.jsonl").open("a") as file:
        file.write('{"epoch": 3, "loss": 0.5}\n{"epo')
    training = trainer(network(), folder=tmp_path)
    training.fit(spiral(batch_size=45), epochs=3, resume=True)
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in lines] == [1, 2, 3]
    assert lines == training.history.rows


def test_the_best_is_marked_after_all(tmp_path: Path) -> None:
    """Where a run was killed between a checkpoint and its mark."""
    history = trainer(network(), folder=tmp_path).fit(spiral(batch_size=45), epochs=3)
    assert np.argmin(history["loss"]) == 2
    (tmp_path / "best").write_text("2")
    trainer(network(), folder=tmp_path).fit(spiral(batch_size=45), epochs=3, resume=True)
    assert dl.io.best_step(tmp_path) == 6


def test_a_run_that_gave_up_stays_so(tmp_path: Path) -> None:
    def run() -> int:
        net = network()
        optimizer = dl.optim.SGD(net.parameters(), lr=0.0)
        training = dl.Trainer(
            net, dl.nn.CrossEntropyLoss(), optimizer, device="cpu", folder=tmp_path, progress=False
        )
        return len(training.fit(spiral(batch_size=90), epochs=50, patience=2, resume=True))

    assert run() == run() == 3


def test_loading_the_best(tmp_path: Path) -> None:
    net = network()
    ema = dl.optim.EMA(net.parameters(), decay=0.5)
    states: list[dict[str, bytes]] = []
    values = iter([0.3, 0.9, 0.1])

    def note(training: dl.Trainer, row: dict[str, Any]) -> None:
        with ema.averaged():
            states.append(weights(net))

    training = trainer(
        net,
        ema=ema,
        folder=tmp_path,
        metrics={"made_up": lambda outputs, targets: next(values)},
        callbacks=[note],
    )
    training.fit(spiral(batch_size=90), epochs=3, monitor="made_up")
    training.load_best()
    assert weights(net) == states[1] != states[2]


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    board = dl.training.TensorBoard(tmp_path)
    history = trainer(network(), callbacks=[board]).fit(spiral(batch_size=45), epochs=2)
    board.close()
    (file,) = tmp_path.iterdir()
    found: dict[str, list[tuple[int, float]]] = {}
    for event in EventFileLoader(str(file)).Load():
        for value in event.summary.value:
            number = value.tensor.float_val[0] if value.HasField("tensor") else value.simple_value
            found.setdefault(value.tag, []).append((event.step, number))
    assert set(found) == {"loss", "accuracy"}
    for name, points in found.items():
        assert [step for step, _ in points] == [1, 2]
        np.testing.assert_allclose([value for _, value in points], history[name], rtol=1e-6)


def test_the_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Console(width=160, force_terminal=True, file=io.StringIO())
    monkeypatch.setattr("dl4all.training.progress.get_console", lambda: terminal)
    trainer(network(), progress=True).fit(spiral(batch_size=45), epochs=2)
    trainer(network(), progress=True).fit(iter(spiral(batch_size=45)), epochs=1)  # without a length
    assert isinstance(terminal.file, io.StringIO)
    shown = terminal.file.getvalue()
    assert all(text in shown for text in ("epoch 2/2", "4/4", "loss", "accuracy", "epoch 1/1"))
    assert capsys.readouterr().out == ""


def test_lines_in_place_of_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    """Where the output is no terminal."""
    history = trainer(network(), progress=True).fit(spiral(batch_size=45), epochs=2)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["epoch", "1/2"], ["epoch", "2/2"]]
    for line, loss in zip(lines, history["loss"], strict=True):
        assert f"loss {loss:.4g}" in line


def test_curves(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    training = trainer(network())
    training.fit(spiral(batch_size=45), epochs=2).plot(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: trainer(network(), metrics=["recall"]), r"unknown metric 'recall'; known are accuracy"),
        (lambda: trainer(network(), accumulate=0), r"accumulate 0"),
        (lambda: trainer(network()).fit([], epochs=1), r"there is no batch to train on"),
        (lambda: trainer(network()).evaluate([]), r"there is no batch to evaluate"),
        (lambda: trainer(network()).predict([]), r"there is no batch to predict"),
        (lambda: trainer(network()).fit(spiral(), 1, monitor="val_loss"), r"nothing is called 'val_loss'"),
        (lambda: trainer(network()).fit(spiral(), 1, resume=True), r"resume needs the folder"),
        (lambda: trainer(network()).load_best(), r"load_best needs the folder"),
        (lambda: trainer(network()).fit(spiral(), 1, patience=0), r"patience must be at least 1"),
        (lambda: trainer(network(), checkpoint_every=3), r"checkpoint_every 3 must be .* needs a folder"),
        (lambda: trainer(network(), scheduler_interval="batch"), r"must be 'epoch' or 'step', got 'batch'"),
        (lambda: dl.training.History().plot("x.png"), r"no epoch has"),
    ],
)
def test_mistakes(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


def test_an_earlier_run_is_not_mixed_with_a_new_one(tmp_path: Path) -> None:
    """Its checkpoints have higher numbers, so they would be taken for the newest."""
    trainer(network(), folder=tmp_path).fit(spiral(batch_size=45), epochs=2)
    with pytest.raises(ArgumentError, match="holds the checkpoints of an earlier run; pass resume=True"):
        trainer(network(), folder=tmp_path).fit(spiral(batch_size=45), epochs=1)


def test_two_trainers_do_not_share_a_folder(tmp_path: Path) -> None:
    """Of one process, too; one after the other they may."""
    other = trainer(network(), folder=tmp_path)

    def both(training: dl.Trainer, row: dict[str, Any]) -> None:
        with pytest.raises(FolderInUseError, match="written by another run: this process"):
            other.fit(spiral(batch_size=45), epochs=2, resume=True)

    trainer(network(), folder=tmp_path, callbacks=[both]).fit(spiral(batch_size=45), epochs=1)
    assert len(other.fit(spiral(batch_size=45), epochs=2, resume=True)) == 2


def test_what_cannot_go_on_within_an_epoch(tmp_path: Path) -> None:
    training = trainer(network(), folder=tmp_path, checkpoint_every=1)
    with pytest.raises(ArgumentError, match="such as a DataLoader, not list"):
        training.fit(list(spiral(batch_size=45)), epochs=1)
