"""Pipelines train as one device does, whatever the devices, the schedule and the cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, GradientError, ShapeError
from dl4all.ops.random.generator import default_generator
from dl4all.scheduler.cost.simulation import simulated_device
from tests.conftest import need
from tests.support.parallel_training import allocated

pytestmark = pytest.mark.usefixtures("deadline")

STEPS = 20
GROUPS = [
    pytest.param(["cpu", "cpu#1"], id="cpu twice"),
    pytest.param(["vulkan:0", "cpu"], marks=pytest.mark.vulkan, id="vulkan and cpu"),
    pytest.param(["vulkan:0", "vulkan:0#1", "cpu"], marks=pytest.mark.vulkan, id="vulkan twice and cpu"),
]
CROSS_ENTROPY = dl.nn.CrossEntropyLoss()


def mlp() -> dl.models.MLP:
    dl.manual_seed(3)
    return dl.models.MLP(12, [16, 16, 16], 4)


def convolutions() -> dl.nn.Sequential:
    """With statistics, layers that change their input, and shapes that change."""
    dl.manual_seed(4)
    return dl.nn.Sequential(
        dl.nn.Sequential(
            dl.nn.Conv2d(2, 4, 3, padding=1),
            dl.nn.BatchNorm2d(4),
            dl.nn.ELU(inplace=True),
            dl.nn.AvgPool2d(2),
        ),
        dl.nn.Conv2d(4, 6, 3),
        dl.nn.InstanceNorm2d(6, track_running_stats=True),
        dl.nn.Tanh(),
        dl.nn.Flatten(),
        dl.nn.Linear(24, 8),
        dl.nn.Sigmoid(),
        dl.nn.Linear(8, 3),
    )


def images(count: int, classes: int = 3) -> tuple[dl.Tensor, dl.Tensor]:
    dl.manual_seed(5)
    return dl.randn(count, 2, 8, 8, device="cpu"), dl.randint(0, classes, (count,), device="cpu")


def rows(count: int) -> tuple[dl.Tensor, dl.Tensor]:
    dl.manual_seed(6)
    return dl.randn(count, 12, device="cpu"), dl.randint(0, 4, (count,), device="cpu")


@contextmanager
def group_of(devices: Sequence[Any], timeout: float = 20.0) -> Iterator[dl.DeviceGroup]:
    for device in devices:
        if isinstance(device, str):
            need(device)
    with dl.DeviceGroup(devices, timeout=timeout) as group:
        yield group


def simulated(count: int, **facts: Any) -> list[dl.Device]:
    return [simulated_device(**facts) for _ in range(count)]


def state_of(model: dl.nn.Module) -> dict[str, npt.NDArray[Any]]:
    return {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}


def trained(
    model: dl.nn.Module, step: Callable[[], dl.Tensor], steps: int = STEPS
) -> tuple[list[float], dict[str, npt.NDArray[Any]]]:
    """The losses of some steps of SGD, and the state afterwards."""
    optimizer = dl.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        losses.append(float(step().item()))
        optimizer.step()
    return losses, state_of(model)


def accumulated(
    model: dl.nn.Module, inputs: dl.Tensor, targets: dl.Tensor, micro_batches: int, steps: int
) -> tuple[list[float], dict[str, npt.NDArray[Any]]]:
    """The same on one device, with the gradients of micro-batches added up."""

    def step() -> dl.Tensor:
        values: list[dl.Tensor] = []
        begin = 0
        for part in filter(len, np.array_split(np.arange(len(inputs)), micro_batches)):
            x, y = inputs[begin : begin + len(part)], targets[begin : begin + len(part)]
            begin += len(part)
            loss = CROSS_ENTROPY(model(x), y)
            loss = loss if len(part) == len(inputs) else loss * (len(part) / len(inputs))
            loss.backward()
            values.append(loss.detach())
        total = values[0]
        for value in values[1:]:
            total = total + value
        return total

    return trained(model, step, steps)


def assert_states_equal(state: dict[str, Any], expected: dict[str, Any]) -> None:
    assert state.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(state[name], array, name)


def largest_difference(state: dict[str, Any], expected: dict[str, Any]) -> float:
    return max(float(abs(state[name] - a).max() / abs(a).max()) for name, a in expected.items())


# The same as on one device


@pytest.mark.sampled(2)
@pytest.mark.parametrize("devices", GROUPS)
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("checkpoint", [False, True], ids=["kept", "checkpoint"])
def test_a_training(devices: list[str], schedule: Any, checkpoint: bool) -> None:
    inputs, targets = rows(13)  # one of the micro-batches is larger
    alone = mlp()
    before = state_of(alone)

    def step() -> dl.Tensor:
        loss: dl.Tensor = CROSS_ENTROPY(alone(inputs), targets)
        loss.backward()
        return loss

    losses, expected = trained(alone, step)
    assert losses[-1] < 0.5 * losses[0]
    assert largest_difference(before, expected) > 0.1
    model = mlp()
    with group_of(devices) as group:
        split = ["3", "6"][: len(devices) - 1]
        piped = dl.pipeline(model, group, schedule=schedule, checkpoint=checkpoint, split=split)
        assert [str(stage.device) for stage in piped.stages] == devices
        found, state = trained(model, lambda: piped.train_step(inputs, targets, CROSS_ENTROPY))
    np.testing.assert_allclose(found, losses, rtol=1e-6)
    assert largest_difference(state, expected) < 1e-6


@pytest.mark.sampled(2)
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("checkpoint", [False, True], ids=["kept", "checkpoint"])
@pytest.mark.parametrize(
    "split", [[2], [1, 3], [3, 4, 7], [1, 4, 5, 6, 7, 8, 9]], ids=lambda split: f"{len(split) + 1} stages"
)
def test_it_is_bit_by_bit_what_its_micro_batches_add_up_to(
    split: list[int], schedule: Any, checkpoint: bool
) -> None:
    inputs, targets = images(9)
    losses, expected = accumulated(convolutions(), inputs, targets, 4, steps=4)
    assert len(set(losses)) == 4
    model = convolutions()
    if checkpoint and split[0] == 2:  # the stage would begin with a layer that changes its input
        split = [3]
    with group_of(simulated(len(split) + 1)) as group:
        piped = dl.pipeline(model, group, schedule=schedule, checkpoint=checkpoint, split=split)
        found, state = trained(model, lambda: piped.train_step(inputs, targets, CROSS_ENTROPY), 4)
    assert found == losses
    assert_states_equal(state, expected)


@pytest.mark.parametrize("count", [1, 3, 5, 13])
@pytest.mark.parametrize("micro_batches", [1, 4])
def test_batches_of_any_size(count: int, micro_batches: int) -> None:
    inputs, targets = rows(count)
    losses, expected = accumulated(mlp(), inputs, targets, micro_batches, steps=2)
    model = mlp()
    with group_of(["cpu", "cpu#1"]) as group:
        piped = dl.pipeline(model, group, micro_batches=micro_batches, split=["3"])
        found, state = trained(model, lambda: piped.train_step(inputs, targets, CROSS_ENTROPY), 2)
    assert found == losses
    assert_states_equal(state, expected)


def test_an_automatic_split_trains_the_same() -> None:
    inputs, targets = rows(16)
    losses, expected = accumulated(mlp(), inputs, targets, 4, steps=3)
    model = mlp()
    with group_of(simulated(3, gflops=0.001, launch_us=0.0, link_us=0.0)) as group:
        piped = dl.pipeline(model, group, example=inputs)
        assert len(piped.stages) == 3
        found, state = trained(model, lambda: piped.train_step(inputs, targets, CROSS_ENTROPY), 3)
    assert found == losses
    assert_states_equal(state, expected)


def test_the_same_with_an_optimizer_from_before_that_has_a_state() -> None:
    inputs, targets = rows(8)
    states = []
    for piped in (False, True):
        model = mlp()
        optimizer = dl.optim.Adam(model.parameters())
        CROSS_ENTROPY(model(inputs), targets).backward()
        optimizer.step()
        with group_of(["cpu", "cpu#1"]) as group:
            for _ in range(2):
                optimizer.zero_grad()
                if piped:
                    pipeline = dl.pipeline(model, group, micro_batches=1, split=["6"])
                    pipeline.train_step(inputs, targets, CROSS_ENTROPY)
                else:
                    CROSS_ENTROPY(model(inputs), targets).backward()
                optimizer.step()
        states.append(state_of(model))
    assert_states_equal(states[1], states[0])


def test_a_language_model_whose_ends_share_a_parameter() -> None:
    """The first stage has the embedding, which is also the last stage's matrix."""
    dl.manual_seed(1)
    tokens, targets = dl.randint(0, 11, (6, 5)), dl.randint(0, 11, (6, 5))

    def loss(scores: dl.Tensor, wanted: dl.Tensor) -> dl.Tensor:
        return dl.nn.functional.cross_entropy(scores.flatten(0, 1), wanted.flatten())

    def gpt() -> dl.models.GPT:
        dl.manual_seed(2)
        return dl.models.GPT(11, 8, n_layer=2, n_head=2, n_embd=6)

    alone = gpt()

    def step() -> dl.Tensor:
        value = loss(alone(tokens), targets)
        value.backward()
        return value

    losses, expected = trained(alone, step, 5)
    for checkpoint in (False, True):
        model = gpt()
        with group_of(simulated(3)) as group:
            piped = dl.pipeline(
                model, group, checkpoint=checkpoint, split=["transformer.h.1", "lm_head"], micro_batches=3
            )
            found, state = trained(model, lambda: piped.train_step(tokens, targets, loss), 5)  # noqa: B023
        np.testing.assert_allclose(found, losses, rtol=1e-6)
        assert largest_difference(state, expected) < 2e-6
        assert model.lm_head.weight is model.get_parameter("transformer.wte.weight")
        assert model.lm_head.weight.device is piped.stages[0].device


