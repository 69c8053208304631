"""Recurrent layers and cells beside PyTorch's with the same state: outputs, states and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, ShapeError
from dl4all.nn.utils import rnn
from tests.support.operands import NDArray, close, generator, numbers

torch = pytest.importorskip("torch", reason="layers are compared with PyTorch's")
theirs_rnn = torch.nn.utils.rnn
pytestmark = pytest.mark.filterwarnings(
    "ignore:LSTM with projections is not:UserWarning"
)  # by PyTorch's oneDNN

# Gradients go back through all steps: each is a sum of products that were rounded at 6e-8 each.
TOLERANCE = 1e-5
GRADIENT = 3e-5

LAYERS: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("LSTM", (5, 7), {}),
    ("LSTM", (3, 5, 2), {"bidirectional": True, "batch_first": True}),
    ("LSTM", (3, 7, 2), {"bidirectional": True, "proj_size": 5}),
    ("LSTM", (2, 3), {"bias": False, "proj_size": 1}),
    ("GRU", (5, 7, 2), {"bidirectional": True}),
    ("GRU", (1, 1), {"bias": False, "batch_first": True}),
    ("RNN", (5, 3, 2), {"bidirectional": True}),
    ("RNN", (2, 3), {"nonlinearity": "relu", "bias": False}),
]


def pair(name: str, *args: Any, device: str = "cpu", **kwargs: Any) -> tuple[Any, Any]:
    theirs = getattr(torch.nn, name)(*args, **kwargs)
    rng = generator(name, args)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(torch.from_numpy(rng.uniform(-0.8, 0.8, tuple(parameter.shape))))
    ours = getattr(dl.nn, name)(*args, **kwargs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    return ours.to(device), theirs


def flat(results: Any) -> list[Any]:
    """All tensors in what a layer returns."""
    if isinstance(results, (dl.Tensor, torch.Tensor)):
        return [results]
    if isinstance(results, (rnn.PackedSequence, theirs_rnn.PackedSequence)):
        return [results.data]
    return [tensor for part in results for tensor in flat(part)]


def agree(ours: Any, theirs: Any, got: Any, expected: Any, leaves: list[tuple[Any, Any]]) -> None:
    """Raise unless results are PyTorch's, and the gradients of parameters and leaves."""
    mine, other = flat(got), flat(expected)
    assert [t.shape for t in mine] == [tuple(t.shape) for t in other]
    for a, b in zip(mine, other, strict=True):
        close(a.detach().numpy().astype(np.float64), b.detach().numpy(), TOLERANCE)
    weights = [numbers(generator(i), tuple(t.shape)) for i, t in enumerate(other)]
    dl.autograd.backward(mine, [dl.tensor(w, device=t.device) for w, t in zip(weights, mine, strict=True)])
    torch.autograd.backward(other, [torch.from_numpy(w) for w in weights])
    for a, b in [*zip(ours.parameters(), theirs.parameters(), strict=True), *leaves]:
        close(a.grad.numpy().astype(np.float64), b.grad.numpy(), GRADIENT)


def leaf(array: NDArray, device: str) -> tuple[Any, Any]:
    return dl.tensor(array, device=device).requires_grad_(), torch.from_numpy(array.copy()).requires_grad_()


@pytest.mark.parametrize(("name", "args", "kwargs"), LAYERS)
def test_layers(name: str, args: Any, kwargs: Any, device: str) -> None:
    """With initial states given, and on the CPU without, too; where a launch takes long, of fewer steps."""
    _compare(name, args, kwargs, given=True, steps=7 if device == "cpu" else 2, device=device)
    if device == "cpu":
        _compare(name, args, kwargs, given=False, steps=1, device=device)


