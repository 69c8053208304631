"""Networks that index: over the edges of graphs, and in tables of embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.networks.case import Batch, Case, supervised

NODES, EDGES, FEATURES, HEADS, LABELS = 600, 3000, 64, 4, 7
ITEMS, FIELDS = 5000, 8


def graph_attention(lib: Any) -> Any:
    """Two layers of four heads; the softmax of a node's edges by gather and scatter."""
    nn, F = lib.nn, lib.nn.functional

    class Layer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, before: int, after: int) -> None:
            super().__init__()
            self.project = nn.Linear(before, HEADS * after, bias=False)
            self.sender, self.receiver = nn.Linear(after, 1), nn.Linear(after, 1)

        def forward(self, x: Any, source: Any, target: Any) -> Any:
            nodes = len(x)
            h = self.project(x).reshape(nodes, HEADS, -1)
            scores = self.sender(h)[source] + self.receiver(h)[target]
            scores = F.leaky_relu(scores, 0.2).squeeze(-1)
            place = target.unsqueeze(1).expand(-1, HEADS)
            most = scores.new_zeros((nodes, HEADS)).scatter_reduce(0, place, scores.detach(), "amax")
            weights = (scores - most[target]).exp()
            total = weights.new_zeros((nodes, HEADS)).index_add(0, target, weights)
            weights = weights / total[target]
            sums = h.new_zeros(h.shape).index_add(0, target, h[source] * weights.unsqueeze(-1))
            return sums.flatten(1)

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Layer(FEATURES, 16), Layer(HEADS * 16, LABELS)

        def forward(self, x: Any, source: Any, target: Any) -> Any:
            x = F.elu(self.first(x, source, target))
            return self.second(x, source, target).reshape(len(x), HEADS, LABELS).mean(1)

    return Net()


def message_passing(lib: Any) -> Any:
    """Three rounds of messages between 30 atoms or so, and their sum: small, as in chemistry."""
    nn = lib.nn

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.message = nn.Sequential(nn.Linear(64, 32), nn.ReLU())
            self.update = nn.GRUCell(32, 32)
            self.head = nn.Linear(32, LABELS)

        def forward(self, x: Any, source: Any, target: Any) -> Any:
            for _ in range(3):
                messages = self.message(lib.cat([x[source], x[target]], -1))
                x = self.update(lib.zeros_like(x).index_add(0, target, messages), x)
            return self.head(x)

    return Net()


def labels_of_nodes(lib: Any, net: Any, x: Any, source: Any, target: Any, y: Any) -> Any:
    return lib.nn.functional.cross_entropy(net(x, source, target), y)


def graph(nodes: int, edges: int, features: int) -> Any:
    """Nodes' features, edges' ends and nodes' labels; each node has an edge to itself."""

    def batch(rng: np.random.Generator) -> Batch:
        source, target = rng.integers(0, nodes, (2, edges))
        itself = np.arange(nodes)
        x = rng.standard_normal((nodes, features)).astype(np.float32)
        ends = (np.concatenate([end, itself]) for end in (source, target))
        return x, *ends, rng.integers(0, LABELS, nodes)

    return batch


def recommender(lib: Any) -> Any:
    """Wide and deep: a weight for each item that a user had, and an MLP of embeddings, for clicks."""
    nn = lib.nn

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.wide = nn.EmbeddingBag(ITEMS, 1, mode="sum")
            self.history = nn.EmbeddingBag(ITEMS, 32, mode="mean")
            self.fields = nn.Embedding(ITEMS, 16)
            self.deep = nn.Sequential(
                nn.Linear(32 + 16 * FIELDS + 13, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(),
                nn.Linear(64, 1),
            )  # fmt: skip

        def forward(self, items: Any, starts: Any, fields: Any, numbers: Any) -> Any:
            features = [self.history(items, starts), self.fields(fields).flatten(1), numbers]
            return (self.wide(items, starts) + self.deep(lib.cat(features, 1))).squeeze(1)

    return Net()


def clicks(lib: Any, net: Any, items: Any, starts: Any, fields: Any, numbers: Any, y: Any) -> Any:
    scores = net(items, starts, fields, numbers)
    return lib.nn.functional.binary_cross_entropy_with_logits(scores, y)


def visits(rng: np.random.Generator) -> Batch:
    """256 users with one to twenty items each."""
    lengths = rng.integers(1, 21, 256)
    starts = np.concatenate([[0], lengths.cumsum()[:-1]])
    numbers = rng.standard_normal((256, 13)).astype(np.float32)
    clicked = (rng.random(256) < 0.3).astype(np.float32)
    return (
        rng.integers(0, ITEMS, lengths.sum()),
        starts,
        rng.integers(0, ITEMS, (256, FIELDS)),
        numbers,
        clicked,
    )


CASES = {
    "graph-attention": Case(
        graph_attention, graph(NODES, EDGES, FEATURES), supervised(labels_of_nodes, optimizer="Adam", lr=1e-3)
    ),
    "messages": Case(
        message_passing, graph(30, 66, 32), supervised(labels_of_nodes, optimizer="Adam", lr=1e-4)
    ),
    "recommender": Case(recommender, visits, supervised(clicks, optimizer="Adagrad", lr=1e-2)),
}