# Gradients


def gradients_of(model: dl.nn.Module) -> dict[str, Any]:
    return {n: None if p.grad is None else p.grad.numpy().copy() for n, p in model.named_parameters()}


def test_gradients_add_to_those_that_are_there() -> None:
    inputs, targets = rows(8)
    model = mlp()
    with group_of(["cpu", "cpu#1"]) as group:
        piped = dl.pipeline(model, group, split=["3"])
        piped.train_step(inputs, targets, CROSS_ENTROPY)
        once = gradients_of(model)
        piped.train_step(inputs, targets, CROSS_ENTROPY)
    for name, gradient in gradients_of(model).items():
        assert abs(once[name]).max() > 0
        np.testing.assert_array_equal(gradient, 2 * once[name])


def test_a_loss_that_is_a_sum_is_added_up() -> None:
    inputs, targets = rows(7)
    summed = dl.nn.CrossEntropyLoss(reduction="sum")
    alone, model = mlp(), mlp()
    expected = summed(alone(inputs), targets)
    expected.backward()
    with group_of(["cpu", "cpu#1"]) as group:
        found = dl.pipeline(model, group, split=["3"]).train_step(inputs, targets, summed)
    np.testing.assert_allclose(found.item(), expected.item(), rtol=1e-6)
    assert largest_difference(gradients_of(model), gradients_of(alone)) < 1e-6