def _compare(name: str, args: Any, kwargs: Any, *, given: bool, steps: int, device: str) -> None:
    ours, theirs = pair(name, *args, device=device, **kwargs)
    rng = generator(name, given)
    shape = (3, steps, args[0]) if kwargs.get("batch_first") else (steps, 3, args[0])
    leaves = [leaf(numbers(rng, shape), device)]
    states: list[Any] = [None, None]
    if given:
        layers = (args[2] if len(args) > 2 else 1) * (2 if kwargs.get("bidirectional") else 1)
        count = 2 if name == "LSTM" else 1
        sizes = (kwargs.get("proj_size", args[1]), args[1])[:count]  # of the hidden state and the cell
        found = [leaf(numbers(rng, (layers, 3, size)), device) for size in sizes]
        leaves += found
        states = [tuple(f[side] for f in found) for side in (0, 1)]
        if name != "LSTM":
            states = [s[0] for s in states]
    agree(ours, theirs, ours(leaves[0][0], states[0]), theirs(leaves[0][1], states[1]), leaves)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_one_sequence_without_a_batch(name: str) -> None:
    device = "cpu"
    ours, theirs = pair(name, 3, 5, device=device)
    x, y = leaf(numbers(generator(name), (2, 3)), device)
    agree(ours, theirs, ours(x), theirs(y), [(x, y)])
    h, k = (numbers(generator(i), (1, 5)) for i in range(2))
    given = (h, k) if name == "LSTM" else (h,)
    mine = tuple(dl.tensor(s, device=device) for s in given)
    other = tuple(torch.from_numpy(s) for s in given)
    got = ours(x.detach(), mine if name == "LSTM" else mine[0])
    expected = theirs(y.detach(), other if name == "LSTM" else other[0])
    for a, b in zip(flat(got), flat(expected), strict=True):
        close(a.detach().numpy().astype(np.float64), b.detach().numpy(), TOLERANCE)


def test_operands_of_any_layout_and_an_empty_batch(device: str) -> None:
    ours, theirs = pair("LSTM", 3, 5, device=device)
    array = numbers(generator("layout"), (3, 7, 4))
    x = dl.tensor(array, device=device).permute(2, 1, 0)
    expected, _ = theirs(torch.from_numpy(array).permute(2, 1, 0))
    close(ours(x)[0].detach().numpy().astype(np.float64), expected.detach().numpy(), TOLERANCE)
    outputs, (h, c) = ours(dl.zeros(4, 0, 3, device=device))
    assert (outputs.shape, h.shape, c.shape) == ((4, 0, 5), (1, 0, 5), (1, 0, 5))


@pytest.mark.parametrize(("name", "bias"), [("LSTMCell", True), ("GRUCell", False), ("RNNCell", True)])
def test_cells(name: str, bias: bool, device: str) -> None:
    ours, theirs = pair(name, 5, 7, bias=bias, device=device)
    x, y = leaf(numbers(generator(name), (3, 5)), device)
    first, second = ours(x), theirs(y)  # and once more, from its state
    agree(ours, theirs, ours(x, first), theirs(y, second), [(x, y)])
    alone, expected = ours(x.detach()[0]), theirs(y.detach()[0])
    for a, b in zip(flat(alone), flat(expected), strict=True):
        close(a.detach().numpy().astype(np.float64), b.detach().numpy(), TOLERANCE)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_derivatives(name: str) -> None:
    """First and second ones of all operands, through two layers, both directions and unequal lengths."""
    dl.manual_seed(3)
    layer = getattr(dl.nn, name.upper())(2, 2, 2, bidirectional=True)
    parameters = [dl.tensor(p.detach().numpy().astype(np.float64), device="cpu") for p in layer.parameters()]
    names = [n for n, _ in layer.named_parameters()]
    x = dl.tensor(numbers(generator(name), (5, 2), "float64"), device="cpu").requires_grad_()
    for key, value in zip(names, parameters, strict=True):
        vars(layer)[key] = value

    def outputs(x: Any) -> Any:
        return layer(rnn.PackedSequence(x, (2, 2, 1)))[0].data

    assert dl.autograd.gradcheck(outputs, (x,))
    assert dl.autograd.gradgradcheck(outputs, (x,))


