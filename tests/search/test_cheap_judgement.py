"""Ready-made spaces, proxies, shared weights, and gradients that choose between operations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import dl4all as dl
from dl4all.errors import ArgumentError
from dl4all.search import proxies, spaces
from tests.search.spaces import conditional

F = dl.nn.functional


def digits(count: int) -> tuple[dl.Tensor, dl.Tensor]:
    draw = np.random.default_rng(count)
    return dl.tensor(draw.standard_normal((count, 3)).astype(np.float32)), dl.tensor(
        draw.integers(0, 2, count)
    )


READY = {
    "mlp": (spaces.mlp(64, 10), (5, 1, 8, 8), 10),
    "nas_bench_201": (spaces.nas_bench_201(1, 10, width=4, cells=1), (5, 1, 8, 8), 10),
    "resnet": (spaces.resnet(1, 10), (5, 1, 9, 7), 10),
    "mobilenet": (spaces.mobilenet(3, 4, widths=(8, 12)), (5, 3, 17, 16), 4),
    "transformer": (spaces.transformer(3, 2, widths=(8, 16)), (5, 7, 3), 2),
    "rnn": (spaces.rnn(3, 2), (5, 7, 3), 2),
}


def test_transformers_tell_orders_apart() -> None:
    net, _, _ = READY["transformer"]
    space = dl.search.Space(net)
    model, x = space.build(space.draw(seed=0)).eval(), dl.rand(1, 7, 3)
    assert np.abs((model(x) - model(x[:, [6, 5, 4, 3, 2, 1, 0]])).detach().numpy()).max() > 1e-3


@pytest.mark.parametrize("name", READY)
def test_ready_made_spaces_train(name: str) -> None:
    net, shape, classes = READY[name]
    space = dl.search.Space(net)
    assert space.exact
    for seed in range(3):
        model = space.build(space.draw(seed))
        scores = model(dl.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32)))
        assert scores.shape == (5, classes)
        F.cross_entropy(scores, dl.tensor([0, 1, 0, 1, 1])).backward()
        gradients = [p.grad.numpy() for p in model.parameters() if p.grad is not None]
        assert gradients
        assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_cells_without_a_way_through_say_nothing() -> None:
    space = dl.search.Space(spaces.nas_bench_201(1, 10, width=4, cells=1))
    assert space.size == 5**6
    nothing = dict.fromkeys(space.dimensions, "none")
    assert space.build(nothing)(dl.rand(2, 1, 8, 8)).shape == (2, 10)
    dead_end = {**nothing, "0 to 1": "nor_conv_3x3", "2 to 3": "skip_connect"}
    assert space.build(dead_end)(dl.rand(2, 1, 8, 8)).shape == (2, 10)


def network(width: int = 6) -> dl.nn.Sequential:
    dl.manual_seed(3)
    return dl.nn.Sequential(
        dl.nn.Linear(3, width), dl.nn.BatchNorm1d(width), dl.nn.ReLU(), dl.nn.Linear(width, 2)
    )


def torch_network() -> torch.nn.Module:
    made = torch.nn.Sequential(
        torch.nn.Linear(3, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU(), torch.nn.Linear(6, 2)
    )
    made.load_state_dict({k: torch.tensor(t.detach().numpy()) for k, t in network().state_dict().items()})
    return made


def test_scores_of_gradients_are_those_of_pytorch(device: str) -> None:
    x, y = digits(10)
    other = torch_network()
    loss = torch.nn.functional.cross_entropy(other(torch.tensor(x.numpy())), torch.tensor(y.numpy()))
    torch.autograd.backward(loss)
    parts = [(p.detach().numpy(), p.grad.numpy()) for p in other.parameters() if p.grad is not None]
    model, x, y = network().to(device), x.to(device), y.to(device)
    assert proxies.grad_norm(model, x, y) == pytest.approx(sum(np.linalg.norm(g) for _, g in parts), rel=1e-4)
    assert proxies.snip(model, x, y) == pytest.approx(sum(np.abs(p * g).sum() for p, g in parts), rel=1e-4)


def test_the_jacobians_score_is_that_of_pytorch(device: str) -> None:
    x, _ = digits(10)
    leaf = torch.tensor(x.numpy(), requires_grad=True)
    torch_network()(leaf).sum().backward()
    assert leaf.grad is not None
    values = np.linalg.eigvalsh(np.corrcoef(leaf.grad.numpy().astype(np.float64))).clip(0) + 1e-5
    found = proxies.jacob_cov(network().to(device), x.to(device))
    assert found == pytest.approx(-np.sum(np.log(values) + 1 / values), rel=0.02)


def test_rectifiers_in_common(device: str) -> None:
    x, _ = digits(6)
    model: Any = network(32)
    hidden = model[1](model[0](x)).detach().numpy() > 0
    common = [[(left == right).sum() for right in hidden] for left in hidden]
    _, wanted = np.linalg.slogdet(np.array(common, np.float64))
    assert proxies.naswot(network(32).to(device), x.to(device)) == pytest.approx(wanted, rel=1e-6)
    assert proxies.naswot(dl.nn.Sequential(dl.nn.Flatten(), dl.nn.ReLU()), dl.ones(3, 2)) == -math.inf


def test_flow_of_deep_and_dead_networks() -> None:
    deep = dl.nn.Sequential(*[dl.nn.Linear(50, 50) for _ in range(60)])
    with dl.no_grad():
        for parameter in deep.parameters():
            parameter.fill_(100.0)
    assert 500 < proxies.synflow(deep, dl.zeros(2, 50)) < 600  # of a number that float32 does not have
    dead = dl.nn.Linear(2, 2)
    with dl.no_grad():
        for parameter in dead.parameters():
            parameter.zero_()
    assert proxies.synflow(dead, dl.zeros(1, 2)) == -math.inf


def test_zen_scores_know_depth_and_width(device: str) -> None:
    dl.manual_seed(0)
    scores = [proxies.zen(network(width).to(device), dl.zeros(64, 3, device=device)) for width in (2, 64)]
    assert scores[1] > scores[0]


JUDGES: dict[str, Callable[..., float]] = {
    "grad_norm": lambda m, x, y: proxies.grad_norm(m, x, y),
    "snip": lambda m, x, y: proxies.snip(m, x, y),
    "synflow": lambda m, x, y: proxies.synflow(m, x),
    "jacob_cov": lambda m, x, y: proxies.jacob_cov(m, x),
    "naswot": lambda m, x, y: proxies.naswot(m, x),
    "zen": lambda m, x, y: proxies.zen(m, x),
}


@pytest.mark.parametrize("name", JUDGES)
def test_proxies_leave_the_network_as_it_is(name: str) -> None:
    model, (x, y) = network(64).eval(), digits(8)
    before = {key: t.detach().numpy().copy() for key, t in model.state_dict().items()}
    assert math.isfinite(JUDGES[name](model, x, y))
    assert not model.training
    assert all(p.grad is None for p in model.parameters())
    for key, t in model.state_dict().items():
        np.testing.assert_array_equal(t.detach().numpy(), before[key])


def test_proxies_of_too_little() -> None:
    for proxy in (proxies.jacob_cov, proxies.naswot):
        with pytest.raises(ArgumentError, match=r"at least two samples, .* got 1"):
            proxy(network(), dl.ones(1, 3))
    with pytest.raises(ArgumentError, match="no ReLU module"):
        proxies.naswot(dl.nn.Linear(3, 2), dl.ones(2, 3))


def elastic(s: dl.search.Choices) -> dl.nn.Module:
    """Networks that share what they can: widths, a kernel, and a layer that not all have."""
    width, kernel = s.choice("width", [2, 5]), s.choice("kernel", [1, 3])
    more = s.optional("more", lambda s: dl.nn.Linear(2 * width, s.choice("hidden", [3, 7])))
    layers = [dl.nn.Conv1d(1, width, kernel, padding=kernel // 2), dl.nn.BatchNorm1d(width), dl.nn.ReLU()]
    layers += [dl.nn.AdaptiveAvgPool1d(2), dl.nn.Flatten()]
    layers += [] if more is None else [more, dl.nn.ReLU()]
    return dl.nn.Sequential(*layers, dl.nn.Linear(2 * width if more is None else more.out_features, 2))


def waves(count: int, seed: int) -> tuple[dl.Tensor, dl.Tensor]:
    """Noise, in some of it a step in the middle."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, count)
    x = draw.standard_normal((count, 1, 12)) + labels[:, None, None] * np.repeat([-1, 1], 6)
    return dl.tensor(x.astype(np.float32)), dl.tensor(labels)


