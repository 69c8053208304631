"""Hooks of modules beside PyTorch's: forward, backward, of state dicts and of all modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.nn.modules.module import register_module_forward_hook

torch = pytest.importorskip("torch", reason="hooks are compared with PyTorch's")

Both = Callable[[Any], Any]


def nets(device: str = "cpu") -> tuple[Any, Any]:
    """A network of dl4all and one of PyTorch with the same weights, in every run the same."""
    torch.manual_seed(1)
    theirs = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
    ours = dl.nn.Sequential(dl.nn.Linear(5, 3), dl.nn.Tanh(), dl.nn.Linear(3, 2))
    ours.load_state_dict({name: value.numpy() for name, value in theirs.state_dict().items()})
    return ours.to(device), theirs


def numbers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).uniform(-2, 2, shape).astype(np.float32)


def arrays(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [arrays(part) for part in value]
    return None if value is None else np.array(value.detach().cpu().numpy())


def assert_same(ours: Any, theirs: Any) -> None:
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(one, list):
            assert_same(one, other)
        elif one is None or other is None:
            assert one is other
        else:
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def record_backward(net: Any, library: Any, x: Any) -> list[Any]:
    """What backward hooks see, and the gradients after they have changed some."""
    seen: list[Any] = []

    def before(module: Any, grad_output: Any) -> Any:
        seen.append(arrays(grad_output))
        return (grad_output[0] * 2,)

    def after(module: Any, grad_input: Any, grad_output: Any) -> Any:
        seen.append([arrays(grad_input), arrays(grad_output)])
        return (grad_input[0] * 3,) if grad_input[0] is not None else None

    net[2].register_full_backward_pre_hook(before)
    for layer in net:
        layer.register_full_backward_hook(after)
    (net(x) ** 2).sum().backward()
    return [*seen, arrays(x.grad), arrays([p.grad for p in net.parameters()])]


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("requires_grad", [True, False])
def test_backward_hooks(requires_grad: bool, device: str) -> None:
    ours, theirs = nets(device)
    x = numbers(4, 5)
    got = record_backward(ours, dl, dl.tensor(x, device=device).requires_grad_(requires_grad))
    expected = record_backward(theirs, torch, torch.tensor(x).requires_grad_(requires_grad))
    assert_same(got, expected)


def record_forward(net: Any, x: Any) -> list[Any]:
    """What forward hooks of all kinds see, in their order."""
    seen: list[Any] = []

    def pre(module: Any, args: Any, kwargs: Any) -> Any:
        seen.append(["pre", len(args), sorted(kwargs)])
        return (args[0] * 2,), {}

    net[0].register_forward_pre_hook(pre, with_kwargs=True)
    net[0].register_forward_hook(lambda m, args, out: seen.append("last"))
    net[0].register_forward_hook(lambda m, args, out: out + 1, prepend=True)
    net[0].register_forward_hook(
        lambda m, args, kwargs, out: seen.append(["kwargs", sorted(kwargs), arrays(out)]), with_kwargs=True
    )
    net[0].register_forward_hook(lambda m, args, out: seen.append(["always", out is None]), always_call=True)
    with pytest.raises((RuntimeError, dl.Dl4allError)):
        net(x[:, :2])
    return [*seen, arrays(net(x))]


def test_forward_hooks() -> None:
    ours, theirs = nets()
    x = numbers(4, 5)
    got, expected = record_forward(ours, dl.tensor(x)), record_forward(theirs, torch.tensor(x))
    assert str([part for part in got if "kwargs" not in part and not hasattr(part, "shape")]) == str(
        [part for part in expected if "kwargs" not in part and not hasattr(part, "shape")]
    )
    np.testing.assert_allclose(got[-1], expected[-1], rtol=1e-5)


def test_handles() -> None:
    net = dl.nn.Linear(2, 2)
    calls: list[Any] = []
    x = dl.tensor(numbers(3, 2))
    handle = net.register_forward_hook(lambda *_: calls.append(1))
    net(x)
    handle.remove()
    handle.remove()
    with net.register_forward_hook(lambda *_: calls.append(2)):
        net(x)
    with register_module_forward_hook(lambda module, *_: calls.append(type(module).__name__)):
        net(x)
    remove = net.register_forward_pre_hook(lambda *_: calls.append(3))
    remove()
    net(x)
    assert calls == [1, 2, "Linear"]
    with pytest.raises(dl.errors.ArgumentError, match="expected a function, got 3"):
        net.register_forward_hook(3)  # type: ignore[arg-type]


def state_hooks(net: Any) -> list[Any]:
    seen: list[Any] = []
    net[0].register_state_dict_pre_hook(lambda module, prefix, keep_vars: seen.append(("pre", prefix)))

    def rename(module: Any, state: Any, prefix: str, metadata: Any) -> None:
        seen.append(("post", prefix, len(state)))
        state[f"{prefix}renamed"] = state.pop(f"{prefix}weight")

    def back(module: Any, state: Any, prefix: str, *others: Any) -> None:
        seen.append(("load", prefix))
        state[f"{prefix}weight"] = state.pop(f"{prefix}renamed")

    net[2].register_state_dict_post_hook(rename)
    net[2].register_load_state_dict_pre_hook(back)
    net.register_load_state_dict_post_hook(
        lambda module, keys: seen.append(("after", list(keys.missing_keys)))
    )
    state = net.state_dict()
    seen.append(list(state))
    state.pop("0.bias")
    net.load_state_dict(state, strict=False)
    return seen


def test_hooks_of_state_dicts() -> None:
    ours, theirs = nets()
    assert state_hooks(ours) == state_hooks(theirs)


def test_extra_state_and_own_state_dicts() -> None:
    class Counting(dl.nn.Linear):
        calls = 0

        def get_extra_state(self) -> int:
            return self.calls

        def set_extra_state(self, state: int) -> None:
            self.calls = state

    class Plain(dl.nn.Linear):
        def state_dict(
            self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
        ) -> Any:
            state = {} if destination is None else destination
            state[f"{prefix}only"] = self.weight
            return state

    net = dl.nn.Sequential(Counting(2, 2), Plain(2, 2))
    net[0].calls = 7
    state = net.state_dict()
    assert list(state) == ["0.weight", "0.bias", "0._extra_state", "1.only"]
    other = Counting(2, 2)
    other.load_state_dict({name[2:]: state[name] for name in list(state)[:3]})
    assert other.calls == 7
