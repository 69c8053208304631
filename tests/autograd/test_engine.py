"""Backward passes through graphs of every form."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.autograd import engine
from dl4all.errors import GradientError
from dl4all.ops.core import tape

torch = pytest.importorskip("torch", reason="gradients are compared with PyTorch's")


def leaf(values: Any, device: str = "cpu") -> dl.Tensor:
    return dl.tensor(values, dtype="float32", device=device).requires_grad_()


def ones(tensor: dl.Tensor) -> dl.Tensor:
    return dl.ones(tensor.shape, device=tensor.device)


def gradient_of(tensor: Any) -> Any:
    assert tensor.grad is not None
    return tensor.grad.numpy()


def test_fan_out_and_fan_in(device: str) -> None:
    """Every path from the result to a leaf counts once, also where they meet again."""
    x = leaf([1.0, -2.0, 3.0], device)
    a = x * x
    b = a + x
    c = a * b + b * b - x
    c.backward(ones(c))
    t = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    ta = t * t
    tb = ta + t
    (ta * tb + tb * tb - t).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), gradient_of(t), rtol=1e-6)


def test_a_deep_chain_does_not_recurse(device: str) -> None:
    x = leaf([1.0], device)
    y = x
    for _ in range(3000):
        y = y + x
    y.backward()
    assert x.grad.tolist() == [3001.0]


def test_a_diamond_of_many_levels_takes_each_node_once() -> None:
    """2**60 paths."""
    x = leaf([1.0])
    y = x
    for _ in range(60):
        y = (y + y) * 0.5
    y.backward()
    assert x.grad.tolist() == [1.0]


def test_gradients_add_up_until_they_are_cleared(device: str) -> None:
    x = leaf([2.0], device)
    (x * x).backward()
    (x * 3).backward()
    assert x.grad.tolist() == [7.0]
    x.grad = None
    (x * 3).backward()
    assert x.grad.tolist() == [3.0]


def test_leaves_do_not_share_the_memory_of_their_gradients(device: str) -> None:
    """Clipping one in place must not change the other."""
    x, y = leaf([1.0, 2.0], device), leaf([3.0, 4.0], device)
    seed = ones(x)
    (x + y).backward(seed)
    assert len({id(t.storage) for t in (x.grad, y.grad, seed)}) == 3
    z = leaf([[1.0], [2.0]], device)
    z.expand(2, 3).backward(dl.ones(2, 3, device=device))
    assert z.grad.is_contiguous()


def test_nodes_are_made_only_where_gradients_are_required() -> None:
    x = dl.tensor([1.0], device="cpu")
    assert (x + x).grad_fn is None
    x.requires_grad_()
    assert (x + x).grad_fn is not None
    with dl.no_grad():
        assert (x + x).grad_fn is None
        with dl.enable_grad():
            assert (x + x).requires_grad
        assert not (x + x).requires_grad
        with dl.no_grad():
            pass
        assert not (x + x).requires_grad
    assert not x.detach().requires_grad
    assert (x.detach() + x).requires_grad


def test_next_functions_lead_to_the_leaves(device: str) -> None:
    x, w = leaf([[1.0, 2.0, 3.0]], device), leaf([[4.0], [5.0], [6.0]], device)
    loss = ((x @ w) * 3.0 + x.sum()).exp()
    names, leaves, seen = set[str](), list[dl.Tensor](), set[Any]()
    todo: list[Any] = [loss.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        names.add(node.name)
        if node.name == "AccumulateGrad":
            leaves.append(node.variable)
        todo += [following for following, _ in node.next_functions]
    assert {"exp", "add", "mul", "sum", "matmul", "AccumulateGrad"} <= names
    assert sorted(map(id, leaves)) == sorted(map(id, (x, w)))
    product: Any = x * dl.ones(1, 3, device=device)
    assert product.grad_fn.next_functions[1] == (None, 0)
    first: Any
    first, second = x.split([1, 2], dim=1)
    assert repr(first.grad_fn.next_functions[0][0]) == "<AccumulateGrad of shape (1, 3)>"
    assert (first + second).grad_fn.next_functions[1][0] is second.grad_fn


def test_grad_modes_decorate_and_nest() -> None:
    @dl.no_grad()
    def nested(depth: int) -> bool:
        return dl.is_grad_enabled() if depth == 0 else nested(depth - 1)

    assert nested(3) is False
    assert dl.is_grad_enabled()
    with dl.set_grad_enabled(False), dl.set_grad_enabled(True):
        assert dl.is_grad_enabled()


def test_grad_of_intermediate_tensors(device: str) -> None:
    x = leaf([2.0], device)
    y = x * x
    z = y * x + y
    gradients = dl.autograd.grad(z, [y, x])
    assert [g.tolist() for g in gradients] == [[3.0], [4.0 + 12.0]]
    assert x.grad is None


def test_grad_visits_no_nodes_before_its_targets() -> None:
    seen: list[str] = []
    x = leaf([2.0])
    y = x * x
    y.register_hook(lambda g: seen.append("y"))
    z = y + leaf([1.0])
    dl.autograd.grad(z * z, z)
    assert not seen


def test_second_derivatives(device: str) -> None:
    x = leaf([3.0], device)
    y = x * x * x
    (first,) = dl.autograd.grad(y, x, create_graph=True)
    (second,) = dl.autograd.grad(first, x, create_graph=True)
    (third,) = dl.autograd.grad(second, x)
    assert [first.item(), second.item(), third.item()] == [27.0, 18.0, 6.0]


def test_create_graph_in_backward(device: str) -> None:
    x = leaf([3.0], device)
    (x * x * x).backward(create_graph=True)
    first = x.grad
    assert first.requires_grad
    x.grad = None
    first.backward()
    assert x.grad.item() == 18.0


def test_a_graph_is_used_once_unless_it_is_kept() -> None:
    x = leaf([3.0])
    y = x * x
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [12.0]
    with pytest.raises(
        GradientError, match=r"^\[mul\] what its gradient needs was freed .* retain_graph=True"
    ):
        y.backward()


def test_parts_of_a_graph_without_saved_tensors_are_used_again(device: str) -> None:
    """As in PyTorch: what several losses share may be gone through by the backward of each."""
    values = np.random.default_rng(3).standard_normal((3, 1)).astype(np.float32)
    x = dl.tensor(values, device=device).requires_grad_()
    shared = x.expand(3, 5).transpose(0, 1)[1:].flatten()
    total = dl.cat([shared, shared]).sum()
    (shared * shared.detach()).sum().backward()
    total.backward()
    total.backward()
    np.testing.assert_allclose(x.grad.numpy(), 4 * values + 16, rtol=1e-6)


def test_indices_that_a_node_holds_go_with_the_first_backward() -> None:
    x = leaf([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    rows = dl.nn.functional.embedding(dl.tensor([2, 0, 2], device="cpu"), x)
    rows.sum().backward()
    with pytest.raises(GradientError, match=r"^\[embedding\] what its gradient needs was freed"):
        rows.sum().backward()


def test_results_are_freed_without_the_garbage_collector() -> None:
    gc.disable()
    try:
        x = leaf([1.0, 2.0])
        y = (x * x).relu()
        z = y / x
        refs = [weakref.ref(t) for t in (y, z)] + [weakref.ref(t.grad_fn) for t in (y, z)]
        z.backward(ones(z))
        del y, z
        assert [r() for r in refs] == [None] * 4
    finally:
        gc.enable()


def test_saved_tensors_are_freed_by_backward() -> None:
    x = leaf([1.0, 2.0])
    y = x * 2
    z = y * y
    seed, node = ones(z), z.grad_fn
    assert node is not None
    assert node._saved != ()
    z.backward(seed)
    assert node._saved == ()


def test_nodes_save_only_what_gradients_need() -> None:
    x, number = leaf([1.0, 2.0]), 3.0
    nodes = [result.grad_fn for result in (x * number, x * x, x + x)]
    tensors = [[kept for kept in node._saved if isinstance(kept, tape.Saved)] for node in nodes if node]
    assert [len(of_node) for of_node in tensors] == [0, 2, 0]


def test_hooks(device: str) -> None:
    x = leaf([1.0, 2.0], device)
    y = x * 3
    seen: list[Any] = []
    handle = y.register_hook(lambda g: seen.append(g.tolist()))
    y.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: g + 1)
    y.backward(ones(y), retain_graph=True)
    assert seen == [[1.0, 1.0]]
    assert x.grad.tolist() == [31.0, 31.0]
    handle.remove()
    y.backward(ones(y))
    assert len(seen) == 1


def test_retain_grad(device: str) -> None:
    x = leaf([1.0, 2.0], device)
    y = x * 3
    y.retain_grad()
    z = y * y
    z.backward(ones(z))
    assert y.grad.tolist() == [6.0, 12.0]
    assert not y.is_leaf


def test_retained_gradients_add_up() -> None:
    """As those of leaves do, until they are cleared."""
    x = dl.tensor([1.0, -2.0, 3.0], device="cpu").requires_grad_()
    y = x * 2
    y.retain_grad()
    loss = (y * y).sum()
    loss.backward(retain_graph=True)
    assert y.grad.tolist() == [4.0, -8.0, 12.0]
    loss.backward()
    assert y.grad.tolist() == [8.0, -16.0, 24.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: dl.tensor([1.0], device="cpu").backward(), r"\[backward\] the tensor does not require"),
        (lambda x: (x * x).backward(), r"\[backward\] a tensor of shape \(2,\) needs a gradient for each"),
        (lambda x: (x * x).backward(dl.ones(3, device="cpu")), r"expected a gradient of shape \(2,\)"),
        (lambda x: dl.tensor([1], device="cpu").requires_grad_(), r"only floats have gradients, not int64"),
        (lambda x: (x * x).requires_grad_(False), r"an op made this tensor"),
        (lambda x: dl.autograd.grad((x * x)[0], leaf([1.0])), r"no output depends on input 0; pass allow_un"),
        (lambda x: dl.autograd.grad((x * x)[0], dl.ones(1, device="cpu")), r"does not require gradients"),
        (lambda x: dl.autograd.backward([x[0], x[1]], [ones(x[0])]), r"gradient for each of 2 tensors"),
        (lambda x: setattr(x, "grad", dl.ones(3, device="cpu")), r"\[grad\] expected shape \(2,\)"),
    ],
)
def test_error_messages(call: Any, message: str) -> None:
    with pytest.raises(GradientError, match=message):
        call(leaf([1.0, 2.0]))


def test_allow_unused() -> None:
    x, y = leaf([1.0]), leaf([2.0])
    gradients = dl.autograd.grad(x * x, [x, y], allow_unused=True)
    assert gradients[0].item() == 2.0
    assert gradients[1] is None


def test_anomalies_are_named_with_their_line() -> None:
    with dl.autograd.detect_anomaly():
        x = leaf([0.0])
        y = x / x  # the line
    with dl.autograd.detect_anomaly(), pytest.raises(GradientError) as caught:
        y.backward()
    assert "[true_divide] its gradient has nan or inf" in str(caught.value)
    assert "y = x / x  # the line" in str(caught.value)


def test_threads_have_their_own_modes() -> None:
    modes: list[bool] = []
    with dl.no_grad():
        thread = threading.Thread(target=lambda: modes.append(dl.is_grad_enabled()))
        thread.start()
        thread.join()
    assert modes == [True]


@pytest.mark.usefixtures("deadline")
def test_threads_add_to_common_leaves(device: str) -> None:
    """Nothing is lost, where the interpreter changes threads as often as it can."""
    leaves, threads, times = [leaf([1.0, 2.0], device) for _ in range(3)], 4, 10

    def work() -> None:
        for _ in range(times):
            (leaves[0] + leaves[1] * 2 + leaves[2]).sum().backward()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        running = [threading.Thread(target=work) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    total = float(threads * times)
    sums = [of.grad.tolist() for of in leaves]
    assert sums == [[total] * 2, [2 * total] * 2, [total] * 2]


@pytest.mark.parametrize("uses", [2, 3, 5, engine.MOST_PARTS, 2 * engine.MOST_PARTS + 3])
def test_a_leaf_that_is_used_often(uses: int, device: str) -> None:
    """Its gradients are added up in the order in which they come, however many wait for each other."""
    random = np.random.default_rng(uses)
    values = random.standard_normal((3, 5)).astype(np.float32)
    factors = random.standard_normal((uses, 5, 3)).astype(np.float32)
    x = leaf(values, device)
    total = None
    for factor in factors:  # the gradients are not contiguous
        term = x.T * dl.tensor(factor, device=device)
        total = term.sum() if total is None else total + term.sum()
    assert total is not None
    total.backward()
    expected = np.zeros((3, 5), np.float32)
    for factor in factors[::-1]:
        expected = expected + factor.T
    np.testing.assert_array_equal(x.grad.numpy(), expected)
    again = leaf(values, device)
    (first,) = dl.autograd.grad(
        sum((again * dl.tensor(f.T.copy(), device=device)).sum() for f in factors), again
    )
    np.testing.assert_array_equal(first.numpy(), expected)


def test_a_large_leaf_that_is_used_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not all of its gradients are in memory at once."""
    monkeypatch.setattr(engine, "FEW_ELEMENTS", 10)
    totals: list[int] = []
    add_up = engine._total

    def counted(parts: Any) -> Any:
        totals.append(len(parts))
        return add_up(parts)

    monkeypatch.setattr(engine, "_total", counted)
    x = leaf(np.random.default_rng(3).standard_normal((7, 11)))
    total: Any = sum((x * (i + 1)).sum() for i in range(5))
    total.backward()
    np.testing.assert_allclose(x.grad.numpy(), np.full((7, 11), 15.0))
    assert max(totals) == 2


def test_views(device: str) -> None:
    values = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    x = leaf(values, device)
    t = torch.tensor(values, requires_grad=True)

    def use(v: Any) -> Any:
        a = v.permute(2, 0, 1).reshape(5, 12)[1:4, ::2]
        b = v[1].unsqueeze(0).expand(3, 4, 5).transpose(0, 2)
        return (a * a).flatten(), (b * b).reshape(-1)

    for result, expected in zip(use(x), use(t), strict=True):
        np.testing.assert_allclose(result.numpy(), expected.detach().numpy(), rtol=1e-6)
        result.backward(ones(result))
        expected.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), gradient_of(t), rtol=1e-6)