@pytest.mark.parametrize("sampling", ["uniform", "sandwich"])
def test_shared_weights_learn_for_all_networks(sampling: Any) -> None:
    space = dl.search.Space(elastic)
    supernet = dl.search.Supernet(space)
    batches = [waves(32, seed) for seed in range(12)]
    optimizer = dl.optim.Adam(supernet.parameters(), lr=0.01)
    supernet.fit(batches, optimizer, epochs=15, sampling=sampling)
    x, y = waves(400, 99)
    for seed in range(6):
        values = space.draw(seed)
        model: Any = supernet.subnet(values, batches)
        told = model.eval()(x).argmax(1).numpy() == y.numpy()
        assert told.mean() > 0.8, values


def test_shared_weights_are_parts_of_the_largest_network() -> None:
    space = dl.search.Space(elastic)
    supernet = dl.search.Supernet(space)
    given = {"kernel": 3, "more": True, "more.hidden": 7}
    wide, narrow = (supernet.subnet({**given, "width": width}) for width in (5, 2))
    np.testing.assert_array_equal(narrow[0].weight.detach().numpy(), wide[0].weight.detach().numpy()[:2])
    np.testing.assert_array_equal(narrow[5].weight.detach().numpy(), wide[5].weight.detach().numpy()[:, :4])
    assert np.abs(wide[0].weight.detach().numpy()).min() > 0  # drawn, and not left empty
    pointwise = supernet.subnet({**given, "width": 5, "kernel": 1})
    assert np.abs(pointwise[0].weight.detach().numpy() - wide[0].weight.detach().numpy()[:, :, 1:2]).max() > 0
    with dl.no_grad():
        narrow[0].weight.fill_(9.0)  # a copy
    again = supernet.subnet({**given, "width": 2})
    assert np.abs(again[0].weight.detach().numpy()).max() < 5
    assert supernet(dl.randn(3, 1, 12)).shape == (3, 2)


