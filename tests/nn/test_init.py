"""Initial values: bounds and deviations as PyTorch has them, the same on every device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, ShapeError
from dl4all.nn import init

torch = pytest.importorskip("torch", reason="gains and deviations are compared with PyTorch's")

SHAPE = (60, 40, 5, 5)
COUNT = math.prod(SHAPE)
NO_MODE: Any = "fan"
RANDOM: dict[str, Any] = {
    "uniform_": lambda m, x: m.uniform_(x, -2.0, 3.0),
    "normal_": lambda m, x: m.normal_(x, 1.0, 0.3),
    "trunc_normal_": lambda m, x: m.trunc_normal_(x, 0.5, 2.0, -1.0, 3.0),
    "xavier_uniform_": lambda m, x: m.xavier_uniform_(x, 1.7),
    "xavier_normal_": lambda m, x: m.xavier_normal_(x, 1.7),
    "kaiming_uniform_": lambda m, x: m.kaiming_uniform_(x),
    "kaiming_uniform_, sqrt(5)": lambda m, x: m.kaiming_uniform_(x, a=math.sqrt(5)),
    "kaiming_normal_, fan_out": lambda m, x: m.kaiming_normal_(x, mode="fan_out", nonlinearity="relu"),
    "kaiming_normal_": lambda m, x: m.kaiming_normal_(x, 0.2),
}


@pytest.mark.parametrize(("shape", "groups"), [((5, 3, 4), 1), ((4, 3, 3, 2), 2), ((6, 2, 3, 1, 5), 3)])
def test_filters_that_pass_their_input_on(shape: tuple[int, ...], groups: int, device: str) -> None:
    found = init.dirac_(dl.empty(*shape, device=device), groups).numpy()
    np.testing.assert_array_equal(found, torch.nn.init.dirac_(torch.empty(shape), groups).numpy())


@pytest.mark.parametrize("name", RANDOM)
def test_moments_are_pytorch_s(name: str, device: str) -> None:
    """Mean, deviation and range; and the same numbers on every device."""
    dl.manual_seed(1)
    torch.manual_seed(1)
    x = dl.nn.Parameter(dl.empty(*SHAPE, device=device))
    assert RANDOM[name](init, x) is x
    mine = x.detach().numpy().astype(np.float64)
    theirs = RANDOM[name](torch.nn.init, torch.empty(*SHAPE)).numpy()
    error = theirs.std() / math.sqrt(COUNT)
    assert abs(mine.mean() - theirs.mean()) < 8 * error
    assert abs(mine.std() / theirs.std() - 1) < 8 / math.sqrt(COUNT)
    if "uniform" in name or "trunc" in name:
        np.testing.assert_allclose([mine.min(), mine.max()], [theirs.min(), theirs.max()], atol=8 * error)
    dl.manual_seed(1)
    again = RANDOM[name](init, dl.empty(*SHAPE, device="cpu"))
    np.testing.assert_array_equal(again.numpy(), x.detach().numpy())
    assert x.is_leaf
    assert x.requires_grad


def test_truncated_normal_distribution() -> None:
    x = init.trunc_normal_(dl.empty(100_000, device="cpu"), 1.0, 2.0, 0.0, 1.5).numpy().astype(np.float64)
    cdf = np.array([0.5 * math.erfc((1 - v) / 2 / math.sqrt(2)) for v in np.sort(x)])
    low, high = (0.5 * math.erfc((1 - v) / 2 / math.sqrt(2)) for v in (0.0, 1.5))
    distance = np.abs((cdf - low) / (high - low) - (np.arange(len(x)) + 0.5) / len(x)).max()
    assert distance * math.sqrt(len(x)) < 2
    far = init.trunc_normal_(dl.empty(1000, device="cpu"), 0.0, 1.0, 8.0, 9.0).numpy()
    assert far.min() >= 8
    assert far.max() <= 9


@pytest.mark.parametrize(
    "name", ["linear", "conv2d", "conv_transpose3d", "sigmoid", "tanh", "relu", "selu", "leaky_relu"]
)
def test_gains(name: str) -> None:
    assert init.calculate_gain(name) == pytest.approx(torch.nn.init.calculate_gain(name))
    if name == "leaky_relu":
        assert init.calculate_gain(name, 0.3) == pytest.approx(torch.nn.init.calculate_gain(name, 0.3))


@pytest.mark.parametrize("shape", [(7, 5), (5, 7), (6, 6), (4, 3, 5), (3, 0)])
def test_orthogonal(shape: tuple[int, ...], device: str) -> None:
    x = init.orthogonal_(dl.empty(*shape, device=device), 2.0).numpy().astype(np.float64)
    flat = x.reshape(shape[0], -1)
    product = flat @ flat.T if flat.shape[0] <= flat.shape[1] else flat.T @ flat
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-5)


def test_constants(device: str) -> None:
    whole = dl.ones(5, 7, device=device)
    assert init.constant_(whole[1:3], 2.5).tolist() == [[2.5] * 7] * 2
    assert init.zeros_(whole[3:]).tolist() == [[0] * 7] * 2
    assert whole.numpy().sum() == 7 + 35
    assert init.ones_(dl.empty(3, device=device)).tolist() == [1, 1, 1]
    np.testing.assert_array_equal(init.eye_(dl.empty(3, 5, device=device)).numpy(), np.eye(3, 5))
    w = dl.tensor([1.0, 2.0], device=device).requires_grad_()
    version = w.storage.version
    init.zeros_(w)
    assert w.storage.version > version


def test_parts_of_weights(device: str) -> None:
    """As for the gates of a recurrent layer: parts that are not contiguous too."""
    whole = dl.zeros(6, 8, device=device)
    init.orthogonal_(whole[:, 2:5])
    init.uniform_(whole[0], 3, 4)
    x = whole.numpy()
    assert (x[0] >= 3).all()
    assert (x[1:, [0, 1, 5, 6, 7]] == 0).all()
    assert (x[1:, 2:5] != 0).all()


def test_sparse(device: str) -> None:
    x = init.sparse_(dl.empty(70, 30, device=device), 0.35, 0.1).numpy()
    assert ((x == 0).sum(0) == math.ceil(0.35 * 70)).all()
    assert abs(x[x != 0].std() - 0.1) < 5 * 0.1 / math.sqrt(2 * 1300)


def test_placeholders_take_no_memory(device: str) -> None:
    before = {name: dl.memory.stats(name).allocated for name in ("cpu", device)}
    with dl.nn.init.skipping():
        layers: list[Any] = [
            dl.nn.Linear(5000, 3000, device=device),
            dl.nn.Embedding(100_000, 512, device=device),
        ]
    assert [tuple(layer.weight.shape) for layer in layers] == [(3000, 5000), (100_000, 512)]
    assert all(dl.memory.stats(name).allocated - taken < 100_000 for name, taken in before.items())
    assert dl.nn.Linear(3, 2, device=device).weight.device == dl.device(device)


def test_own_generators() -> None:
    state = dl.get_rng_state()
    for fill in (init.normal_, init.xavier_uniform_, init.orthogonal_, init.trunc_normal_):
        one, other = (
            fill(dl.empty(5, 7, device="cpu"), generator=dl.Generator(9)).tolist() for _ in range(2)
        )
        assert one == other
    assert dl.get_rng_state() == state


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: init.xavier_normal_(x[0]), ShapeError, r"an axis of outputs .* shape \(4,\)"),
        (lambda x: init.orthogonal_(x[0]), ShapeError, "at least two axes"),
        (lambda x: init.eye_(x[0]), ShapeError, r"\[eye_\] expected a matrix"),
        (lambda x: init.dirac_(x), ShapeError, r"\[dirac_\] expected filters"),
        (lambda x: init.dirac_(x[None], 7), ShapeError, r"\[dirac_\] 1 filters do not make 7 groups"),
        (lambda x: init.sparse_(x[0], 0.5), ShapeError, r"\[sparse_\] expected a matrix"),
        (
            lambda x: init.kaiming_uniform_(x, mode=NO_MODE),
            ArgumentError,
            "'fan_in' or 'fan_out', got 'fan'",
        ),
        (lambda x: init.kaiming_normal_(x, nonlinearity="swish"), ArgumentError, "got 'swish'"),
        (lambda x: init.trunc_normal_(x, std=0.0), ArgumentError, "std > 0 and a < b"),
    ],
)
def test_refusals(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(dl.empty(3, 4, device="cpu"))
