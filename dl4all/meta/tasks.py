"""Tasks of a few classes with a few examples each, from any labelled data set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, ShapeError
from dl4all.tensor.creation import tensor
from dl4all.tensor.tensor import Tensor


class FewShotTask(NamedTuple):
    """A task: examples to adapt to, and queries to be measured on. Labels are 0 to ways - 1.

    Example:
        >>> import dl4all as dl
        >>> sampler = dl.meta.TaskSampler(dl.randn(20, 3), dl.arange(20) % 2, ways=2, shots=1, seed=0)
        >>> [tuple(part.shape) for part in next(iter(sampler))]
        [(2, 3), (2,), (2, 3), (2,)]
    """

    support_x: Tensor
    support_y: Tensor
    query_x: Tensor
    query_y: Tensor


class TaskSampler:
    """Endless tasks, drawn at random: some classes, and of each some examples and other queries.

    Args:
        inputs: a tensor or an array of shape (examples, ...).
        labels: of shape (examples,).
        ways: classes of a task.
        shots: examples of each class to adapt to.
        queries: of each class, others than the examples.
        classes: those that tasks are drawn from; all by default.
        seed: of the draws.
        device: of the tasks' tensors; the default device if None.

    Raises:
        ArgumentError: there are too few classes, or too few examples of one.
        ShapeError: there is not one label for each input.

    Example:
        >>> import dl4all as dl
        >>> x, labels = dl.randn(40, 6), dl.arange(40) % 4
        >>> sampler = dl.meta.TaskSampler(x, labels, ways=3, shots=2, queries=5, seed=0)
        >>> task = next(iter(sampler))
        >>> task.support_x.shape, task.query_y.tolist()
        ((6, 6), [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2])
        >>> sampler.batch(8).query_x.shape
        (8, 15, 6)
    """

    def __init__(
        self,
        inputs: Tensor | npt.NDArray[Any],
        labels: Tensor | Sequence[int] | npt.NDArray[Any],
        ways: int,
        shots: int,
        queries: int = 1,
        *,
        classes: Sequence[int] | None = None,
        seed: int | None = None,
        device: str | None = None,
    ) -> None:
        if min(ways, shots, queries) < 1:
            raise ArgumentError(
                f"[TaskSampler] expected at least one class, example and query, got ways={ways}, "
                f"shots={shots}, queries={queries}"
            )
        self._inputs, named = _array(inputs), _array(labels)
        if named.ndim != 1 or len(named) != len(self._inputs):
            raise ShapeError(
                f"[TaskSampler] expected a label for each of {len(self._inputs)} inputs, "
                f"got shape {named.shape}"
            )
        chosen = np.unique(named) if classes is None else np.asarray(classes)
        self._rows = [np.flatnonzero(named == label) for label in chosen]
        if len(set(chosen.tolist())) < max(ways, len(chosen)):
            raise ArgumentError(
                f"[TaskSampler] tasks of {ways} classes need as many different ones, got {chosen.tolist()}"
            )
        for label, rows in zip(chosen.tolist(), self._rows, strict=True):
            if len(rows) < shots + queries:
                raise ArgumentError(
                    f"[TaskSampler] class {label} has {len(rows)} examples, a task takes {shots + queries}"
                )
        self._ways, self._shots, self._queries = ways, shots, queries
        self._rng = np.random.default_rng(seed)
        self._device = device

    def __iter__(self) -> Iterator[FewShotTask]:
        while True:
            yield self._task(*self._drawn())

    def batch(self, tasks: int) -> FewShotTask:
        """Several tasks at once, along a new first axis."""
        if tasks < 1:
            raise ArgumentError(f"[TaskSampler] expected at least one task, got {tasks}")
        support, query = zip(*(self._drawn() for _ in range(tasks)), strict=True)
        return self._task(np.stack(support), np.stack(query))

    def _drawn(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Rows of the support set and of the queries."""
        classes = self._rng.choice(len(self._rows), self._ways, replace=False)
        rows = np.stack(
            [self._rng.choice(self._rows[c], self._shots + self._queries, replace=False) for c in classes]
        )
        return rows[:, : self._shots].ravel(), rows[:, self._shots :].ravel()

    def _task(self, support: npt.NDArray[np.int64], query: npt.NDArray[np.int64]) -> FewShotTask:
        return FewShotTask(*self._set(support, self._shots), *self._set(query, self._queries))

    def _set(self, rows: npt.NDArray[np.int64], each: int) -> tuple[Tensor, Tensor]:
        labels = np.broadcast_to(np.repeat(np.arange(self._ways), each), rows.shape)
        return tensor(self._inputs[rows], device=self._device), tensor(labels, device=self._device)


def _array(values: Any) -> npt.NDArray[Any]:
    return values.detach().numpy() if isinstance(values, Tensor) else np.asarray(values)