def test_only_what_a_network_has_is_trained() -> None:
    supernet = dl.search.Supernet(dl.search.Space(elastic))
    before = [p.detach().numpy().copy() for p in supernet.parameters()]
    optimizer = dl.optim.SGD(supernet.parameters(), lr=0.1)
    supernet.fit([waves(16, 0)], optimizer)
    changed = [
        np.abs(p.detach().numpy() - old).max() > 0
        for p, old in zip(supernet.parameters(), before, strict=True)
    ]
    assert 0 < sum(changed) < len(changed)


def test_supernets_that_cannot_be() -> None:
    with pytest.raises(ArgumentError, match="is to make modules"):
        dl.search.Supernet(dl.search.Space(lambda s: s.integer("n", 1, 2)))
    supernet = dl.search.Supernet(dl.search.Space(conditional))
    with pytest.raises(ArgumentError, match="'uniform' or 'sandwich', got 'all'"):
        supernet.fit([], None, sampling="all")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ArgumentError, match="no value for kind"):
        supernet.subnet({})
    most = 100

    def grows(s: dl.search.Choices) -> dl.nn.Module:
        return dl.nn.Linear(s.integer("inputs", 1, most), 1)

    supernet = dl.search.Supernet(dl.search.Space(grows))
    most = 200
    with pytest.raises(ArgumentError, match=r"no weights for weight of shape \(1, 150\)"):
        supernet.subnet({"inputs": 150})


def mixed() -> dl.nn.Sequential:
    operations = {"tanh": dl.nn.Tanh(), "linear": dl.nn.Linear(2, 2), "relu": dl.nn.ReLU()}
    return dl.nn.Sequential(dl.nn.Linear(3, 2), dl.search.MixedOp(operations), dl.nn.Linear(2, 1))