@pytest.mark.parametrize("frozen", [["0"], ["0", "3"], ["6", "9"], ["9"]], ids=str)
def test_layers_that_do_not_learn(frozen: list[str]) -> None:
    inputs, targets = rows(6)
    found: list[dict[str, Any]] = []
    for model in (mlp(), mlp()):
        for name in frozen:
            model.get_submodule(name).requires_grad_(False)
        with group_of(["cpu", "cpu#1", "cpu#2"]) as group:
            if found:
                piped = dl.pipeline(model, group, micro_batches=1, split=["3", "9"])
                piped.train_step(inputs, targets, CROSS_ENTROPY)
            else:
                CROSS_ENTROPY(model(inputs), targets).backward()
        found.append(gradients_of(model))
    assert [name for name, gradient in found[0].items() if gradient is None] == [
        f"{name}.{kind}" for name in frozen for kind in ("weight", "bias")
    ]
    for name, gradient in found[0].items():
        np.testing.assert_array_equal(found[1][name], gradient)


# Outputs and gradients through them


@pytest.mark.parametrize("devices", GROUPS)
def test_outputs_and_gradients_through_them(devices: list[str]) -> None:
    inputs, targets = rows(13)
    alone, model = mlp(), mlp()
    x = inputs.clone().requires_grad_()
    expected = CROSS_ENTROPY(alone(x), targets)
    expected.backward()
    with group_of(devices) as group:
        piped = dl.pipeline(model, group, split=["3", "6"][: len(devices) - 1])
        z = inputs.clone().requires_grad_()
        outputs = piped(z)
        assert str(outputs.device) == devices[-1]
        np.testing.assert_allclose(outputs.numpy(), alone(inputs).numpy(), rtol=1e-5, atol=1e-6)
        assert gradients_of(model) == dict.fromkeys(gradients_of(alone))
        loss = CROSS_ENTROPY(outputs, targets.to(outputs.device))
        loss.backward()
    np.testing.assert_allclose(loss.item(), expected.item(), rtol=1e-6)
    assert largest_difference(gradients_of(model), gradients_of(alone)) < 1e-6
    assert x.grad.device is z.grad.device
    assert largest_difference({"x": z.grad.numpy()}, {"x": x.grad.numpy()}) < 1e-6