def test_dropout_between_layers() -> None:
    layer = dl.nn.LSTM(3, 50, 2, dropout=0.5)
    x = dl.tensor(numbers(generator("dropout"), (2, 1, 3)), device="cpu")
    dl.manual_seed(0)
    first, second = layer(x)[0].numpy(), layer(x)[0].numpy()
    assert not np.array_equal(first, second)
    layer.eval()
    np.testing.assert_array_equal(layer(x)[0].numpy(), layer(x)[0].numpy())


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_dropout_leaves_the_input_alone(name: str) -> None:
    """And the results of the last layer: with a share of 1, only what lies between is 0."""
    ours, theirs = pair(name, 3, 5, 2, dropout=1.0)
    x = numbers(generator("dropped"), (4, 2, 3))
    got, expected = ours(dl.tensor(x, device="cpu")), theirs(torch.from_numpy(x))
    for mine, other in zip(flat(got), flat(expected), strict=True):
        np.testing.assert_allclose(mine.detach().numpy(), other.detach().numpy(), rtol=1e-5, atol=1e-6)


# Sequences of different lengths


@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize(("name", "options"), [("LSTM", {}), ("LSTM", {"proj_size": 2}), ("GRU", {})])
def test_packed_sequences(name: str, options: dict[str, int], sort: bool, device: str) -> None:
    lengths, batch_first = ([3, 2, 2, 1], True) if sort else ([2, 1, 3, 2], False)
    layers = 2 if device == "cpu" else 1  # where a launch takes long, one will do
    ours, theirs = pair(name, 3, 5, layers, bidirectional=True, device=device, **options)
    x, y = leaf(numbers(generator(name), (4, 3, 3) if batch_first else (3, 4, 3)), device)
    how = {"batch_first": batch_first, "enforce_sorted": sort}
    packed = rnn.pack_padded_sequence(x, dl.tensor(lengths), **how)
    expected = theirs_rnn.pack_padded_sequence(y, torch.tensor(lengths), **how)
    assert list(packed.batch_sizes) == expected.batch_sizes.tolist()
    sizes = (options.get("proj_size", 5), 5)[: 2 if name == "LSTM" else 1]
    arrays = [numbers(generator("h"), (2 * layers, 4, size)) for size in sizes]
    states = [(dl.tensor(a, device=device), torch.from_numpy(a)) for a in arrays]
    mine, other = ([s[side] for s in states] for side in (0, 1))
    given = (tuple(mine), tuple(other)) if name == "LSTM" else (mine[0], other[0])
    got, last = ours(packed, given[0])
    wanted, final = theirs(expected, given[1])
    padded, found = rnn.pad_packed_sequence(got, batch_first, padding_value=0.5, total_length=5)
    reference, sizes = theirs_rnn.pad_packed_sequence(wanted, batch_first, padding_value=0.5, total_length=5)
    assert found.tolist() == sizes.tolist() == lengths
    agree(ours, theirs, [padded, last], [reference, final], [(x, y)])


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("batch_first", [True, False])
def test_pad_sequence(batch_first: bool, side: str, device: str) -> None:
    arrays = [numbers(generator(n), (n, 2)) for n in (3, 1, 5)]
    got = rnn.pad_sequence([dl.tensor(a, device=device) for a in arrays], batch_first, 7.0, side)
    expected = theirs_rnn.pad_sequence([torch.from_numpy(a) for a in arrays], batch_first, 7.0, side)
    np.testing.assert_array_equal(got.numpy(), expected.numpy())
    packed = rnn.pack_sequence([dl.tensor(a, device=device) for a in arrays], enforce_sorted=False)
    other = theirs_rnn.pack_sequence([torch.from_numpy(a) for a in arrays], enforce_sorted=False)
    np.testing.assert_array_equal(packed.data.numpy(), other.data.numpy())
    assert list(packed.sorted_indices or ()) == other.sorted_indices.tolist()


