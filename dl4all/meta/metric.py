"""Few-shot classification by distances to examples."""

from __future__ import annotations

from typing import Literal

from dl4all.errors import ArgumentError, ShapeError
from dl4all.nn import functional as F
from dl4all.nn.module import Module
from dl4all.tensor.tensor import Tensor

EPSILON = 1e-8
"""Keeps vectors without length from dividing by 0."""


class FewShotNet(Module):
    """A network that tells classes from a support set: the base of those below."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self.module = module

    def embedded(self, support: Tensor, labels: Tensor, query: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Vectors of the support set and the queries, and the classes of the former as one-hot vectors.

        Raises:
            ShapeError: there is not one label for each example of the support set.
            ArgumentError: a class below the largest label has no example.
        """
        name = type(self).__name__
        if labels.ndim != 1 or len(labels) != len(support) or not len(support):
            raise ShapeError(
                f"[{name}] expected a label for each example, got {tuple(labels.shape)} for {len(support)}"
            )
        classes = F.one_hot(labels).to(support.dtype)
        if (classes.sum(0) == 0).any():
            raise ArgumentError(f"[{name}] labels are 0 to classes - 1, and each class needs an example")
        vectors = [self.module(part) for part in (support, query)]
        if any(v.ndim != 2 for v in vectors):
            raise ShapeError(
                f"[{name}] the module is to give a vector for each example, it gave {tuple(vectors[0].shape)}"
            )
        return vectors[0], classes, vectors[1]


class ProtoNet(FewShotNet):
    """Prototypical network: each class is the mean of its examples.

    Args:
        module: makes a vector of each example.
        distance: ``"euclidean"``, squared, or ``"cosine"``.

    Raises:
        ArgumentError: there is no such distance.

    Source:
        J. Snell, K. Swersky and R. Zemel, Prototypical Networks for Few-shot Learning, 2017.

    Example:
        >>> import dl4all as dl
        >>> net = dl.meta.ProtoNet(dl.nn.Identity())
        >>> support, labels = dl.tensor([[0.0, 0.0], [4.0, 0.0]]), dl.tensor([0, 1])
        >>> net(support, labels, dl.tensor([[1.0, 0.0]])).tolist()
        [[-1.0, -9.0]]
    """

    def __init__(self, module: Module, distance: Literal["euclidean", "cosine"] = "euclidean") -> None:
        super().__init__(module)
        if distance not in ("euclidean", "cosine"):
            raise ArgumentError(f"[ProtoNet] distance is 'euclidean' or 'cosine', got {distance!r}")
        self.distance = distance

    def forward(self, support: Tensor, labels: Tensor, query: Tensor) -> Tensor:
        """Scores of the queries for each class.

        Args:
            support: examples, of shape (examples, ...).
            labels: their classes, from 0 on, of shape (examples,).
            query: what is to be told, of shape (queries, ...).

        Returns:
            Scores of shape (queries, classes), for a cross entropy.
        """
        vectors, classes, queries = self.embedded(support, labels, query)
        prototypes = (classes.T @ vectors) / classes.sum(0).unsqueeze(1)
        if self.distance == "cosine":
            return _cosine(queries, prototypes)
        return -(queries.unsqueeze(1) - prototypes.unsqueeze(0)).square().sum(2)


class MatchingNet(FewShotNet):
    """Matching network: each query looks at all examples, and takes the classes of those that are near.

    Without the full context embeddings of the paper.

    Args:
        module: makes a vector of each example.
        temperature: of the softmax over cosines.

    Raises:
        ArgumentError: the temperature is no positive number.

    Source:
        O. Vinyals et al., Matching Networks for One Shot Learning, 2016.

    Example:
        >>> import dl4all as dl
        >>> net = dl.meta.MatchingNet(dl.nn.Identity(), temperature=0.01)
        >>> support, labels = dl.tensor([[1.0, 0.0], [0.0, 1.0]]), dl.tensor([0, 1])
        >>> net(support, labels, dl.tensor([[0.1, 3.0]])).argmax(1).tolist()
        [1]
    """

    def __init__(self, module: Module, temperature: float = 0.1) -> None:
        super().__init__(module)
        if not temperature > 0:
            raise ArgumentError(f"[MatchingNet] temperature must be above 0, got {temperature}")
        self.temperature = temperature

    def forward(self, support: Tensor, labels: Tensor, query: Tensor) -> Tensor:
        """Logarithms of the queries' chances for each class, as :class:`ProtoNet` takes and returns them."""
        vectors, classes, queries = self.embedded(support, labels, query)
        scores = _cosine(queries, vectors) / self.temperature
        return (F.softmax(scores, 1) @ classes + EPSILON).log()


def _cosine(left: Tensor, right: Tensor) -> Tensor:
    """Cosines of the angles between the rows of two matrices."""
    return F.normalize(left, dim=1, eps=EPSILON) @ F.normalize(right, dim=1, eps=EPSILON).T
