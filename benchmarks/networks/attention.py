"""Transformers: encoder, decoder, both, and one that sees images."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import dl4all as dl
from benchmarks.networks.case import Batch, Case, images, supervised, tokens
from benchmarks.torch_gpt import GPT

CHARACTERS, WORDS, LABELS, CLASSES = 96, 500, 9, 10


def gpt(lib: Any) -> Any:
    """Each library's own, with the same names of weights; 4 blocks, 4 heads and 128 features."""
    return (GPT if lib is torch else OurGPT)(CHARACTERS, 64, 4, 4, 128)


class OurGPT(dl.models.GPT):
    """With the scores of all places one below the other."""

    def forward(self, idx: Any) -> Any:
        return super().forward(idx).reshape(-1, CHARACTERS)


def encoder(lib: Any) -> Any:
    """Two layers with the norm behind, as in the first paper; a label for each word."""
    nn = lib.nn

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(WORDS, 128), nn.Embedding(64, 128)
            self.layers = nn.Sequential(
                *(nn.TransformerEncoderLayer(128, 4, 512, 0.0, batch_first=True) for _ in range(2))
            )
            self.head = nn.Linear(128, LABELS)

        def forward(self, x: Any) -> Any:
            return self.head(self.layers(self.words(x) + self.places.weight)).flatten(0, 1)

    return Net()


def translation(lib: Any) -> Any:
    """Encoder and decoder of one layer each, with a causal mask, for two batches of words."""
    nn = lib.nn

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(WORDS, 64)
            self.both = nn.Transformer(64, 4, 1, 1, 128, 0.0, batch_first=True)
            self.head = nn.Linear(64, WORDS)

        def forward(self, source: Any, target: Any, mask: Any) -> Any:
            y = self.both(self.words(source), self.words(target), tgt_mask=mask)
            return self.head(y).flatten(0, 1)

    return Net()


def next_words(lib: Any, net: Any, source: Any, target: Any, mask: Any, y: Any) -> Any:
    return lib.nn.functional.cross_entropy(net(source, target, mask), y)


def sentences(rng: np.random.Generator) -> Batch:
    source, target = rng.integers(0, WORDS, (16, 24)), rng.integers(0, WORDS, (16, 21))
    mask = np.triu(np.full((20, 20), -np.inf, np.float32), 1)
    return source, target[:, :-1].copy(), mask, target[:, 1:].reshape(-1)


def vision(lib: Any) -> Any:
    """A vision transformer: patches of 4x4, a token for the class, four layers with the norm before."""
    nn = lib.nn

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 128, 4, 4)
            self.summary = nn.Embedding(1, 128)
            self.places = nn.Embedding(65, 128)
            layer = (128, 4, 256, 0.0, "gelu")
            self.layers = nn.Sequential(
                *(nn.TransformerEncoderLayer(*layer, batch_first=True, norm_first=True) for _ in range(4))
            )
            self.norm, self.head = nn.LayerNorm(128), nn.Linear(128, CLASSES)

        def forward(self, x: Any) -> Any:
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = lib.cat([self.summary.weight.expand(x.shape[0], 1, 128), x], 1) + self.places.weight
            return self.head(self.norm(self.layers(x))[:, 0])

    return Net()


CASES = {
    "gpt": Case(gpt, tokens(16, 64, vocabulary=CHARACTERS), supervised()),
    "encoder": Case(
        encoder, tokens(16, 64, vocabulary=WORDS, labels=LABELS), supervised(optimizer="Adam", lr=1e-4)
    ),
    "translation": Case(translation, sentences, supervised(next_words, optimizer="Adam", lr=1e-4)),
    "vit": Case(vision, images(16, 3, 32), supervised(optimizer="AdamW", lr=1e-4)),
}