def test_gradients_are_differentiated_once() -> None:
    inputs, _ = rows(5)
    with group_of(["cpu", "cpu#1"]) as group:
        model = mlp()
        piped = dl.pipeline(model, group, split=["3"])
        total = piped(inputs).sum()
        weight = model.get_parameter("0.weight")
        (gradient,) = dl.grad(total, weight)
        assert weight.grad is None
        assert abs(gradient.numpy()).max() > 0
        with pytest.raises(GradientError, match="freed"):
            total.backward()
        with pytest.raises(GradientError, match="cannot be differentiated again"):
            dl.grad(piped(inputs).sum(), weight, create_graph=True)


def test_inference_keeps_nothing() -> None:
    inputs, _ = images(9)
    reference, model = convolutions().eval(), convolutions()
    devices = simulated(3)
    with group_of(devices) as group:
        piped = dl.pipeline(model, group, split=[2, 5]).eval()
        assert not any(module.training for module in model.modules())
        held = allocated(group)
        with dl.no_grad():
            outputs = piped(inputs)
        assert not outputs.requires_grad
        np.testing.assert_allclose(outputs.numpy(), reference(inputs).numpy(), rtol=1e-5)
        del outputs
        assert allocated(group) == held
        assert piped.train().training
        assert model.get_submodule("0.1").training


# Random numbers


def dropouts() -> dl.nn.Sequential:
    dl.manual_seed(8)
    layers = [layer for _ in range(4) for layer in (dl.nn.Linear(12, 12), dl.nn.Dropout(0.5))]
    return dl.nn.Sequential(*layers)


def test_random_numbers_do_not_depend_on_the_cut() -> None:
    inputs, _ = rows(10)
    found = []
    for split, schedule, checkpoint in (
        ([4], "1f1b", False),
        ([1, 2, 7], "1f1b", False),
        ([2, 3], "gpipe", False),
        ([1, 6], "1f1b", True),
    ):
        model = dropouts()
        with group_of(["cpu", "cpu#1", "cpu#2", "cpu#3"]) as group:
            piped = dl.pipeline(model, group, split=split, schedule=schedule, checkpoint=checkpoint)  # type: ignore[arg-type]
            dl.manual_seed(9)
            losses = [
                piped.train_step(inputs, inputs * 0.5, dl.nn.functional.mse_loss).item() for _ in range(2)
            ]
        assert losses[0] != losses[1]
        found.append((losses, gradients_of(model)))
    for losses, gradients in found[1:]:
        assert losses == found[0][0]
        assert_states_equal(gradients, found[0][1])


