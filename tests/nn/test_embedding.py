"""Embeddings beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, ShapeError
from tests.support.operands import close, generator, numbers

torch = pytest.importorskip("torch", reason="layers are compared with PyTorch's")


@pytest.mark.parametrize("padding_idx", [None, 2, -1])
@pytest.mark.parametrize("shape", [(5,), (3, 7), (), (0, 2), (2, 1, 3)], ids=str)
def test_output_and_gradient(shape: tuple[int, ...], padding_idx: int | None, device: str) -> None:
    rng = generator(shape, padding_idx)
    table = numbers(rng, (11, 5))
    theirs = torch.nn.Embedding(11, 5, padding_idx)
    ours = dl.nn.Embedding(11, 5, padding_idx)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({"weight": table})
    theirs.load_state_dict({"weight": torch.from_numpy(table)})
    ours.to(device)
    assert ours.padding_idx == theirs.padding_idx
    index = rng.integers(0, 11, shape)  # several the same: their gradients are added up
    got = ours(dl.tensor(index, device=device))
    expected = theirs(torch.from_numpy(np.array(index)))
    assert (got.shape, str(got.device)) == (tuple(expected.shape), device)
    np.testing.assert_array_equal(got.detach().numpy(), expected.detach().numpy())
    weights = numbers(rng, got.shape)
    got.backward(dl.tensor(weights, device=device))
    expected.backward(torch.from_numpy(weights))
    close(ours.weight.grad.numpy().astype(np.float64), theirs.weight.grad.numpy(), 1e-6)


def test_every_index_of_the_same_row(device: str) -> None:
    layer = dl.nn.Embedding(7, 3).to(device)
    layer(dl.tensor(np.full(1009, 5), device=device)).sum().backward()
    expected = np.zeros((7, 3), np.float32)
    expected[5] = 1009
    np.testing.assert_array_equal(layer.weight.grad.numpy(), expected)


def test_derivatives() -> None:
    table = dl.tensor(numbers(generator("table"), (5, 3), "float64"), device="cpu").requires_grad_()
    index = dl.tensor([[0, 4], [4, 2]], device="cpu")
    assert dl.autograd.gradcheck(lambda t: dl.nn.functional.embedding(index, t * t), (table,))
    assert dl.autograd.gradgradcheck(lambda t: dl.nn.functional.embedding(index, t * t), (table,))


def test_initial_values() -> None:
    dl.manual_seed(0)
    weight = dl.nn.Embedding(1000, 20, padding_idx=3).weight.detach().numpy()
    assert abs(weight.mean()) < 0.03
    assert abs(weight.std() - 1) < 0.03
    assert (weight[3] == 0).all()
    assert (weight[4] != 0).all()


def test_from_pretrained(device: str) -> None:
    table = dl.tensor(numbers(generator("given"), (5, 3)), device=device)
    layer = dl.nn.Embedding.from_pretrained(table)
    assert not layer.weight.requires_grad
    assert layer.weight.storage is table.storage
    assert layer(dl.tensor([4], device=device)).tolist() == [table[4].tolist()]
    free = dl.nn.Embedding.from_pretrained(table, freeze=False, padding_idx=-1)
    assert (free.weight.requires_grad, free.padding_idx) == (True, 4)
    assert repr(free) == "Embedding(5, 3, padding_idx=4)"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda layer, i: layer(i(5)).numpy(), ArgumentError, r"\[embedding\] index 5 is out .* size 5"),
        (lambda layer, i: layer(i(-1)).numpy(), ArgumentError, r"\[embedding\] index -1 is out of range"),
        (lambda layer, i: layer(i(1.5)), DTypeError, r"\[embedding\] expected indices of int"),
        (lambda layer, i: dl.nn.Embedding(0, 3), ArgumentError, r"\[Embedding\] cannot have 0 vectors"),
        (lambda layer, i: dl.nn.Embedding(3, 3, 3), ArgumentError, r"\[Embedding\] padding_idx 3 is out of"),
        (lambda layer, i: dl.nn.Embedding.from_pretrained(i(1.0)), ShapeError, r"\[Embedding\] expected vec"),
    ],
)  # fmt: skip
def test_refusals(call: Any, error: type[Exception], message: str, device: str) -> None:
    layer = dl.nn.Embedding(5, 3).to(device)
    with pytest.raises(error, match=message):
        call(layer, lambda value: dl.tensor([value], device=device))
