"""What all optimizers share: hooks, names of parameters, rates that are tensors, options, damaged states."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, GradientError
from dl4all.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

torch = pytest.importorskip("torch", reason="interfaces are compared with PyTorch's")
NAMES = [
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon", "NAdam", "RAdam",
    "RMSprop", "Rprop", "SGD", "SparseAdam",
]  # fmt: skip


def test_every_optimizer_of_pytorchs_database_is_there() -> None:
    from torch.testing._internal.common_optimizers import optim_db  # takes seconds, which collecting need not

    assert sorted({str(info.name) for info in optim_db}) == NAMES


def matrix(device: str = "cpu", seed: int = 3) -> dl.Tensor:
    values = np.random.default_rng(seed).standard_normal((5, 3)).astype(np.float32)
    return dl.tensor(values, device=device).requires_grad_()


def give_gradient(p: Any, seed: int) -> None:
    p.grad = matrix(str(p.device), seed).detach()


@pytest.mark.parametrize("name", NAMES)
def test_signatures_are_pytorchs(name: str) -> None:
    mine, theirs = (inspect.signature(getattr(m, name)).parameters.values() for m in (dl.optim, torch.optim))
    assert [(p.name, p.default, p.kind) for p in mine] == [(p.name, p.default, p.kind) for p in theirs]


@pytest.mark.parametrize("name", NAMES)
def test_options_and_saved_keys_are_pytorchs(name: str) -> None:
    mine = getattr(dl.optim, name)([("w", matrix())])
    theirs = getattr(torch.optim, name)([("w", torch.zeros(5, 3, requires_grad=True))])
    known = dict(theirs.state_dict()["param_groups"][0])
    if name == "AdamW":
        known.pop("decoupled_weight_decay", None)
    found = mine.state_dict()["param_groups"][0]
    assert {key: found[key] for key in known} == known


@pytest.mark.parametrize("name", ["Adafactor", "Muon", "NAdam", "ASGD", "Rprop", "LBFGS"])
def test_states_go_to_pytorch_and_back(name: str, device: str) -> None:
    """A run that goes on in the other library from the saved state ends where it ends without."""

    def run(library: Any, p: Any, optimizer: Any, steps: range) -> None:
        for step in steps:
            target = torch.tensor(matrix(seed=step if name != "LBFGS" else 99).detach().numpy())
            target = target if library is torch else dl.tensor(target.numpy(), device=device)

            def closure(target: Any = target) -> Any:
                optimizer.zero_grad()
                loss = ((p - target) ** 4).sum()
                loss.backward()
                return loss

            optimizer.step(closure)

    def pair(values: Any) -> tuple[Any, Any]:
        p, q = dl.tensor(values, device=device).requires_grad_(), torch.tensor(values, requires_grad=True)
        options = {"max_iter": 2} if name == "LBFGS" else {"lr": 0.01}
        return (
            (dl, p, getattr(dl.optim, name)([p], **options)),
            (torch, q, getattr(torch.optim, name)([q], **options)),
        )

    both = pair(matrix().detach().numpy())
    for library, p, optimizer in both:
        run(library, p, optimizer, range(3))
    resumed = pair(both[1][1].detach().numpy().copy())
    mine, theirs = both[0][2].state_dict(), both[1][2].state_dict()
    resumed[0][2].load_state_dict(theirs)
    plain = copy.deepcopy(mine)
    plain["state"] = {
        number: {name: to_torch(value) for name, value in state.items()}
        for number, state in mine["state"].items()
    }
    resumed[1][2].load_state_dict(plain)
    for library, p, optimizer in (*both, *resumed):
        run(library, p, optimizer, range(3, 6))
    tolerance = 1e-3 if name in ("LBFGS", "Muon") else 1e-5
    for _, p, _ in (both[0], *resumed):
        expected = both[1][1].detach().numpy()
        np.testing.assert_allclose(p.detach().cpu().numpy(), expected, rtol=tolerance, atol=tolerance)


def to_torch(value: Any) -> Any:
    if isinstance(value, list):
        return [to_torch(entry) for entry in value]
    return torch.tensor(value.numpy()) if isinstance(value, dl.Tensor) else value


def test_hooks() -> None:
    w, calls = matrix(), list[str]()
    optimizer = dl.optim.Adam([w], lr=0.1)
    give_gradient(w, 4)
    handles = [
        register_optimizer_step_pre_hook(lambda o, args, kwargs: calls.append("every before")),
        register_optimizer_step_post_hook(lambda o, args, kwargs: calls.append("every after")),
        optimizer.register_step_pre_hook(lambda o, args, kwargs: calls.append("before")),
        optimizer.register_step_post_hook(
            lambda o, args, kwargs: calls.append(f"after {o.state[w]['step']}")
        ),
        optimizer.register_state_dict_pre_hook(lambda o: calls.append("saving")),
        optimizer.register_state_dict_post_hook(lambda o, state: {**state, "extra": 7}),
        optimizer.register_load_state_dict_pre_hook(
            lambda o, state: {k: state[k] for k in ("state", "param_groups")}
        ),
        optimizer.register_load_state_dict_post_hook(lambda o: calls.append("loaded")),
    ]
    optimizer.step()
    state = optimizer.state_dict()
    optimizer.load_state_dict(state)
    assert calls == ["every before", "before", "after 1", "every after", "saving", "loaded"]
    assert state["extra"] == 7
    for handle in handles:
        handle.remove()
    optimizer.step()
    assert len(calls) == 6


def test_a_hook_may_change_the_arguments() -> None:
    w = matrix()
    optimizer = dl.optim.SGD([w], lr=0.1)
    optimizer.register_step_pre_hook(lambda o, args, kwargs: ((), {"closure": lambda: 5.0}))
    assert optimizer.step() == 5.0


@pytest.mark.filterwarnings("ignore:.*calls hooks of SGD's step")
def test_hooks_of_compiled_steps(device: str) -> None:
    """A step with hooks is not captured, so that each call runs them."""
    w, calls = matrix(device), list[int]()
    optimizer = dl.optim.SGD([w], lr=0.1)

    def train(x: dl.Tensor) -> dl.Tensor:
        optimizer.zero_grad()
        loss = (w * x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = dl.compile(train)
    for number in range(5):
        if number == 3:
            optimizer.register_step_post_hook(lambda *_: calls.append(1))
        step(matrix(device, 8).detach())
    assert calls == [1, 1]


def test_a_subclass_of_a_users_own(device: str) -> None:
    """As scripts write them: its own state by parameter, a step without a kernel, hooks, a saved state."""

    class Momentum(dl.optim.Optimizer):
        def __init__(self, params: Any, lr: float = 0.1) -> None:
            super().__init__(params, {"lr": lr})

        @dl.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    state.setdefault("sum", dl.zeros_like(p)).mul_(0.9).add_(p.grad)
                    p.add_(state["sum"], alpha=-group["lr"])

    ends = []
    for made in (Momentum, lambda params: dl.optim.SGD(params, lr=0.1, momentum=0.9)):
        w, calls = matrix(device), list[int]()
        optimizer: Any = made([w])
        optimizer.register_step_post_hook(lambda *_, calls=calls: calls.append(1))
        for step in range(4):
            if step == 2:
                state = optimizer.state_dict()
                optimizer = made([w])
                optimizer.load_state_dict(state)
            give_gradient(w, step)
            optimizer.step()
        assert calls == [1, 1]
        ends.append(w.detach().numpy())
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-5)


def test_named_parameters() -> None:
    net = dl.nn.Linear(5, 3)
    optimizer = dl.optim.SGD(net.named_parameters())
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]
    optimizer.add_param_group({"params": [("more", matrix())], "lr": 1.0})
    with pytest.raises(ArgumentError, match="names"):
        optimizer.add_param_group({"params": [matrix()]})
    with pytest.raises(ArgumentError, match="names"):
        dl.optim.SGD(list[Any]([("w", matrix()), matrix()]))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("SparseAdam", "LBFGS")])
def test_tensors_as_rates(name: str, device: str) -> None:
    ends = []
    for rate in (0.01, dl.tensor(0.01, device=device)):
        w = matrix(device)
        optimizer = getattr(dl.optim, name)([w], lr=rate)
        for step in range(3):
            give_gradient(w, step)
            optimizer.step()
        ends.append(w.detach().numpy())
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "state",
    [
        {}, None, [], {"state": {}}, {"state": {}, "param_groups": []}, {"state": {}, "param_groups": [{}]},
        {"state": {}, "param_groups": [{"params": [0, 1]}]}, {"state": 3, "param_groups": [{"params": [0]}]},
        {"state": {0: 7}, "param_groups": [{"params": [0]}]},
        {"state": {}, "param_groups": [{"params": [0], "lr": -1.0}]},
    ],
    ids=str,
)  # fmt: skip
def test_damaged_states(name: str, state: Any) -> None:
    optimizer = getattr(dl.optim, name)([matrix()])
    with pytest.raises(ArgumentError, match=rf"\[{name}\]"):
        optimizer.load_state_dict(state)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda w: dl.optim.Adam([w], foreach=True, fused=True), "not both"),
        (lambda w: dl.optim.Adam([w], differentiable=True), "differentiable"),
        (lambda w: dl.optim.Adam([w], lr=dl.tensor([0.1, 0.2])), "one element"),
        (lambda w: dl.optim.NAdam([w], momentum_decay=-1), "momentum_decay"),
        (lambda w: dl.optim.RAdam([w], betas=(1.0, 0.9)), "betas"),
        (lambda w: dl.optim.Adamax([w], eps=-1), "eps"),
        (lambda w: dl.optim.ASGD([w], weight_decay=-1), "weight_decay"),
        (lambda w: dl.optim.Rprop([w], etas=(1.5, 2.0)), "etas"),
        (lambda w: dl.optim.Adafactor([w], d=0.5), "d must be at least 1"),
        (lambda w: dl.optim.Adafactor([w], beta2_decay=0.5), "beta2_decay"),
        (lambda w: dl.optim.Muon([dl.zeros(3)]), "give it to AdamW"),
        (lambda w: dl.optim.Muon([w], adjust_lr_fn="other"), "adjust_lr_fn"),
        (lambda w: dl.optim.Muon([w], ns_steps=100), "ns_steps"),
        (lambda w: dl.optim.LBFGS([w], line_search_fn="golden"), "line_search_fn"),
        (lambda w: dl.optim.LBFGS([{"params": [w]}, {"params": [matrix()]}]), "one group"),
        (lambda w: dl.optim.LBFGS([w]).step(), "needs a closure"),
    ],
)
def test_refusals(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make(matrix())


@pytest.mark.parametrize("sparse_dim", [1, 2])
@pytest.mark.parametrize("maximize", [False, True])
def test_sparse_adam_steps_as_pytorch_does(maximize: bool, sparse_dim: int, device: str) -> None:
    rng = np.random.default_rng(22)
    start = rng.standard_normal((7, 3)).astype(np.float32)
    gradients = [rng.standard_normal((7, 3)) * (rng.random((7, 1)) < 0.4) for _ in range(5)]
    gradients.insert(2, np.zeros((7, 3)))
    ends = []
    for library in (dl, torch):
        where = {"device": device} if library is dl else {}
        w = library.tensor(start, **where).requires_grad_()
        optimizer = library.optim.SparseAdam([w], lr=0.1, betas=(0.8, 0.95), maximize=maximize)
        for gradient in gradients:
            sparse = library.tensor(gradient.astype(np.float32), **where).to_sparse(sparse_dim)
            w.grad = sparse + sparse  # no index is there only once
            optimizer.step()
        state = optimizer.state[w]
        assert state["step"] == len(gradients)
        tensors = (w.detach(), state["exp_avg"], state["exp_avg_sq"])
        ends.append([one.cpu().numpy() for one in tensors])
    for one, other in zip(*ends, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-7)


def test_dense_gradients_of_sparse_adam() -> None:
    w = matrix()
    optimizer = dl.optim.SparseAdam([w])
    optimizer.step()
    give_gradient(w, 1)
    with pytest.raises(GradientError, match=r"dl4all\.optim\.Adam"):
        optimizer.step()


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_minimizes_as_pytorch_does(search: str | None, device: str) -> None:
    """Rosenbrock's function, whose valley bends."""
    ends = []
    for library in (dl, torch):
        p = library.tensor([-1.2, 1.0], **({"device": device} if library is dl else {})).requires_grad_()
        optimizer = library.optim.LBFGS([p], lr=0.1 if search is None else 1, line_search_fn=search)

        def closure(p: Any = p, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = (1 - p[0]) ** 2 + 10 * (p[1] - p[0] ** 2) ** 2
            loss.backward()
            return loss

        losses = [optimizer.step(closure).item() for _ in range(2 if search is None else 1)]
        ends.append((losses, p.detach().cpu().numpy()))
    np.testing.assert_allclose(ends[0][0], ends[1][0], rtol=1e-3)
    np.testing.assert_allclose(ends[0][1], ends[1][1], rtol=1e-2 if search is None else 2e-2)
