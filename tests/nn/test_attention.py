"""Attention beside PyTorch's: values, gradients, masks."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.attention import materialized
from dl4all.runtime.cpu.llvm import provider
from tests.conftest import need
from tests.support.operands import LAYOUTS, NDArray, close, generator, numbers

torch = pytest.importorskip("torch", reason="results are compared with PyTorch's")
ours: Any = dl.nn.functional.scaled_dot_product_attention
theirs = torch.nn.functional.scaled_dot_product_attention

TOLERANCE = 1e-5  # as in tests/support/operands.py
GRADIENT = 3e-5  # a gradient takes two sums more


def pairs(device: str, layout: str, *arrays: NDArray) -> tuple[list[Any], list[Any]]:
    mine = [LAYOUTS[layout](a, device)[0].detach().requires_grad_() for a in arrays]
    return mine, [torch.from_numpy(a.copy()).requires_grad_() for a in arrays]


def agree(got: Any, expected: Any, mine: list[Any], other: list[Any]) -> None:
    assert got.shape == tuple(expected.shape)
    close(got.detach().numpy().astype(np.float64), expected.detach().numpy(), TOLERANCE)
    weights = numbers(generator("weights"), got.shape)
    got.backward(dl.tensor(weights, device=got.device))
    expected.backward(torch.from_numpy(weights))
    for a, b in zip(mine, other, strict=True):
        close(a.grad.numpy().astype(np.float64), b.grad.numpy(), GRADIENT)


def operands(lead: tuple[int, ...], *sizes: int) -> list[NDArray]:
    queries, keys, features, columns = sizes
    rng = generator(lead, sizes)
    shapes = (queries, features), (keys, features), (keys, columns)
    return [numbers(rng, (*lead, *shape)) * np.float32(0.7) for shape in shapes]


CASES: list[tuple[tuple[int, ...], tuple[int, int, int, int], dict[str, Any]]] = [
    ((2, 3), (5, 7, 4, 3), {}),
    ((), (1, 2, 3, 1), {"scale": 0.3}),
    ((2,), (37, 67, 5, 33), {}),
    ((1, 2), (37, 37, 3, 5), {"is_causal": True}),
    ((3,), (7, 3, 5, 2), {"is_causal": True}),
    ((3,), (3, 11, 5, 2), {"is_causal": True, "scale": 1.0}),
]


@pytest.mark.parametrize(("lead", "sizes", "options"), CASES)
def test_values_and_gradients(lead: Any, sizes: Any, options: Any, device: str) -> None:
    layout = "contiguous" if len(lead) == 2 else "strided"
    mine, other = pairs(device, layout, *operands(lead, *sizes))
    agree(ours(*mine, **options), theirs(*other, **options), mine, other)


MASKS: dict[str, Any] = {
    "all": ((2, 3, 5, 7), "bool"), "rows": ((5, 7), "float32"), "keys": ((2, 1, 1, 7), "bool"),
    "heads": ((3, 5, 7), "float32"), "queries": ((1, 1, 5, 1), "float32"),
}  # fmt: skip


@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str, device: str) -> None:
    shape, dtype = MASKS[name]
    rng = generator(name)
    mask = rng.random(shape) > 0.4 if dtype == "bool" else numbers(rng, shape)
    if dtype == "bool":
        mask[..., 0] = True  # every query sees something
    mine, other = pairs(device, "contiguous", *operands((2, 3), 5, 7, 4, 3))
    got = ours(*mine, attn_mask=dl.tensor(mask, device=device))
    agree(got, theirs(*other, attn_mask=torch.from_numpy(mask)), mine, other)


def test_a_mask_that_repeats_between_axes_in_front(device: str) -> None:
    """The same for all heads, but neither for all samples nor for all groups of heads."""
    rng = generator("distant axes")
    mask = numbers(rng, (2, 1, 2, 5, 7))
    mine, other = pairs(device, "contiguous", *operands((2, 3, 2), 5, 7, 4, 3))
    got = ours(*mine, attn_mask=dl.tensor(mask, device=device))
    agree(got, theirs(*other, attn_mask=torch.from_numpy(mask)), mine, other)


def test_a_query_that_sees_nothing_gets_zeros(device: str) -> None:
    mine, _ = pairs(device, "contiguous", *operands((), 5, 7, 4, 3))
    mask = np.ones((5, 7), bool)
    mask[2] = False
    result = ours(*mine, attn_mask=dl.tensor(mask, device=device))
    assert result[2].tolist() == [0, 0, 0]
    assert (result.detach().numpy()[[0, 1, 3, 4]] != 0).all()
    result.sum().backward()
    assert mine[0].grad[2].tolist() == [0, 0, 0, 0]
    assert all(np.isfinite(t.grad.numpy()).all() for t in mine)


def test_no_keys_and_no_queries(device: str) -> None:
    q, v = (dl.ones(2, 3, size, device=device).requires_grad_() for size in (5, 7))
    result = ours(q, q[:, :0], v[:, :0])
    np.testing.assert_array_equal(result.detach().numpy(), np.zeros((2, 3, 7)))
    result.sum().backward()
    np.testing.assert_array_equal(q.grad.numpy(), np.zeros((2, 3, 5)))
    assert ours(q[:, :0], q, v).shape == (2, 0, 7)


def test_a_mask_with_a_gradient() -> None:
    arrays = [*operands((2,), 5, 7, 4, 3), numbers(generator("mask"), (5, 7))]
    mine, other = pairs("cpu", "contiguous", *arrays)
    agree(ours(*mine), theirs(*other), mine, other)


def test_large_scores_do_not_overflow(device: str) -> None:
    q, k, v = operands((), 5, 40, 4, 3)
    got = ours(*(dl.tensor(t, device=device) for t in (q * 100, k * 100, v)))
    expected = theirs(*(torch.from_numpy(t.astype(np.float64)) for t in (q * 100, k * 100, v)))
    close(got.numpy().astype(np.float64), expected.numpy(), 1e-3)  # of scores of 10^4, float32 keeps 1e-3


def test_dropout(device: str) -> None:
    q, k, v = (dl.tensor(t, device=device) for t in operands((), 3, 5, 4, 3))
    dl.manual_seed(0)
    mean = sum(ours(q, k, v, dropout_p=0.5).numpy() for _ in range(200)) / 200
    assert np.abs(mean - ours(q, k, v).numpy()).max() < 0.4
    assert not np.array_equal(ours(q, k, v, dropout_p=0.5).numpy(), ours(q, k, v).numpy())


def test_queries_without_keys_stay_zeros_with_dropout(device: str) -> None:
    arrays = operands((2,), 3, 5, 4, 3)
    q, k, v = (dl.tensor(t, device=device).requires_grad_() for t in arrays)
    mask = np.array([[1, 0, 1, 1, 0], [0] * 5, [1] * 5], bool)
    dl.manual_seed(0)  # a row of which every weight is dropped would be zeros, too
    result = ours(q, k, v, dl.tensor(mask, device=device), dropout_p=0.3)
    assert not result[:, 1].detach().numpy().any()
    assert result[:, 2].detach().numpy().all()
    result.square().sum().backward()
    assert all(np.isfinite(x.grad.numpy()).all() for x in (q, k, v))
    assert not q.grad[:, 1].numpy().any()


@pytest.mark.parametrize("causal", [True, False])
def test_derivatives(causal: bool) -> None:
    arrays = [a.astype(np.float64) for a in operands((2,), 3, 4, 2, 2)]
    mine = [dl.tensor(a, device="cpu").requires_grad_() for a in arrays]
    assert dl.autograd.gradcheck(lambda *o: ours(*o, is_causal=causal), mine)
    assert dl.autograd.gradgradcheck(lambda *o: ours(*o, is_causal=causal), mine)


@pytest.mark.parametrize("compiled", [True, False])
def test_scores_are_not_stored(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither forwards nor backwards: 2000 x 2000 of them would be 16 MB, those of a block are 1 MB.

    Compiled kernels have a block of 64 x 128 of them on the stack.
    """
    monkeypatch.setattr(provider, "enabled", compiled and provider.available())
    dl.device("cpu").plans.clear()
    q, k, v = (dl.tensor(numbers(generator(i), (2000, 2)), device="cpu").requires_grad_() for i in range(3))
    tracemalloc.start()
    ours(q, k, v, is_causal=True).sum().backward()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    dl.device("cpu").plans.clear()
    assert peak < (1e6 if provider.available() else 12e6)


