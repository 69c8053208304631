"""Optimizers compared with PyTorch on every device: values, options, state and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, GradientError
from dl4all.optim import ASGD, SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, Lion, NAdam, RAdam, RMSprop, Rprop
from dl4all.scheduler import fallback
from tests.support.numpy_bodies import device as device
from tests.support.operands import generator

torch = pytest.importorskip("torch", reason="steps are compared with PyTorch's")

SHAPES = ((7, 5), (13,), (), (2, 3, 5), (0, 3), (1031,))
STEPS = 20
CASES: list[tuple[Any, dict[str, Any]]] = [
    (SGD, {"lr": 0.1}),
    (SGD, {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    (SGD, {"lr": 0.05, "momentum": 0.9}),
    (SGD, {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    (SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    (Adam, {"lr": 0.01}),
    (Adam, {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1, "amsgrad": True}),
    (Adam, {"maximize": True}),
    (AdamW, {"lr": 0.01}),
    (AdamW, {"lr": 0.01, "weight_decay": 0.3, "amsgrad": True, "maximize": True}),
    (RMSprop, {"lr": 0.01}),
    (RMSprop, {"lr": 0.01, "centered": True, "weight_decay": 0.1}),
    (RMSprop, {"lr": 0.01, "momentum": 0.9, "alpha": 0.9, "eps": 1e-4}),
    (RMSprop, {"lr": 0.01, "momentum": 0.9, "centered": True, "maximize": True}),
    (Adagrad, {"lr": 0.1}),
    (Adagrad, {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5}),
    (Adadelta, {}),
    (Adadelta, {"lr": 0.5, "rho": 0.8, "eps": 1e-4, "weight_decay": 0.1, "maximize": True}),
    (NAdam, {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1, "maximize": True}),
    (NAdam, {"momentum_decay": 0.01, "weight_decay": 0.3, "decoupled_weight_decay": True}),
    (RAdam, {"lr": 0.01}),
    (RAdam, {"lr": 0.01, "weight_decay": 0.3, "decoupled_weight_decay": True, "maximize": True}),
    (Adamax, {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1}),
    (ASGD, {"lr": 0.05, "t0": 3, "weight_decay": 0.1, "lambd": 0.01}),
    (Rprop, {"lr": 0.05, "etas": (0.4, 1.3), "step_sizes": (1e-3, 0.5), "maximize": True}),
]
IDS = [f"{cls.__name__}-{'-'.join(f'{k}={v}' for k, v in options.items())}" for cls, options in CASES]


def start(dtype: str = "float32") -> list[np.ndarray[Any, Any]]:
    rng = generator("optimizers")
    return [np.asarray(rng.standard_normal(shape), dtype) for shape in SHAPES]


def gradients(step: int, dtype: str = "float32") -> list[np.ndarray[Any, Any]]:
    rng = generator("gradients", step)
    return [np.asarray(rng.standard_normal(shape) * 10.0 ** rng.integers(-2, 2), dtype) for shape in SHAPES]


def mine(device: str, dtype: str = "float32") -> list[dl.Tensor]:
    return [dl.tensor(a, device=device).requires_grad_() for a in start(dtype)]


def theirs(dtype: str = "float32") -> list[Any]:
    return [torch.from_numpy(a).requires_grad_() for a in start(dtype)]


def give(params: list[Any], step: int, dtype: str = "float32") -> None:
    for p, g in zip(params, gradients(step, dtype), strict=True):
        p.grad = dl.tensor(g, device=p.device) if isinstance(p, dl.Tensor) else torch.from_numpy(g)


def compare(params: list[dl.Tensor], expected: list[Any], tolerance: float = 1e-6) -> None:
    for p, other in zip(params, expected, strict=True):
        want = other.detach().numpy().astype(np.float64)
        assert p.shape == want.shape
        if want.size:
            apart = np.abs(p.detach().numpy().astype(np.float64) - want)
            assert apart.max() <= tolerance * np.abs(want).max()


@pytest.mark.parametrize(("cls", "options"), CASES, ids=IDS)
def test_values_equal_pytorch(cls: Any, options: dict[str, Any], device: str) -> None:
    params, expected = mine(device), theirs()
    optimizer: Any = cls(params, **options)
    reference = getattr(torch.optim, cls.__name__)(expected, **options)
    for step in range(STEPS):
        give(params, step)
        give(expected, step)
        optimizer.step()
        reference.step()
    compare(params, expected)


EXTREMES = (np.inf, -np.inf, np.nan, 1e20, -1e20, 3e38, 1e-20, 1e-30, -1e-45, 0.0, 1.0)


@pytest.mark.parametrize(("cls", "options"), CASES, ids=IDS)
def test_extreme_gradients_equal_pytorch(cls: Any, options: dict[str, Any], device: str) -> None:
    if options.get("centered"):
        pytest.skip(
            "the difference of two infinities is nan; PyTorch's processor kernels fuse it with the square"
        )
    ours, theirs = np.ones(len(EXTREMES), np.float32), torch.ones(len(EXTREMES), requires_grad=True)
    p = dl.tensor(ours, device=device).requires_grad_()
    optimizer: Any = cls([p], **options)
    reference = getattr(torch.optim, cls.__name__)([theirs], **options)
    for _ in range(3):
        p.grad = dl.tensor(EXTREMES, device=device)
        theirs.grad = torch.tensor(EXTREMES)
        optimizer.step()
        reference.step()
    np.testing.assert_allclose(p.detach().numpy(), theirs.detach().numpy(), rtol=2e-6)


def test_lion_of_extreme_gradients(device: str) -> None:
    """A step goes by the sign; nan stays nan, so that it is seen."""
    p = dl.ones(len(EXTREMES), device=device).requires_grad_()
    p.grad = dl.tensor(EXTREMES, device=device)
    Lion([p], lr=0.25).step()
    expected = [0.75, 1.25, np.nan, 0.75, 1.25, 0.75, 0.75, 0.75, p.detach()[8].item(), 1.0, 0.75]
    np.testing.assert_array_equal(p.detach().numpy(), np.array(expected, np.float32))
    assert expected[8] in (1.0, 1.25)  # a device may take subnormal numbers for 0


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize(("cls", "options"), CASES, ids=IDS)
def test_other_floats(cls: Any, options: dict[str, Any], dtype: str, device: str) -> None:
    """Steps of 16 bits are as of float32, rounded once at the end; PyTorch rounds after each operation."""
    half = getattr(torch, dtype) if dtype != "float64" else None
    options = {"eps": 1e-3, **options} if half is not None and cls not in (SGD, ASGD, Rprop) else options
    params, expected = mine(device, dtype), theirs("float64" if half is None else "float32")
    for p in expected if half is not None else ():
        p.data = p.data.to(half).float()
    optimizer: Any = cls(params, **options)
    reference = getattr(torch.optim, cls.__name__)(expected, **options)
    for step in range(3):
        give(params, step, dtype)
        give(expected, step, "float64" if half is None else "float32")
        for p in expected if half is not None else ():
            p.grad = p.grad.to(half).float()
        with fallback.policy("warn" if half is None else "error"):
            optimizer.step()
        reference.step()
        for p in expected if half is not None else ():
            p.data = p.data.to(half).float()
            for name, value in reference.state[p].items():
                if name != "step" and torch.is_tensor(value) and value.shape == p.shape:
                    reference.state[p][name] = value.to(half).float()
    assert {str(p.dtype) for p in params} == {dtype}
    compare(params, expected, {"float64": 1e-12, "float16": 2e-3, "bfloat16": 1e-2}[dtype])


@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1}, {"betas": (0.95, 0.98), "maximize": True}])
def test_lion(options: dict[str, Any], device: str) -> None:
    """As in algorithm 2 of its paper, computed in float64."""
    params = mine(device)
    optimizer = Lion(params, lr=0.01, **options)
    (beta1, beta2), decay = options.get("betas", (0.9, 0.99)), options.get("weight_decay", 0)
    weights = [a.astype(np.float64) for a in start()]
    means = [np.zeros_like(w) for w in weights]
    for step in range(STEPS):
        give(params, step)
        optimizer.step()
        for number, g in enumerate(gradients(step)):
            g = -g if options.get("maximize") else g
            update = np.sign(beta1 * means[number] + (1 - beta1) * g)
            weights[number] = weights[number] - 0.01 * (update + decay * weights[number])
            means[number] = beta2 * means[number] + (1 - beta2) * g
    compare(params, [torch.from_numpy(np.asarray(w)) for w in weights])


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop"])
def test_a_network_learns_as_in_pytorch(name: str, device: str) -> None:
    rng = generator("regression")
    x, y = (rng.standard_normal((32, n)).astype(np.float32) for n in (5, 3))
    net = dl.nn.Sequential(dl.nn.Linear(5, 13), dl.nn.ReLU(), dl.nn.Linear(13, 3)).to(device)
    other = torch.nn.Sequential(torch.nn.Linear(5, 13), torch.nn.ReLU(), torch.nn.Linear(13, 3))
    other.load_state_dict(
        {k: torch.from_numpy(v.detach().cpu().numpy().copy()) for k, v in net.state_dict().items()}
    )
    optimizer = getattr(dl.optim, name)(net.parameters(), lr=0.02)
    reference = getattr(torch.optim, name)(other.parameters(), lr=0.02)
    a, b = dl.tensor(x, device=device), dl.tensor(y, device=device)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = dl.nn.functional.mse_loss(net(a), b)
        loss.backward()
        optimizer.step()
        reference.zero_grad()
        expected = torch.nn.functional.mse_loss(other(torch.from_numpy(x)), torch.from_numpy(y))
        expected.backward()
        reference.step()
        losses.append((loss.item(), expected.item()))
    found = np.array(losses)
    np.testing.assert_allclose(found[:, 0], found[:, 1], rtol=1e-4)
    assert losses[-1][0] < 0.95 * losses[0][0]


# Layouts


@pytest.mark.parametrize(("cls", "options"), [CASES[0], CASES[3], CASES[6]], ids=lambda v: str(v)[:20])
def test_layouts(cls: Any, options: dict[str, Any], device: str) -> None:
    """Parameters inside larger memory, which stays unchanged around them, and gradients of any strides."""
    rng = generator("layouts")
    whole = rng.standard_normal(3 + 35 + 2).astype(np.float32)
    g = rng.standard_normal((5, 7)).astype(np.float32)
    memory = dl.tensor(whole, device=device)
    part = memory[3:38].reshape(7, 5).detach().requires_grad_()
    turned = dl.tensor(whole[3:38].reshape(7, 5).T.copy(), device=device).T.detach().requires_grad_()
    other = torch.from_numpy(whole[3:38].reshape(7, 5).copy()).requires_grad_()
    optimizer: Any = cls([part, turned], **options)
    reference = getattr(torch.optim, cls.__name__)([other], **options)
    for _ in range(3):
        part.grad = turned.grad = dl.tensor(g, device=device).T
        other.grad = torch.from_numpy(g.T.copy())
        optimizer.step()
        reference.step()
    compare([part, turned], [other, other])
    np.testing.assert_array_equal(memory.numpy()[[0, 1, 2, 38, 39]], whole[[0, 1, 2, 38, 39]])


def test_fewer_workgroups_than_work(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dl4all.ops.core.kernels.launch.STRIDED_GRID_CAP", 2)
    params, expected = mine(device), theirs()
    give(params, 0)
    give(expected, 0)
    Adam(params).step()
    torch.optim.Adam(expected).step()
    compare(params, expected)


def test_step_counts_as_in_place_change(device: str) -> None:
    """A backward pass that needs the old value of a parameter raises."""
    w = dl.tensor([1.0, 2.0], device=device).requires_grad_()
    y = w * w
    w.grad = dl.tensor([1.0, 1.0], device=device)
    storage = w.storage
    SGD([w], lr=1.0).step()
    assert w.storage is storage
    assert w.tolist() == [0.0, 1.0]
    with pytest.raises(GradientError, match="changed in place"):
        y.backward(dl.tensor([1.0, 1.0], device=device))


# The interface


def test_groups() -> None:
    a, b, c = (dl.tensor([1.0], device="cpu") for _ in range(3))
    optimizer = SGD([{"params": a, "lr": 1.0}, {"params": [b], "momentum": 0.5}], lr=0.1)
    optimizer.add_param_group({"params": iter([c]), "lr": 2.0})
    for p in (a, b, c):
        p.grad = dl.tensor([1.0], device="cpu")
    for _ in range(2):
        optimizer.step()
    np.testing.assert_allclose([p.item() for p in (a, b, c)], [-1, 0.75, -3], rtol=1e-6)
    assert [group["lr"] for group in optimizer.param_groups] == [1.0, 0.1, 2.0]
    assert optimizer.defaults["lr"] == 0.1
    assert "Parameter Group 2" in repr(optimizer)
    assert "lr: 2.0" in repr(optimizer)


def test_closures_and_missing_gradients(device: str) -> None:
    w, unused = (dl.tensor([1.0, 2.0], device=device).requires_grad_() for _ in range(2))
    optimizer = Adam([w, unused], lr=0.5)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = w * w
        loss.backward(dl.tensor([1.0, 1.0], device=device))
        return loss

    with dl.no_grad():
        loss = optimizer.step(closure)
    assert loss.tolist() == [1, 4]
    np.testing.assert_allclose(w.detach().numpy(), [0.5, 1.5], rtol=1e-6)
    assert unused.tolist() == [1, 2]
    assert unused not in optimizer.state
    assert optimizer.step() is None


def test_zero_grad(device: str) -> None:
    w = dl.tensor([1.0, 2.0], device=device).requires_grad_()
    optimizer = SGD([w])
    optimizer.zero_grad(set_to_none=False)
    assert w.grad is None
    w.grad = dl.tensor([1.0, 2.0], device=device)
    optimizer.zero_grad(set_to_none=False)
    assert w.grad.tolist() == [0, 0]
    optimizer.zero_grad()
    assert w.grad is None


@pytest.mark.parametrize(("cls", "options"), CASES, ids=IDS)
def test_states_equal_pytorch(cls: Any, options: dict[str, Any], device: str) -> None:
    """Names and shapes; training continues exactly from a state of PyTorch, and from its own."""
    params, expected = mine(device), theirs()
    optimizer: Any = cls(params, **options)
    reference = getattr(torch.optim, cls.__name__)(expected, **options)
    for step in range(3):
        give(params, step)
        give(expected, step)
        optimizer.step()
        reference.step()
    state, other = optimizer.state_dict(), reference.state_dict()
    assert [group["params"] for group in state["param_groups"]] == [list(range(len(params)))]
    full = [number for number, p in enumerate(params) if p.numel()]
    for number in full:
        values = {name: v for name, v in other["state"].get(number, {}).items() if v is not None}
        kept = state["state"].get(number, {})
        assert set(kept) == set(values)
        for name, value in values.items():
            found = kept[name].numpy() if isinstance(kept[name], dl.Tensor) else np.asarray(kept[name])
            assert found.shape == tuple(value.shape)
            scale = np.abs(value.numpy()).max()
            np.testing.assert_allclose(found, value.numpy(), rtol=1e-5, atol=1e-6 * scale)
    known = {name: value for name, value in other["param_groups"][0].items() if name in options}
    assert {name: state["param_groups"][0][name] for name in options} == known

    for saved in (state, other):
        again = [
            dl.tensor(p.detach().numpy(), device=device) for p in (params if saved is state else expected)
        ]
        more: Any = cls(again, **({} if cls is not SGD else {"lr": 7.0}))
        more.load_state_dict(saved)
        continued = [torch.from_numpy(p.detach().numpy().copy()).requires_grad_() for p in expected]
        other_more = getattr(torch.optim, cls.__name__)(continued, **options)
        other_more.load_state_dict(reference.state_dict())
        give(again, 3)
        give(continued, 3)
        more.step()
        other_more.step()
        compare(again, continued)


def test_resuming_is_exact(device: str) -> None:
    """The second half of a run, resumed from a saved state, equals that of the whole run bit by bit."""
    params = mine(device)
    optimizer = Adam(params, amsgrad=True)
    for step in range(4):
        if step == 2:
            copies = [dl.tensor(p.detach().numpy(), device=device) for p in params]
            second = Adam(copies)
            second.load_state_dict(optimizer.state_dict())
        for held, one in ((params, optimizer), *(((copies, second),) if step >= 2 else ())):
            give(held, step)
            one.step()
    for p, q in zip(params, copies, strict=True):
        np.testing.assert_array_equal(p.detach().numpy(), q.numpy())


def test_state_moves_with_its_parameter(device: str) -> None:
    """To another device, and with other options."""
    w, other = dl.tensor([1.0, 2.0], device="cpu"), torch.tensor([1.0, 2.0])
    optimizer, reference = Adam([w], lr=0.1), torch.optim.Adam([other], lr=0.1)
    for step in range(3):
        if step == 1:
            moved = w.to(device)
            w.storage, w.device = moved.storage, moved.device
        w.grad, other.grad = dl.tensor([1.0, -2.0], device=w.device), torch.tensor([1.0, -2.0])
        optimizer.step()
        reference.step()
    compare([w], [other])
    optimizer.param_groups[0]["amsgrad"] = True
    optimizer.step()
    assert set(optimizer.state[w]) == {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}


# Refusals


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda w: SGD([]), "got no parameters"),
        (lambda w: SGD(w), r"\[SGD\] expected a list of parameters, got Tensor"),
        (lambda w: SGD([w, w]), r"a parameter of shape \(2,\) was given twice"),
        (lambda w: SGD(list[Any]([object()])), "expected tensors as parameters, got object"),
        (lambda w: SGD([{"lr": 1.0}]), "under 'params'"),
        (lambda w: SGD([dl.tensor([1], device="cpu")]), "int64"),
        (lambda w: SGD([w.requires_grad_() * 2]), "an op made"),
        (lambda w: SGD([w], lr=-1.0), "lr must be at least 0, got -1.0"),
        (lambda w: SGD([w], nesterov=True), "nesterov needs a momentum"),
        (lambda w: Adam([w], betas=(0.9, 1.0)), r"\[Adam\] betas must be from 0 to below 1"),
        (lambda w: AdamW([w], eps=-1e-3), r"\[AdamW\] eps"),
        (lambda w: RMSprop([w], momentum=-1), r"\[RMSprop\] momentum"),
        (lambda w: Adagrad([w], lr_decay=float("nan")), r"\[Adagrad\] lr_decay"),
        (lambda w: Adadelta([w], rho=1.5), r"\[Adadelta\] rho"),
        (lambda w: Lion([w], betas=(1.0, 0.5)), r"\[Lion\] betas"),
    ],
)
def test_refusals(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make(dl.tensor([1.0, 2.0], device="cpu"))


def test_mismatched_states() -> None:
    a, b = dl.tensor([1.0, 2.0], device="cpu"), dl.tensor([1.0], device="cpu")
    one, two = Adam([a]), Adam([a, b])
    a.grad = dl.tensor([1.0, 1.0], device="cpu")
    one.step()
    with pytest.raises(ArgumentError, match=r"the groups have \[2\] parameters, the state's \[1\]"):
        two.load_state_dict(one.state_dict())
    with pytest.raises(ArgumentError, match=r"the saved exp_avg has shape \(2,\), its parameter \(1,\)"):
        Adam([b]).load_state_dict(one.state_dict())


@pytest.mark.vulkan
def test_gradient_on_another_device() -> None:
    w = dl.tensor([1.0], device="cpu")
    w.grad = dl.tensor([1.0], device=dl.Device.of_backend("elsewhere", dl.device("cpu")._backend))
    with pytest.raises(GradientError, match="lives on cpu and its gradient on elsewhere"):
        SGD([w]).step()
