"""The benchmark of training steps: its networks in both libraries, and what is made of its times."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

import dl4all as dl
from benchmarks import first_step, turns
from tests.conftest import need

torch = pytest.importorskip("torch", reason="steps are compared with PyTorch's")
accuracy, overhead, threads, training = (
    pytest.importorskip(f"benchmarks.{name}") for name in ("accuracy", "overhead", "threads", "training")
)
supervised = pytest.importorskip("benchmarks.networks.case").supervised
CASES = training.CASES

QUICK = ("mlp-b1", "actor-critic", "lstm-cell", "messages", "recommender")
"""Cases that take some milliseconds a step."""
FOUND = {"a": {"pytorch": 2.0, "cpu": 1.0, "cpu compiled": 0.5}, "b": {"pytorch": 1.0, "cpu": 8.0}}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For PyTorch, as steps so small would wait for its threads; without pauses."""
    before = torch.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(turns, "PAUSE", 0.0)
    yield
    torch.set_num_threads(before)


def run(*arguments: str) -> Any:
    """What the benchmark prints as JSON."""
    result = CliRunner().invoke(training.main, [*arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_quick_steps_compute_what_pytorch_computes() -> None:
    found = run(*(word for name in QUICK for word in ("--case", name)), "--repeat", "1")
    assert list(found) == list(QUICK)
    assert all(list(times) == ["pytorch", "cpu"] for times in found.values())
    assert all(spent > 0 for times in found.values() for spent in times.values())


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", sorted(set(CASES) - set(QUICK)))
def test_first_losses_are_those_of_pytorch(name: str) -> None:
    calls, _ = training.steps(name, ("cpu",), compiled=False)
    loss = calls["pytorch"]()
    assert np.isfinite(loss)
    assert calls["cpu"]() == pytest.approx(loss, rel=training.TOLERANCE)


def test_a_compiled_step_is_measured_beside() -> None:
    found = run("--case", "mlp-b1", "--compiled", "--cpu-time", "--repeat", "2")
    assert list(found["mlp-b1"]) == ["pytorch", "cpu", "cpu compiled"]


def test_a_wrong_loss_is_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def loss(lib: Any, net: Any, x: Any, y: Any) -> Any:
        scale = 1.0 if lib is torch else 1.001
        return lib.nn.functional.cross_entropy(net(x), y) * scale

    monkeypatch.setitem(CASES, "mlp-b1", CASES["mlp-b1"]._replace(training=supervised(loss)))
    with pytest.raises(SystemExit, match="mlp-b1: cpu has a loss of"):
        training.warm_up("mlp-b1", training.steps("mlp-b1", ("cpu",), compiled=False)[0])


def test_what_cannot_be_compiled_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def loss(lib: Any, net: Any, x: Any, y: Any) -> Any:
        value = lib.nn.functional.cross_entropy(net(x), y)
        return value if value.item() >= 0 else -value

    monkeypatch.setitem(CASES, "mlp-b1", CASES["mlp-b1"]._replace(training=supervised(loss)))
    calls, _ = training.steps("mlp-b1", ("cpu",), compiled=True)
    training.warm_up("mlp-b1", calls)
    assert list(calls) == ["pytorch", "cpu"]
    assert "reads elements of a tensor on the host" in capsys.readouterr().err


def test_cases_have_batches_that_are_the_same_each_time() -> None:
    assert len(CASES) >= 18
    for name in CASES:
        for first, second in zip(training.batch(name), training.batch(name), strict=True):
            assert first.dtype in (np.float32, np.int64), name
            np.testing.assert_array_equal(first, second)


def test_ratios_amount_to_their_geometric_mean_and_the_worst() -> None:
    assert training.ratios(FOUND) == {"cpu": {"a": 0.5, "b": 8.0}, "cpu compiled": {"a": 0.25}}
    table = training.table(FOUND, "ms")
    cells = [list(column.cells) for column in table.columns]
    assert cells[2] == ["1.00 (0.50)", "8.00 (8.00)", "2.00", "b 8.00"]
    assert cells[3] == ["0.50 (0.25)", "-", "0.25", "a 0.25"]


def test_tinygrad_has_no_processor_time() -> None:
    result = CliRunner().invoke(training.main, ["--tinygrad", "--cpu-time"])
    assert result.exit_code == click.UsageError.exit_code


def test_turns_begin_with_another_one_each_time() -> None:
    order: list[str] = []
    calls = {name: lambda name=name: order.append(name) for name in "abc"}
    times = turns.in_turn(calls, 3, warm_up=1)  # type: ignore[arg-type]
    assert order == [*"abc", "a", *"abc", *"bca", *"cab"]
    assert all(len(taken.clock) == len(taken.processor) == 3 for taken in times.values())


def test_a_turn_of_a_short_call_is_several_of_them() -> None:
    counts = {"a": 0, "b": 0}

    def count(name: str) -> None:
        counts[name] += 1

    calls = {name: lambda name=name: count(name) for name in counts}
    turns.in_turn(calls, 2, warm_up=0, least=1000.0)  # type: ignore[arg-type]
    assert counts == {"a": 2 * turns.CALLS + 1, "b": 2 * turns.CALLS}


def test_threads_are_held_by_a_new_start(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[str, dict[str, str]]] = []
    monkeypatch.setattr(os, "execv", lambda program, _: started.append((program, dict(os.environ))))
    for name in threads.VARIABLES:
        monkeypatch.setenv(name, "7")
    threads.hold(1)
    assert [program for program, _ in started] == [sys.executable]
    assert all(started[0][1][name] == "1" for name in threads.VARIABLES)
    assert threads.hold(1) == torch.get_num_threads() == 1
    assert len(started) == 1  # as the variables say so already


def test_errors_of_gradients_are_those_of_float32() -> None:
    found = accuracy.errors("mlp-b1", 0, ("cpu",), False)
    assert tuple(found) == ("pytorch", "cpu")
    assert all(1e-8 < error < 1e-5 for error in found.values()), found


def test_layers_with_relu_get_silu() -> None:
    net = accuracy.smoothed(dl, accuracy.densenet(dl))
    kinds = {type(module).__name__ for module in net.modules()}
    assert "SiLU" in kinds
    assert "ReLU" not in kinds


@pytest.mark.full
@pytest.mark.slow
def test_first_steps_are_measured_with_kernels_and_without() -> None:
    [found] = first_step.rounds("mlp-b1", 1, True, {})
    assert tuple(found) == first_step.WAYS["cpu"]
    assert all(times[part] > 0 for times in found.values() for part in first_step.PARTS)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.vulkan
def test_first_steps_are_measured_on_a_device() -> None:
    need("vulkan:0")
    [found] = first_step.rounds("mlp-b1", 1, True, {}, "vulkan:0", compiled=True)
    assert tuple(found) == first_step.WAYS["gpu"]
    assert all(times[part] > 0 for times in found.values() for part in first_step.PARTS)


# What calls cost


@pytest.mark.parametrize("name", list(overhead.OPS))
def test_calls_compute_what_pytorch_computes(name: str) -> None:
    results, gradients = [], []
    for lib in (dl, torch):
        subject = overhead.op_subject(lib, overhead.OPS[name], "cpu")
        for leaf in subject.leaves:
            leaf.requires_grad_(True)
        result = subject.call()
        (result * result).sum().backward()
        results.append(result.detach().numpy())
        gradients.append([leaf.grad.numpy() for leaf in subject.leaves])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-5)
    assert gradients[0]
    for ours, theirs in zip(*gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("lib", [dl, torch], ids=["dl4all", "PyTorch"])
def test_all_calls_can_be_made_again(lib: Any) -> None:
    for subject in overhead.subjects(lib, "cpu").values():
        for mode in overhead.MODES if subject.leaves else overhead.MODES[:1]:
            call = overhead.timed(subject, mode)
            call()
            call()


def test_costs_are_printed_beside_pytorchs() -> None:
    found = overhead.measure("cpu", ("matmul", "Adam,"), 1, 2)
    assert list(found) == ["matmul", "batched matmul", "Adam, 20 parameters"]
    assert list(found["matmul"]) == list(overhead.MODES)
    assert list(found["Adam, 20 parameters"]) == [overhead.MODES[0]]
    times = {mode: {"dl4all": 6.0, "PyTorch": 2.0} for mode in overhead.MODES}
    table = overhead.table({"add": times, "step": {overhead.MODES[0]: {"dl4all": 1.0, "PyTorch": 12.0}}})
    assert list(table.columns[1].cells) == ["6.0, 2.0 (3.0)", "1.0, 12.0 (0.1)", "0.50"]
    assert list(table.columns[3].cells) == ["6.0, 2.0 (3.0)", "", "3.00"]
