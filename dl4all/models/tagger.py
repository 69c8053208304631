"""Sequence tagging with a bidirectional LSTM (Huang et al., arXiv:1508.01991)."""

from __future__ import annotations

from collections.abc import Sequence

from dl4all import nn
from dl4all.nn.functional import dropout
from dl4all.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from dl4all.tensor.tensor import Tensor


class LSTMTagger(nn.Module):
    """Embedding, LSTM, and a classifier for each word.

    Args:
        vocab_size: how many words there are.
        num_tags: how many tags there are.
        embedding_dim: how many features a word has.
        hidden_dim: features of the LSTM in each direction.
        num_layers: how many layers the LSTM has.
        dropout: the dropout probability before each layer in training.
        bidirectional: whether the LSTM also reads from the end.
        padding_idx: the word that pads short sentences; it gets no gradient.

    Shape:
        Ints (N, T) to scores (N, T, num_tags).

    Example:
        >>> import dl4all as dl
        >>> net = dl.models.LSTMTagger(100, 5, embedding_dim=8, hidden_dim=4)
        >>> net(dl.tensor([[7, 8, 9], [3, 0, 0]], device="cpu"), lengths=[3, 1]).shape
        (2, 3, 5)
    """

    def __init__(
        self,
        vocab_size: int,
        num_tags: int,
        embedding_dim: int = 100,
        hidden_dim: int = 100,
        num_layers: int = 1,
        dropout: float = 0.0,
        bidirectional: bool = True,
        padding_idx: int | None = 0,
    ) -> None:
        super().__init__()
        self.rate = dropout
        self.embedding = nn.Embedding(vocab_size, embedding_dim, padding_idx)
        self.lstm = nn.LSTM(
            embedding_dim,
            hidden_dim,
            num_layers,
            batch_first=True,
            dropout=dropout if num_layers > 1 else 0.0,
            bidirectional=bidirectional,
        )
        self.classifier = nn.Linear(hidden_dim * (2 if bidirectional else 1), num_tags)

    def forward(self, words: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """Scores of the tags; with `lengths`, padding after a sentence's end has no influence.

        Raises:
            ArgumentError: a word or a length is out of range.
            ShapeError: the number of lengths is not that of sentences.
        """
        x = dropout(self.embedding(words), self.rate, self.training)
        if lengths is None:
            y = self.lstm(x)[0]
        else:
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            y, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=words.shape[1])
        scores: Tensor = self.classifier(dropout(y, self.rate, self.training))
        return scores
