"""Learners, and what flows back through their steps, beside PyTorch's functional transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.func import functional_call, grad

import dl4all as dl
from dl4all.errors import ArgumentError, GradientError
from dl4all.meta.maml import adapted

F = dl.nn.functional
TASKS = 3


def net() -> dl.nn.Module:
    """Layers whose second derivatives are not 0."""
    return dl.nn.Sequential(
        dl.nn.Conv2d(2, 3, 3, padding=1), dl.nn.Tanh(), dl.nn.Flatten(), dl.nn.Linear(27, 4), dl.nn.GELU(),
        dl.nn.Linear(4, 2),
    ).double()  # fmt: skip


def torch_net(like: dl.nn.Module) -> torch.nn.Module:
    made = torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 3, padding=1), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(27, 4),
        torch.nn.GELU(), torch.nn.Linear(4, 2),
    ).double()  # fmt: skip
    made.load_state_dict({name: torch.tensor(t.detach().numpy()) for name, t in like.state_dict().items()})
    return made


def numbers(*shape: int) -> Any:
    return np.random.default_rng(len(shape) + shape[0]).standard_normal(shape)


def tasks() -> list[Any]:
    """Inputs and targets to adapt to, and others to be measured on."""
    draw = np.random.default_rng(7)
    return [draw.standard_normal((TASKS, n, *tail)) for n in (5, 4) for tail in ((2, 3, 3), (2,))]


def expected(model: torch.nn.Module, head: str, rates: Any, steps: int, first_order: bool) -> Any:
    """The gradients of the mean loss of the tasks by parameter, as PyTorch computes them."""
    own = dict(model.named_parameters())
    names = [name for name in own if name.startswith(head)]

    def loss(adapting: Any, others: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.mse_loss(functional_call(model, {**others, **adapting}, (x,)), y)

    total: Any = 0.0
    for x, y, query_x, query_y in zip(*map(torch.tensor, tasks()), strict=True):
        current = dict(own)
        for _ in range(steps):
            gradients = grad(loss)({name: current[name] for name in names}, current, x, y)
            if first_order:
                gradients = {name: g.detach() for name, g in gradients.items()}
            current.update({name: current[name] - rates[name] * gradients[name] for name in names})
        total = total + loss({}, current, query_x, query_y) / TASKS
    total.backward()
    return {name: p.grad.numpy() for name, p in own.items() if p.grad is not None}


@pytest.mark.parametrize("way", ["learners", "vmap", "one by one"])
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("first_order", [False, True])
@pytest.mark.parametrize("kind", [dl.meta.MAML, dl.meta.ANIL, dl.meta.MetaSGD])
def test_gradients_are_those_of_pytorch(
    kind: type[dl.meta.MAML], first_order: bool, steps: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm = kind(net(), lr=0.1, first_order=first_order)
    other = torch_net(algorithm.module)
    names = [name for name, _ in algorithm.module.named_parameters()]
    rates: dict[str, Any] = dict.fromkeys(names, 0.1)
    if isinstance(algorithm, dl.meta.MetaSGD):
        draw = np.random.default_rng(3)
        for name, rate in zip(names, algorithm.lrs, strict=True):
            rate.data = dl.tensor(draw.uniform(0.05, 0.2, rate.shape))
            rates[name] = torch.tensor(rate.detach().numpy(), requires_grad=True)
    head = "5." if kind is dl.meta.ANIL else ""
    wanted = expected(other, head, rates, steps, first_order)
    given = [dl.tensor(part) for part in tasks()]
    if way == "learners":
        losses = []
        for x, y, query_x, query_y in zip(*given, strict=True):
            learner = algorithm.clone()
            for _ in range(steps):
                learner.adapt(F.mse_loss(learner(x), y))
            losses.append(F.mse_loss(learner(query_x), query_y))
        total = dl.stack(losses).mean()
    else:
        monkeypatch.setattr("dl4all.meta.maml._is_pure", lambda _: way == "vmap")
        total = algorithm.loss((given[0], given[1]), (given[2], given[3]), F.mse_loss, steps).mean()
    total.backward()
    for name, parameter in algorithm.module.named_parameters():
        assert parameter.grad is not None
        np.testing.assert_allclose(parameter.grad.numpy(), wanted[name], rtol=1e-6, atol=1e-9, err_msg=name)
    if isinstance(algorithm, dl.meta.MetaSGD):
        for name, rate in zip(names, algorithm.lrs, strict=True):
            assert rate.grad is not None
            np.testing.assert_allclose(rate.grad.numpy(), rates[name].grad.numpy(), rtol=1e-6, atol=1e-9)


def test_gradients_by_finite_differences() -> None:
    algorithm = dl.meta.MAML(
        dl.nn.Sequential(dl.nn.Linear(3, 2), dl.nn.Tanh(), dl.nn.Linear(2, 1)).double(), 0.2
    )
    x, y = dl.tensor(numbers(4, 5, 3)), dl.tensor(numbers(4, 5, 1))
    names = [name for name, _ in algorithm.module.named_parameters()]

    def loss(*parameters: dl.Tensor) -> dl.Tensor:
        current = dict(zip(names, parameters, strict=True))
        for _ in range(2):
            output = dl.func.functional_call(algorithm.module, current, x[0])
            current = adapted(algorithm, current, F.mse_loss(output, y[0]), False)
        return F.mse_loss(dl.func.functional_call(algorithm.module, current, x[1]), y[1])

    leaves = [p.detach().clone().requires_grad_() for _, p in algorithm.module.named_parameters()]
    assert dl.autograd.gradcheck(loss, tuple(leaves))


def test_training_on_each_device(device: str) -> None:
    """An initialisation from which few steps fit any line through the origin."""
    draw = np.random.default_rng(0)
    maml = dl.meta.MAML(dl.nn.Linear(1, 1).to(device), lr=0.3)
    optimizer = dl.optim.Adam(maml.parameters(), lr=0.1)
    for _ in range(60):
        slopes = draw.uniform(-2, 2, (8, 1, 1))
        parts = [part for x in draw.uniform(-1, 1, (2, 8, 6, 1)) for part in (x, slopes * x)]
        x, y, query_x, query_y = (dl.tensor(part.astype(np.float32), device=device) for part in parts)
        optimizer.zero_grad()
        loss = maml.loss((x, y), (query_x, query_y), F.mse_loss, 5).mean()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1 < float(np.var(parts[3]))


@pytest.mark.parametrize("make", [dl.meta.MAML, dl.meta.ANIL, dl.meta.MetaSGD])
def test_tasks_of_several_devices_are_those_of_one(make: Any) -> None:
    tasks, found = 11, []
    draw = np.random.default_rng(0)
    x = [draw.standard_normal((tasks, 5, 8)).astype(np.float32) for _ in range(2)]
    y = [draw.integers(0, 3, (tasks, 5)) for _ in range(2)]
    for devices in (["cpu"], ["vulkan:0", "kompute:0"]):
        dl.manual_seed(0)
        net = dl.nn.Sequential(dl.nn.Linear(8, 16), dl.nn.Tanh(), dl.nn.Linear(16, 3))
        algorithm = make(net, lr=0.2)
        losses = dl.parallel(dl.meta.TaskLosses(algorithm, F.cross_entropy, 3), devices)
        made = losses(*(dl.tensor(part) for part in (x[0], y[0], x[1], y[1])))
        made.mean().backward()
        found.append([made, *(parameter.grad for parameter in algorithm.parameters())])
    assert found[0][0].shape == (tasks,)
    for one, several in zip(*found, strict=True):
        np.testing.assert_allclose(several.detach().numpy(), one.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_a_compiled_loss_is_the_plain_one() -> None:
    maml = dl.meta.MAML(dl.nn.Sequential(dl.nn.Linear(3, 4), dl.nn.Tanh(), dl.nn.Linear(4, 1)), lr=0.1)
    rest = [dl.tensor(numbers(4 + n, 5, size).astype(np.float32)[:4]) for n, size in enumerate((3, 1, 3, 1))]

    def loss(x: dl.Tensor, y: dl.Tensor, query_x: dl.Tensor, query_y: dl.Tensor) -> dl.Tensor:
        return maml.loss((x, y), (query_x, query_y), F.mse_loss, 2).mean()

    compiled = dl.compile(loss)
    found = []
    for call in (loss, compiled, compiled):
        maml.zero_grad()
        call(*rest).backward()
        found.append([p.grad.numpy().copy() for p in maml.parameters() if p.grad is not None])
    for other in found[1:]:
        for left, right in zip(found[0], other, strict=True):
            np.testing.assert_allclose(right, left, rtol=1e-5, atol=1e-7)


def test_a_learner_leaves_the_network_as_it_is() -> None:
    module = dl.nn.Sequential(dl.nn.Linear(3, 4), dl.nn.BatchNorm1d(4), dl.nn.Linear(4, 2))
    maml = dl.meta.MAML(module, lr=0.5)
    before = {name: t.detach().numpy().copy() for name, t in module.state_dict().items()}
    x, y = dl.randn(6, 3), dl.randn(6, 2)
    learner = maml.clone()
    learner.adapt(F.mse_loss(learner(x), y))
    twin = learner.clone()
    learner.adapt(F.mse_loss(learner(x), y))
    first, second = learner(x).detach().numpy(), twin(x).detach().numpy()
    assert np.abs(first - second).max() > 1e-3
    assert np.abs(first - maml(x).detach().numpy()).max() > 1e-3
    module.eval()
    for name, t in module.state_dict().items():
        if "running" not in name and "num_batches" not in name:
            np.testing.assert_array_equal(t.detach().numpy(), before[name])
    losses = maml.loss(
        (dl.randn(2, 6, 3), dl.randn(2, 6, 2)), (dl.randn(2, 6, 3), dl.randn(2, 6, 2)), F.mse_loss
    )
    assert losses.shape == (2,)


@pytest.mark.parametrize("layer", ["BatchNorm1d", "Dropout"])
def test_layers_with_state_or_chance_go_one_by_one(layer: str) -> None:
    """Running statistics of the network itself stay, and each task draws its own dropout."""
    middle = dl.nn.BatchNorm1d(8) if layer == "BatchNorm1d" else dl.nn.Dropout(0.5)
    maml = dl.meta.MAML(dl.nn.Sequential(dl.nn.Linear(3, 8), middle, dl.nn.Linear(8, 2)), lr=0.1)
    before = {name: buffer.numpy().copy() for name, buffer in maml.named_buffers()}
    x, y = dl.randn(1, 6, 3).expand(4, 6, 3), dl.randn(1, 6, 2).expand(4, 6, 2)
    losses = maml.loss((x, y), (x, y), F.mse_loss).detach().numpy()
    assert losses.shape == (4,)
    assert (len(set(losses.tolist())) == 4) == (layer == "Dropout")
    for name, buffer in maml.named_buffers():
        np.testing.assert_array_equal(buffer.numpy(), before[name])


def test_unused_and_frozen_parameters() -> None:
    class Half(dl.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = dl.nn.Linear(2, 1), dl.nn.Linear(2, 1)

        def forward(self, x: dl.Tensor) -> dl.Tensor:
            output: dl.Tensor = self.used(x)
            return output

    x = dl.randn(4, 2)
    learner = dl.meta.MAML(Half(), lr=0.1).clone()
    with pytest.raises(GradientError, match=r"\[MAML\] a step needs a loss .* allow_unused=True"):
        learner.adapt(learner(x).sum())
    learner.adapt(learner(x).sum(), allow_unused=True)
    dl.meta.MAML(Half(), lr=0.1, allow_unused=True).clone().adapt(learner(x).sum())
    with pytest.raises(GradientError, match="a loss that the learner computed"):
        learner.adapt(dl.ones(1).sum())
    half = Half()
    half.unused.requires_grad_(False)
    with pytest.raises(ArgumentError, match=r"unused\.weight requires no gradients: allow_nograd=True"):
        dl.meta.MAML(half, lr=0.1)
    maml = dl.meta.MAML(half, lr=0.1, allow_nograd=True)
    assert maml.adapting() == ["used.weight", "used.bias"]
    learner = maml.clone()
    learner.adapt(learner(x).square().mean())
    assert learner.parameters["unused.weight"] is half.unused.weight


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dl.meta.MAML(dl.nn.Linear(1, 1), lr=0.0), r"\[MAML\] lr must be above 0, got 0.0"),
        (lambda: dl.meta.MAML(dl.nn.Linear(1, 1), lr=float("nan")), "got nan"),
        (lambda: dl.meta.MAML(dl.nn.ReLU(), lr=0.1), "no parameter that can adapt"),
        (lambda: dl.meta.ANIL(dl.nn.Linear(1, 1), lr=0.1, head="top"), "no parameter that can adapt"),
        (lambda: dl.meta.Reptile(dl.nn.Linear(1, 1), lr=0.1, meta_lr=-1.0), "meta_lr must be above 0"),
        (lambda: dl.meta.Reptile(dl.nn.Linear(1, 1), lr=0.1).update([]), "at least one"),
        (
            lambda: dl.meta.Reptile(dl.nn.Linear(1, 1), lr=0.1).update(
                [dl.meta.Reptile(dl.nn.Linear(1, 1), lr=0.1).clone()]
            ),
            "learners of this network",
        ),
    ],
)
def test_bad_settings(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


def test_sets_of_different_tasks() -> None:
    maml = dl.meta.MAML(dl.nn.Linear(1, 1), lr=0.1)
    x, more = dl.randn(3, 2, 1), dl.randn(4, 2, 1)
    for support, query, steps in (((x, more), (x, x), 1), ((x, x), (more, more), 1), ((x, x), (x, x), 0)):
        with pytest.raises(ArgumentError, match="one number of tasks in all tensors and at least one step"):
            maml.loss(support, query, F.mse_loss, steps)


def test_reptile_goes_to_the_mean_of_its_learners(device: str) -> None:
    reptile = dl.meta.Reptile(dl.nn.Linear(3, 2).to(device), lr=0.1, meta_lr=0.25)
    before = {name: p.detach().numpy().copy() for name, p in reptile.module.named_parameters()}
    learners = []
    for number in range(3):
        learner = reptile.clone()
        x = dl.tensor(numbers(4 + number, 3).astype(np.float32), device=device)
        for _ in range(number + 1):
            learner.adapt(learner(x).square().mean())
        learners.append(learner)
    reptile.update(learners)
    for name, parameter in reptile.module.named_parameters():
        mean = np.mean([learner.parameters[name].detach().numpy() for learner in learners], 0)
        wanted = before[name] + 0.25 * (mean - before[name])
        np.testing.assert_allclose(parameter.detach().numpy(), wanted, rtol=1e-5, atol=1e-6)
        assert parameter.requires_grad


@pytest.mark.parametrize("device", ["cpu", "vulkan:0"])
def test_compiled_losses_of_classes(device: str) -> None:
    dl.manual_seed(0)
    maml = dl.meta.MAML(dl.nn.Linear(6, 3), lr=0.3).to(device)
    x = dl.tensor(numbers(TASKS, 5, 6).astype(np.float32), device=device)
    labels = np.random.default_rng(1).integers(0, 3, (TASKS, 5))

    def loss(x: dl.Tensor, y: dl.Tensor) -> dl.Tensor:
        return maml.loss((x, y), (x * 0.5, y), F.cross_entropy, steps=2)

    compiled = dl.compile(loss)
    for turn in range(3):
        y = dl.tensor((labels + turn) % 3, device=device)
        np.testing.assert_allclose(compiled(x, y).detach().numpy(), loss(x, y).detach().numpy(), rtol=1e-5)
    with pytest.raises(ArgumentError, match="target 7 is not one of 3 classes"):
        compiled(x, dl.tensor(np.where(labels == 1, 7, labels), device=device)).tolist()