def test_micro_batches_draw_numbers_of_their_own() -> None:
    ones = dl.ones(8, 50)
    with group_of(["cpu", "cpu#1"]) as group:
        model = dl.nn.Sequential(dl.nn.Dropout(0.5), dl.nn.Dropout(0.5))
        outputs = dl.pipeline(model, group, split=[1])(ones).numpy()
    kept = {tuple(row) for row in outputs}
    assert len(kept) == 8
    assert 0.15 < (outputs > 0).mean() < 0.35  # a quarter: the layers draw different numbers


def test_the_default_generator_goes_on_only_if_numbers_were_drawn() -> None:
    inputs, targets = rows(8)
    with group_of(["cpu", "cpu#1"]) as group:
        state = default_generator().get_state()
        piped = dl.pipeline(mlp(), group, split=["3"])
        state = default_generator().get_state()
        piped.train_step(inputs, targets, CROSS_ENTROPY)
        assert default_generator().get_state() == state
        random = dl.pipeline(dropouts(), group, split=[4])
        state = default_generator().get_state()
        random.train_step(inputs, inputs, dl.nn.functional.mse_loss)
        assert default_generator().get_state() != state


# What cannot be


def test_what_a_pipeline_refuses() -> None:
    inputs, targets = rows(8)
    with group_of(["cpu", "cpu#1"]) as group:
        piped = dl.pipeline(mlp(), group, split=["3"])
        with pytest.raises(ShapeError, match=r"as many targets as inputs, got \(7,\) and \(8, 12\)"):
            piped.train_step(inputs, targets[:7], CROSS_ENTROPY)
        with pytest.raises(ShapeError, match=r"inputs along its first axis, got \(0, 12\)"):
            piped(inputs[:0])
        with pytest.raises(ArgumentError, match="cannot move to cpu"):
            piped.to("cpu")
        assert piped.to("float64").model.get_parameter("0.weight").dtype == np.float64
        with pytest.raises(ArgumentError, match="needs example="):
            dl.pipeline(mlp(), group)
        with pytest.raises(ArgumentError, match="expected a schedule"):
            dl.pipeline(mlp(), group, split=["3"], schedule="zb")  # type: ignore[arg-type]
        with pytest.raises(ArgumentError, match="at least 1"):
            dl.pipeline(mlp(), group, split=["3"], micro_batches=0)
        with pytest.raises(ArgumentError, match="LSTMTagger is no chain of layers"):
            dl.pipeline(dl.models.LSTMTagger(9, 3), group, split=[1])


def test_a_module_in_two_stages_is_refused() -> None:
    shared = dl.nn.Linear(4, 4)
    model = dl.nn.Sequential(dl.nn.Linear(4, 4), shared, dl.nn.Tanh(), shared)
    with group_of(["cpu", "cpu#1"]) as group:
        with pytest.raises(ArgumentError, match="no stage can begin with 2: 1 and 3 are one module"):
            dl.pipeline(model, group, split=[2])
        assert len(dl.pipeline(model, group, split=[1]).stages) == 2


def test_a_stage_that_returns_no_tensor_is_named() -> None:
    class Two(dl.nn.Module):
        def forward(self, x: dl.Tensor) -> tuple[dl.Tensor, dl.Tensor]:
            return x, x

    model = dl.nn.Sequential(dl.nn.Linear(4, 4), Two(), dl.nn.Linear(4, 4))
    with group_of(["cpu", "cpu#1"]) as group:
        piped = dl.pipeline(model, group, split=[2])
        with pytest.raises(ArgumentError, match=r"<stage 0 on cpu: 0 to 1> returns tuple"):
            piped(dl.ones(4, 4))


def test_a_stage_that_changes_its_input_cannot_be_computed_again() -> None:
    inputs, targets = images(8)
    with group_of(["cpu", "cpu#1"]) as group:
        piped = dl.pipeline(convolutions(), group, split=["0.2"], checkpoint=True)
        with pytest.raises(GradientError, match="changes its input in place"):
            piped.train_step(inputs, targets, CROSS_ENTROPY)