# Several heads


@pytest.mark.parametrize(("own", "batch_first"), [(True, False), (False, True)], ids=["itself", "another"])
def test_heads(own: bool, batch_first: bool, device: str) -> None:
    options: dict[str, Any] = {} if own else {"kdim": 5, "vdim": 3}
    net = torch.nn.MultiheadAttention(6, 3, batch_first=batch_first, **options)
    layer = dl.nn.MultiheadAttention(6, 3, batch_first=batch_first, **options)
    assert list(layer.state_dict()) == list(net.state_dict())
    layer.load_state_dict({k: v.numpy() for k, v in net.state_dict().items()})
    layer.to(device)
    rng = generator(own, batch_first)
    sizes = [(7, 2, 6)] if own else [(7, 2, 6), (4, 2, 5), (4, 2, 3)]
    arrays = [numbers(rng, s) for s in sizes]
    if batch_first:
        arrays = [a.swapaxes(0, 1).copy() for a in arrays]
    mine, other = pairs(device, "contiguous", *arrays)
    given, wanted = (mine * 3, other * 3) if own else (mine, other)
    for average in (True, False):
        got, expected = (
            layer(*given, average_attn_weights=average),
            net(*wanted, average_attn_weights=average),
        )
        close(got[1].detach().numpy().astype(np.float64), expected[1].detach().numpy(), TOLERANCE)
        assert got[1].shape == tuple(expected[1].shape)
    fast, none = layer(*given, need_weights=False)
    assert none is None
    close(fast.detach().numpy().astype(np.float64), got[0].detach().numpy().astype(np.float64), TOLERANCE)
    agree(fast, net(*wanted)[0], [*mine, *layer.parameters()], [*other, *net.parameters()])


