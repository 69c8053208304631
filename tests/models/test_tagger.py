"""The tagger beside the same network of PyTorch's layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from tests.support.operands import close, generator

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")
rnn = torch.nn.utils.rnn


def test_scores_and_gradients(device: str) -> None:
    net = dl.models.LSTMTagger(11, 3, embedding_dim=4, hidden_dim=5)
    theirs = torch.nn.ModuleDict(
        {
            "embedding": torch.nn.Embedding(11, 4, 0),
            "lstm": torch.nn.LSTM(4, 5, batch_first=True, bidirectional=True),
            "classifier": torch.nn.Linear(10, 3),
        }
    )
    assert list(net.state_dict()) == list(theirs.state_dict())
    net.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    net.to(device)
    words = np.array([[3, 1, 0, 0], [2, 5, 5, 9], [7, 0, 0, 0]])
    lengths = [2, 4, 1]
    scores = net(dl.tensor(words, device=device), lengths)
    x = theirs["embedding"](torch.from_numpy(words))
    packed = rnn.pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
    y, _ = rnn.pad_packed_sequence(theirs["lstm"](packed)[0], batch_first=True)
    expected = theirs["classifier"](y)
    close(scores.detach().numpy().astype(np.float64), expected.detach().numpy(), 1e-5)
    target = generator("tags").integers(0, 3, 12)
    dl.nn.functional.cross_entropy(scores.reshape(12, 3), dl.tensor(target, device=device)).backward()
    torch.nn.functional.cross_entropy(expected.reshape(12, 3), torch.from_numpy(target)).backward()
    for a, b in zip(net.parameters(), theirs.parameters(), strict=True):
        close(a.grad.numpy().astype(np.float64), b.grad.numpy(), 3e-5)


def test_padding_has_no_influence() -> None:
    net = dl.models.LSTMTagger(11, 3, embedding_dim=4, hidden_dim=5, num_layers=2).eval()
    words: Any = np.array([[3, 1, 4, 9], [2, 5, 0, 0]])
    together = net(dl.tensor(words), [4, 2]).detach().numpy()
    alone = net(dl.tensor(words[1:, :2])).detach().numpy()
    np.testing.assert_allclose(together[1:, :2], alone, rtol=1e-5, atol=1e-6)


def test_it_learns_the_word_before() -> None:
    """Which takes the memory: a word's tag is whether the word before it was odd."""
    dl.manual_seed(0)
    net = dl.models.LSTMTagger(9, 2, embedding_dim=8, hidden_dim=8, padding_idx=None)
    optimizer = dl.optim.Adam(net.parameters(), lr=0.05)
    words = generator("sentences").integers(0, 9, (16, 6))
    tags = np.concatenate([np.zeros((16, 1), np.int64), words[:, :-1] % 2], 1)
    for _ in range(30):
        optimizer.zero_grad()
        scores = net(dl.tensor(words, device="cpu")).reshape(96, 2)
        loss = dl.nn.functional.cross_entropy(scores, dl.tensor(tags.reshape(-1), device="cpu"))
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
