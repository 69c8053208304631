"""Transformers beside PyTorch's with the same state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError
from tests.support.operands import close, generator, numbers

torch = pytest.importorskip("torch", reason="layers are compared with PyTorch's")

TOLERANCE = 2e-5  # two layers of normalised sums, each rounded as tests/support/operands.py explains
GRADIENT = 5e-5


def fill(net: Any) -> None:
    rng = generator("transformer")
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.from_numpy(rng.uniform(-0.5, 0.5, tuple(parameter.shape))))


def same(ours: Any, theirs: Any, device: str) -> Any:
    fill(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    return ours.to(device)


@pytest.mark.parametrize(("activation", "norm_first"), [("relu", False), ("gelu", True)])
def test_encoder(activation: str, norm_first: bool, device: str) -> None:
    args = (6, 2, 8, 0.0, activation, 1e-4, True, norm_first)
    count = 2 if device == "cpu" else 1  # where a launch takes long, one layer will do
    layer = torch.nn.TransformerEncoderLayer(*args)
    theirs = torch.nn.TransformerEncoder(layer, count, torch.nn.LayerNorm(6), enable_nested_tensor=False)
    ours = dl.nn.TransformerEncoder(dl.nn.TransformerEncoderLayer(*args), count, dl.nn.LayerNorm(6))
    ours = same(ours, theirs, device)
    x = numbers(generator(activation), (2, 5, 6))
    padding = np.array([[False] * 5, [False, False, False, True, True]])
    mask = np.triu(np.ones((5, 5), bool), 1)
    a, b = dl.tensor(x, device=device).requires_grad_(), torch.from_numpy(x).requires_grad_()
    got = ours(a, dl.tensor(mask, device=device), dl.tensor(padding, device=device))
    expected = theirs(b, torch.from_numpy(mask), torch.from_numpy(padding))
    close(got.detach().numpy().astype(np.float64), expected.detach().numpy(), TOLERANCE)
    weights = numbers(generator("w"), got.shape)
    got.backward(dl.tensor(weights, device=device))
    expected.backward(torch.from_numpy(weights))
    for mine, other in [(a, b), *zip(ours.parameters(), theirs.parameters(), strict=True)]:
        close(mine.grad.numpy().astype(np.float64), other.grad.numpy(), GRADIENT)


def test_transformer(device: str) -> None:
    args = (6, 2, 1, 1, 8, 0.0, "relu")
    theirs = torch.nn.Transformer(*args, batch_first=True)
    ours = same(dl.nn.Transformer(*args, batch_first=True), theirs, device)
    source, target = numbers(generator("s"), (2, 5, 6)), numbers(generator("t"), (2, 3, 6))
    mask = ours.generate_square_subsequent_mask(3, device=device)
    other = theirs.generate_square_subsequent_mask(3)
    np.testing.assert_array_equal(mask.numpy(), other.numpy())
    got = ours(dl.tensor(source, device=device), dl.tensor(target, device=device), tgt_mask=mask)
    expected = theirs(torch.from_numpy(source), torch.from_numpy(target), tgt_mask=other)
    close(got.detach().numpy().astype(np.float64), expected.detach().numpy(), TOLERANCE)


@pytest.mark.parametrize("norm_first", [True, False])
def test_decoder(norm_first: bool) -> None:
    args = (6, 3, 8, 0.0, "gelu", 1e-5, True, norm_first, False)
    theirs = torch.nn.TransformerDecoder(torch.nn.TransformerDecoderLayer(*args), 2)
    ours = same(dl.nn.TransformerDecoder(dl.nn.TransformerDecoderLayer(*args), 2), theirs, "cpu")
    x, memory = numbers(generator("x"), (2, 3, 6)), numbers(generator("m"), (2, 5, 6))
    padding = np.array([[False] * 5, [False, False, False, True, True]])
    given = {"memory_key_padding_mask": padding}
    got = ours(dl.tensor(x), dl.tensor(memory), **{k: dl.tensor(v) for k, v in given.items()})
    expected = theirs(
        torch.from_numpy(x), torch.from_numpy(memory), **{k: torch.from_numpy(v) for k, v in given.items()}
    )
    close(got.detach().numpy().astype(np.float64), expected.detach().numpy(), TOLERANCE)


def test_layers_of_a_stack_learn_apart() -> None:
    net = dl.nn.TransformerEncoder(dl.nn.TransformerEncoderLayer(4, 2, 8), 3)
    parameters = list(net.parameters())
    assert len({id(p.storage) for p in parameters}) == len(parameters) == 36
    assert all(p.requires_grad for p in parameters)


def test_dropout_in_training_only() -> None:
    layer = dl.nn.TransformerEncoderLayer(6, 2, 8, 0.5)
    x = dl.tensor(numbers(generator("d"), (5, 2, 6)))
    dl.manual_seed(0)
    assert not np.array_equal(layer(x).numpy(), layer(x).numpy())
    layer.eval()
    np.testing.assert_array_equal(layer(x).numpy(), layer(x).numpy())


def test_an_unknown_activation() -> None:
    with pytest.raises(ArgumentError, match=r"\[TransformerEncoderLayer\] activation must be .* 'swish'"):
        dl.nn.TransformerEncoderLayer(4, 2, activation="swish")
