"""Small training scripts about words, sounds, graphs and tables, as in ``image_scripts.py``."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from lab.torch_zoo.cases import STEPS, Script, train


def graph_convolution(device: str) -> list[torch.Tensor]:
    """Messages along edges, summed by index_add, with attention over neighbours by scatter."""
    nodes, edges = 23, 71
    source, target = (torch.randint(nodes, (edges,)).to(device) for _ in range(2))
    features, labels = torch.randn(nodes, 9).to(device), torch.randint(4, (nodes,)).to(device)
    chosen = torch.rand(nodes).to(device) > 0.3
    model = nn.ModuleList([nn.Linear(9, 16), nn.Linear(16, 4), nn.Linear(32, 1)]).to(device)
    degree = (
        torch.zeros(nodes, device=device).index_add_(0, target, torch.ones(edges, device=device)).clamp(min=1)
    )

    def loss() -> Any:
        hidden = model[0](features)
        norm = degree.rsqrt()
        messages = hidden[source] * (norm[source] * norm[target])[:, None]
        hidden = torch.zeros_like(hidden).index_add(0, target, messages).relu()
        logits = functional.leaky_relu(
            model[2](torch.cat([hidden[source], hidden[target]], -1)).squeeze(-1), 0.2
        )
        most = torch.zeros(nodes, device=device).scatter_reduce(0, target, logits, "amax", include_self=False)
        weight = (logits - most[target]).exp()
        total = torch.zeros(nodes, device=device).scatter_add(0, target, weight)
        weight = weight / (total[target] + 1e-9)
        index = target[:, None].expand(-1, 16)
        hidden = torch.zeros_like(hidden).scatter_add(0, index, hidden[source] * weight[:, None])
        return functional.nll_loss(model[1](hidden).log_softmax(-1)[chosen], labels[chosen])

    return train(model, loss, torch.optim.Adam(model.parameters(), 0.01, weight_decay=5e-4, eps=1e-3))


class _LanguageModel(nn.Module):
    def __init__(self, cell: type[nn.LSTM] | type[nn.GRU], bidirectional: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(37, 12, padding_idx=0)
        self.layers = cell(12, 16, 2, batch_first=True, bidirectional=bidirectional)
        self.out = nn.Linear(32 if bidirectional else 16, 37)

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embedding(ids), lengths, batch_first=True, enforce_sorted=False
        )
        found, _ = nn.utils.rnn.pad_packed_sequence(self.layers(packed)[0], batch_first=True)
        scores: torch.Tensor = self.out(found)
        return scores


def packed_lstm(device: str, cell: Any = nn.LSTM, bidirectional: bool = False) -> list[torch.Tensor]:
    """A language model over sentences of several lengths, with gradients clipped."""
    model = _LanguageModel(cell, bidirectional).to(device)
    lengths = torch.tensor([5, 9, 2, 7])
    ids = torch.randint(1, 37, (4, 9)).masked_fill(torch.arange(9) >= lengths[:, None], 0).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)

    def loss() -> Any:
        if any(p.grad is not None for p in model.parameters()):
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        scores = model(ids, lengths)
        return functional.cross_entropy(scores[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)

    return train(model, loss, optimizer)


def packed_gru(device: str) -> list[torch.Tensor]:
    """The same with GRUs in both directions."""
    return packed_lstm(device, nn.GRU, True)


def seq2seq_transformer(device: str) -> list[torch.Tensor]:
    """nn.Transformer with padding, a causal mask and a schedule; then greedy decoding."""
    embedding, transformer, out = (
        nn.Embedding(29, 16),
        nn.Transformer(16, 4, 2, 2, 32, 0.0, batch_first=True),
        nn.Linear(16, 29),
    )
    model = nn.ModuleList([embedding, transformer, out]).to(device)
    source, target = torch.randint(1, 29, (3, 7)), torch.randint(1, 29, (3, 6))
    source[1, 5:] = 0
    source, target = source.to(device), target.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, eps=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=STEPS + 1)

    def scores(ids: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=torch.device(device))
        hidden = transformer(
            embedding(source),
            embedding(ids),
            tgt_mask=mask,
            src_key_padding_mask=mask.new_zeros(source.shape).masked_fill(source == 0, -1e9),
            memory_key_padding_mask=source == 0,
            tgt_is_causal=True,
        )
        found: torch.Tensor = out(hidden)
        return found

    def loss() -> Any:
        found = functional.cross_entropy(
            scores(target[:, :-1]).transpose(1, 2), target[:, 1:], label_smoothing=0.1
        )
        schedule.step()
        return found

    found = train(model, loss, optimizer)
    model.eval()
    with torch.no_grad():
        ids = target[:, :1]
        for _ in range(4):
            ids = torch.cat([ids, scores(ids)[:, -1].argmax(-1, keepdim=True)], 1)
    return [*found, ids.float()]


def word2vec(device: str) -> list[torch.Tensor]:
    """Skip-grams with negative samples, and a bag of words."""
    centre, context, bag = nn.Embedding(53, 7), nn.Embedding(53, 7), nn.EmbeddingBag(53, 7, mode="mean")
    model = nn.ModuleList([centre, context, bag]).to(device)
    words, near, far = (torch.randint(53, shape).to(device) for shape in ((11,), (11,), (11, 4)))
    offsets = torch.tensor([0, 3, 3, 8]).to(device)

    def loss() -> Any:
        vectors = centre(words)
        good = functional.logsigmoid((vectors * context(near)).sum(-1)).mean()
        bad = (
            functional.logsigmoid(-torch.bmm(context(far), vectors.unsqueeze(-1)).squeeze(-1)).sum(-1).mean()
        )
        return bag(words, offsets).pow(2).mean() - good - bad

    return train(model, loss, torch.optim.Adagrad(model.parameters(), 0.1))


def speech_ctc(device: str) -> list[torch.Tensor]:
    """Convolutions over time, a GRU and the CTC loss, in mixed batches."""
    convolution, layers, out = (
        nn.Conv1d(8, 12, 5, stride=2, padding=2),
        nn.GRU(12, 10, bidirectional=True),
        nn.Linear(20, 6),
    )
    model = nn.ModuleList([convolution, layers, out]).to(device)
    sound, lengths = torch.randn(3, 8, 31).to(device), torch.tensor([16, 13, 11])
    words, sizes = torch.randint(1, 6, (3, 5)).to(device), torch.tensor([5, 3, 4])

    def loss() -> Any:
        hidden = functional.gelu(convolution(sound)).permute(2, 0, 1)
        scores = out(layers(hidden)[0]).log_softmax(-1)
        return functional.ctc_loss(scores, words, lengths, sizes, zero_infinity=True)

    return train(model, loss, torch.optim.Adamax(model.parameters(), 0.01, eps=1e-3))


def recommender(device: str) -> list[torch.Tensor]:
    """A factorization machine over fields of categories and numbers, evaluated by its best items."""
    embedding, linear, deep = (
        nn.Embedding(41, 6),
        nn.Embedding(41, 1),
        nn.Sequential(nn.Linear(18, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)),
    )
    model = nn.ModuleList([embedding, linear, deep]).to(device)
    fields, clicked = torch.randint(41, (17, 3)).to(device), torch.randint(2, (17,)).float().to(device)

    def scores() -> torch.Tensor:
        vectors = embedding(fields)
        crossed = 0.5 * (vectors.sum(1).pow(2) - vectors.pow(2).sum(1)).sum(1)
        found: torch.Tensor = linear(fields).sum((1, 2)) + crossed + deep(vectors.flatten(1)).squeeze(1)
        return found

    def loss() -> Any:
        weight = torch.tensor(1.5, device=device)
        return functional.binary_cross_entropy_with_logits(scores(), clicked, pos_weight=weight)

    found = train(model, loss, torch.optim.Adagrad(model.parameters(), 0.05, eps=1e-3))
    values, places = scores().detach().topk(5)
    ranked = scores().detach().sort(descending=True).values
    return [*found, values, places.float(), ranked, (torch.unique(fields, return_counts=True)[1]).float()]


SEQUENCE_SCRIPTS: dict[str, Script] = {
    function.__name__: function
    for function in (
        graph_convolution,
        packed_lstm,
        packed_gru,
        seq2seq_transformer,
        word2vec,
        speech_ctc,
        recommender,
    )
}