@pytest.mark.parametrize("step_size", [0.0, 0.3])
def test_the_architectures_gradient_is_that_of_pytorch(step_size: float) -> None:
    """Through the network's own step: second derivatives, which finite differences of the loss confirm."""
    dl.manual_seed(1)
    model = mixed()
    model.double()
    with dl.no_grad():
        model[1].alpha.copy_(dl.tensor([0.3, -0.2, 0.1], dtype=dl.float64))
    draw = np.random.default_rng(2)
    (x, y), (held_x, held_y) = (
        (draw.standard_normal((6, 3)), draw.standard_normal((6, 1))) for _ in range(2)
    )
    state = {
        name: torch.tensor(t.detach().numpy(), requires_grad=True) for name, t in model.state_dict().items()
    }

    def output(p: Any, inputs: Any) -> Any:
        hidden = inputs @ p["0.weight"].T + p["0.bias"]
        parts = (
            torch.tanh(hidden),
            hidden @ p["1.operations.linear.weight"].T + p["1.operations.linear.bias"],
            hidden.relu(),
        )
        chances = torch.softmax(p["1.alpha"], 0)
        return sum(c * part for c, part in zip(chances, parts, strict=True)) @ p["2.weight"].T + p["2.bias"]

    def loss(p: Any, inputs: Any, targets: Any) -> Any:
        return torch.nn.functional.mse_loss(output(p, torch.tensor(inputs)), torch.tensor(targets))

    names = [name for name in state if name != "1.alpha"]
    gradients = torch.autograd.grad(loss(state, x, y), [state[n] for n in names], create_graph=True)
    moved = {**state, **{n: state[n] - step_size * g for n, g in zip(names, gradients, strict=True)}}
    judged = loss(moved, held_x, held_y)
    (wanted,) = torch.autograd.grad(judged, [state["1.alpha"]])

    seen: list[Any] = []

    class Recorder:
        def __init__(self, parameters: Any) -> None:
            self.parameters = parameters

        def step(self) -> None:
            seen.append(self.parameters[0].grad.numpy().copy())

    search = dl.search.DARTS(model, loss=F.mse_loss, step_size=step_size)
    search.architecture_optimizer = Recorder(search.alphas())
    given = [tuple(map(dl.tensor, pair)) for pair in ((x, y), (held_x, held_y))]
    losses = search.step(*given)  # type: ignore[arg-type]  # pairs
    np.testing.assert_allclose(seen[0], wanted.numpy(), rtol=1e-6, atol=1e-12)
    assert losses[0] == pytest.approx(judged.item())
    assert losses[1] == pytest.approx(loss(state, x, y).item())


def test_gradients_choose_the_operation_that_fits(device: str) -> None:
    dl.manual_seed(0)
    operations = {"zero": dl.nn.Hardshrink(1e9), "negative": _Negative(), "square": _Square()}
    model = dl.nn.Sequential(dl.search.MixedOp(operations), dl.nn.Linear(1, 1, bias=False)).to(device)
    optimizer = dl.optim.Adam([{"params": [model[0].alpha]}], lr=0.1)
    search = dl.search.DARTS(model, architecture_optimizer=optimizer, loss=F.mse_loss, step_size=0.05)
    draw = np.random.default_rng(0)
    for _ in range(40):
        x = [dl.tensor(draw.standard_normal((32, 1)).astype(np.float32), device=device) for _ in range(2)]
        first, last = ((part, part * part) for part in x)
        search.step(first, last)
    assert model[0].chosen == "square"
    derived: Any = search.derived()
    assert isinstance(derived[0], _Square)
    assert isinstance(model[0], dl.search.MixedOp)
    assert derived[0] is not model[0].operations["square"]


class _Negative(dl.nn.Module):
    def forward(self, x: dl.Tensor) -> dl.Tensor:
        return -x


class _Square(dl.nn.Module):
    def forward(self, x: dl.Tensor) -> dl.Tensor:
        return x * x


def test_searches_without_a_choice() -> None:
    with pytest.raises(ArgumentError, match="at least two operations, got 1"):
        dl.search.MixedOp({"relu": dl.nn.ReLU()})
    with pytest.raises(ArgumentError, match="0 of them"):
        dl.search.DARTS(dl.nn.Linear(1, 1))
    with pytest.raises(ArgumentError, match="got 1 of them and -1"):
        dl.search.DARTS(mixed(), step_size=-1)
    alone = dl.search.DARTS(dl.search.MixedOp({"relu": dl.nn.ReLU(), "linear": dl.nn.Linear(1, 1)}))
    assert isinstance(alone.derived(), dl.nn.ReLU)