@pytest.mark.parametrize("weights", [True, False])
def test_masks_of_heads(weights: bool, device: str) -> None:
    net = torch.nn.MultiheadAttention(6, 3)
    layer = dl.nn.MultiheadAttention(6, 3)
    layer.load_state_dict({k: v.numpy() for k, v in net.state_dict().items()})
    layer.to(device)
    rng = generator("masks")
    x = numbers(rng, (5, 2, 6))
    padding = np.array([[False, False, False, False, True], [False, True, False, True, True]])
    later = np.triu(np.ones((5, 5), bool), 1)
    each = numbers(rng, (6, 5, 5))
    cases: list[tuple[Any, Any]] = [(later, padding), (each, None), (None, padding)]
    for mask, kind in cases if device == "cpu" else cases[:1]:
        there = [None if m is None else torch.from_numpy(m) for m in (kind, mask)]
        here = [None if m is None else dl.tensor(m, device=device) for m in (kind, mask)]
        expected = net(*(torch.from_numpy(x),) * 3, there[0], weights, there[1])
        got = layer(*(dl.tensor(x, device=device),) * 3, here[0], weights, here[1])
        close(got[0].detach().numpy().astype(np.float64), expected[0].detach().numpy(), TOLERANCE)


def test_a_sequence_without_a_batch() -> None:
    net, layer = torch.nn.MultiheadAttention(4, 2, bias=False), dl.nn.MultiheadAttention(4, 2, bias=False)
    layer.load_state_dict({k: v.numpy() for k, v in net.state_dict().items()})
    x = numbers(generator("alone"), (5, 4))
    got, expected = layer(*(dl.tensor(x),) * 3), net(*(torch.from_numpy(x),) * 3)
    for a, b in zip(got, expected, strict=True):
        close(a.detach().numpy().astype(np.float64), b.detach().numpy(), TOLERANCE)


X: Any = dl.zeros(5, 4, device="cpu")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ours(X, X, X, X > 0, is_causal=True), ArgumentError, r"\[scaled_dot_.* attn_mask and is_"),
        (lambda: ours(X, X[:, :3], X), ShapeError, r"\[scaled_dot_\w+\] a key of shape \(5, 3\)"),
        (lambda: ours(X[0], X, X), ShapeError, r"query must have at least two axes, got \(4,\)"),
        (lambda: ours(X, X, X, X > 0), ShapeError, r"mask of shape \(5, 4\) does not broadcast"),
        (lambda: ours(X, X, X, dl.zeros(5, 5, dtype="float64")), DTypeError, r"expected a mask of bool"),
        (lambda: ours(X, X, None), DTypeError, r"expected a tensor for 'value', got NoneType"),
        (lambda: ours(X.double(), X, X), DTypeError, r"\[flash_attention\] expected floats of one dtype"),
        (lambda: dl.nn.MultiheadAttention(5, 2), ArgumentError, r"5 features do not split into 2 heads"),
        (lambda: dl.nn.MultiheadAttention(6, 2)(X, X, X), ShapeError, r"\[Multihead\w+\] expected query"),
        (lambda: dl.nn.MultiheadAttention(4, 2)(X, X, X, is_causal=True), ArgumentError, "is_causal takes"),
        (lambda: dl.nn.MultiheadAttention(4, 2)(X, X, X, attn_mask=X), ShapeError, r"attn_mask must have"),
        (lambda: dl.nn.MultiheadAttention(4, 2)(X, X, X, X[0]), ShapeError, r"key_padding_mask must"),
    ],
)  # fmt: skip
def test_refusals(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.vulkan
@pytest.mark.parametrize("name", ["vulkan:0", "kompute:0"])
def test_scores_in_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the documentation says: a bounded part, on any driver, and none between forward and backward."""
    need(name)
    assert materialized.MAX_SCORE_BYTES == 2**24
    limit, batch, length = 2**17, 53, 67
    monkeypatch.setattr(materialized, "MAX_SCORE_BYTES", limit)
    tensors = [dl.ones(batch, length, 2, device=name, requires_grad=True) for _ in range(3)]
    operands = 4 * batch * length * 2
    dl.memory.reset_peak(name)
    before = dl.memory.stats(name).allocated
    result = ours(*tensors)
    after = dl.memory.stats(name)
    assert after.peak - before <= limit + 2 * operands
    assert after.allocated - before <= 2 * operands  # the result and the logsumexp
    dl.memory.reset_peak(name)
    result.sum().backward()
    assert dl.memory.stats(name).peak - before <= 2 * limit + 12 * operands < 4 * batch * length**2


@pytest.mark.parametrize("masked", [False, True])
def test_what_needs_all_scores(masked: bool, device: str) -> None:
    batch, length = 3, 65
    tensors = [dl.ones(batch, length, 2, device=device, requires_grad=True) for _ in range(3)]
    mask = dl.zeros(length, length, device=device, requires_grad=True) if masked else None
    before = dl.memory.stats(device).allocated
    result = ours(*tensors, mask, 0.0 if masked else 0.5)
    assert dl.memory.stats(device).allocated - before >= 4 * batch * length**2
    assert result.requires_grad