# Refusals

X: Any = dl.zeros(5, 2, 3, device="cpu")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: dl.nn.LSTM(0, 5), ArgumentError, r"\[LSTM\] cannot map 0 features to 5"),
        (lambda: dl.nn.GRU(3, 5, 0), ArgumentError, r"\[GRU\] num_layers must be at least 1, got 0"),
        (lambda: dl.nn.GRU(3, 5, dropout=1.5), ArgumentError, r"\[GRU\] expected a probability .* got 1.5"),
        (lambda: dl.nn.RNN(3, 5, nonlinearity="x"), ArgumentError, r"\[RNN\] nonlinearity must be .* 'x'"),
        (lambda: dl.nn.LSTM(3, 5, proj_size=5), ArgumentError, r"\[LSTM\] proj_size .* less .* 5, got 5"),
        (lambda: dl.nn.LSTM(3, 5, proj_size=-1), ArgumentError, r"\[LSTM\] proj_size .* got -1"),
        (lambda: dl.nn.LSTM(3, 5, proj_size=2)(X, (X, X)), ShapeError, r"\[LSTM\] .* shape \(1, 2, 2\), got"),
        (lambda: dl.nn.LSTM(4, 5)(X), ShapeError, r"\[LSTM\] expected an input of 2 or 3 axes, .* size 4"),
        (lambda: dl.nn.LSTM(3, 5)(X[:0]), ShapeError, r"\[LSTM\] the input .* has no time steps"),
        (lambda: dl.nn.LSTM(3, 5)(X, X), ArgumentError, r"\[LSTM\] expected the states as a tuple"),
        (lambda: dl.nn.GRU(3, 5)(X, X), ShapeError, r"\[GRU\] a state must have shape \(1, 2, 5\), got"),
        (lambda: dl.nn.GRUCell(3, 5)(X), ShapeError, r"\[GRUCell\] expected an input of 1 or 2 axes"),
        (lambda: rnn.pack_padded_sequence(X, [1, 2]), ArgumentError, r"\[pack_padded_sequence\] .* fall"),
        (lambda: rnn.pack_padded_sequence(X, [6, 2]), ArgumentError, r"\[pack_padded_sequence\] .* 1 to 5"),
        (lambda: rnn.pack_padded_sequence(X, [2]), ShapeError, r"\[pack_padded_sequence\] .* each of 2"),
        (lambda: rnn.pack_padded_sequence(X[0, 0], [2]), ShapeError, r"\[pack_padded_sequence\] expected an"),
        (lambda: rnn.pad_sequence([]), ArgumentError, r"\[pad_sequence\] expected at least one sequence"),
        (lambda: rnn.pad_sequence([X], padding_side="up"), ArgumentError, r"\[pad_sequence\] padding_side"),
        (lambda: rnn.pad_packed_sequence(rnn.pack_sequence([X]), total_length=1), ArgumentError, "1 is less"),
        (lambda: dl.ops.lstm_step(X[0], X[0], X[0]), ShapeError, r"\[lstm_step\] gates_x must have shape"),
        (lambda: dl.ops.gru_step(X, X, X), ShapeError, r"\[gru_step\] expected a state of shape \(N, size\)"),
    ],
)  # fmt: skip
def test_refusals(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_repr() -> None:
    assert repr(dl.nn.LSTM(3, 5, 2, bidirectional=True)) == "LSTM(3, 5, num_layers=2, bidirectional=True)"
    assert repr(dl.nn.LSTM(3, 5, proj_size=2)) == "LSTM(3, 5, proj_size=2)"
    assert repr(dl.nn.GRUCell(3, 5, bias=False)) == "GRUCell(3, 5, bias=False)"
