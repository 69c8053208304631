"""Recurrent networks: classifiers, language models and taggers of sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.networks.case import Batch, Case, supervised, tokens

WORDS, LABELS = 1000, 9


def lstm_classifier(lib: Any) -> Any:
    nn = lib.nn

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.lstm = nn.Embedding(WORDS, 64), nn.LSTM(64, 128, batch_first=True)
            self.head = nn.Linear(128, LABELS)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(self.embed(x))[0][:, -1])

    return Net()


def lstm_language_model(lib: Any) -> Any:
    """Two layers; scores of the next word, those of all places one below the other."""
    nn = lib.nn

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.lstm = nn.Embedding(WORDS, 128), nn.LSTM(128, 256, 2, batch_first=True)
            self.head = nn.Linear(256, WORDS)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(self.embed(x))[0]).flatten(0, 1)

    return Net()


def gru_tagger(lib: Any) -> Any:
    """Both ways; scores of each word's label."""
    nn = lib.nn

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(WORDS, 64)
            self.gru = nn.GRU(64, 64, batch_first=True, bidirectional=True)
            self.head = nn.Linear(128, LABELS)

        def forward(self, x: Any) -> Any:
            return self.head(self.gru(self.embed(x))[0]).flatten(0, 1)

    return Net()


def lstm_cell(lib: Any) -> Any:
    """A cell that a loop of the program calls for each time step; the next value of each series."""
    nn = lib.nn

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.LSTMCell(8, 64), nn.Linear(64, 8)

        def forward(self, x: Any) -> Any:
            h = c = x.new_zeros((x.shape[0], 64))
            outputs = []
            for step in range(x.shape[1]):
                h, c = self.cell(x[:, step], (h, c))
                outputs.append(self.head(h))
            return lib.stack(outputs, 1)

    return Net()


def squares(lib: Any, net: Any, x: Any, y: Any) -> Any:
    return lib.nn.functional.mse_loss(net(x), y)


def series(rng: np.random.Generator) -> Batch:
    walk = rng.standard_normal((16, 25, 8)).cumsum(1).astype(np.float32) / 5
    return walk[:, :-1].copy(), walk[:, 1:].copy()


CASES = {
    "lstm": Case(
        lstm_classifier,
        tokens(24, 30, vocabulary=WORDS, labels=LABELS, per_text=True),
        supervised(optimizer="Adam", lr=1e-4),
    ),
    "lstm-lm": Case(lstm_language_model, tokens(16, 35, vocabulary=WORDS), supervised(clip=0.25, lr=0.1)),
    "gru-tagger": Case(
        gru_tagger, tokens(16, 40, vocabulary=WORDS, labels=LABELS), supervised(optimizer="Adam", lr=1e-3)
    ),
    "lstm-cell": Case(lstm_cell, series, supervised(squares, optimizer="RMSprop", lr=1e-4)),
}
