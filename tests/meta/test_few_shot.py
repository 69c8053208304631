"""Tasks, and networks that tell classes by distances to examples."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, ShapeError

LABELS = np.repeat([7, 3, 5, 1], [4, 9, 6, 5])
INPUTS = np.arange(24 * 2, dtype=np.float32).reshape(24, 2)


def test_tasks_have_their_classes_and_no_example_twice() -> None:
    sampler = dl.meta.TaskSampler(INPUTS, LABELS, ways=3, shots=2, queries=2, seed=0)
    classes = []
    for task in itertools.islice(sampler, 50):
        support, query = (x[:, 0].numpy().astype(int) // 2 for x in (task.support_x, task.query_x))
        assert task.support_y.tolist() == task.query_y.tolist() == [0, 0, 1, 1, 2, 2]
        assert len({*support.tolist(), *query.tolist()}) == 12
        of_class = LABELS[support].reshape(3, 2)
        assert (of_class == of_class[:, :1]).all()
        assert len(set(of_class[:, 0].tolist())) == 3
        np.testing.assert_array_equal(LABELS[query], LABELS[support])
        classes.append(tuple(of_class[:, 0].tolist()))
    assert len(set(classes)) > 10


def test_batches_are_several_tasks(device: str) -> None:
    options: Any = {"ways": 2, "shots": 1, "queries": 3, "classes": [3, 5], "seed": 4, "device": device}
    batch = dl.meta.TaskSampler(dl.tensor(INPUTS), dl.tensor(LABELS), **options).batch(5)
    single = list(itertools.islice(dl.meta.TaskSampler(INPUTS, LABELS.tolist(), **options), 5))
    assert batch.support_x.shape == (5, 2, 2)
    assert batch.query_y.shape == (5, 6)
    for name in dl.meta.FewShotTask._fields:
        stacked = np.stack([getattr(task, name).numpy() for task in single])
        np.testing.assert_array_equal(getattr(batch, name).numpy(), stacked)
        assert str(getattr(batch, name).device) == device


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"ways": 5}, ArgumentError, "5 classes need as many"),
        ({"ways": 2, "classes": [3, 3]}, ArgumentError, "as many different ones"),
        ({"ways": 1, "classes": [3, 9]}, ArgumentError, "class 9 has 0 examples"),
        ({"ways": 2, "shots": 4}, ArgumentError, "class 7 has 4 examples, a task takes 5"),
        ({"ways": 0}, ArgumentError, "ways=0"),
        ({"ways": 2, "queries": 0}, ArgumentError, "queries=0"),
        ({"ways": 2, "labels": LABELS[1:]}, ShapeError, "each of 24 inputs"),
        ({"ways": 2, "labels": LABELS[:, None]}, ShapeError, r"got shape \(24, 1\)"),
    ],
)
def test_tasks_that_cannot_be(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        dl.meta.TaskSampler(**{"inputs": INPUTS, "labels": LABELS, "shots": 1, "queries": 1, **options})


def test_a_batch_of_no_tasks() -> None:
    with pytest.raises(ArgumentError, match="at least one task"):
        dl.meta.TaskSampler(INPUTS, LABELS, 2, 1).batch(0)


def vectors(rows: int, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal((rows, 5)).astype(np.float32)


def cosines(left: Any, right: Any) -> Any:
    return (left @ right.T) / np.linalg.norm(left, axis=1)[:, None] / np.linalg.norm(right, axis=1)


def test_scores_are_distances_to_the_means(device: str) -> None:
    support, query, labels = vectors(7, 0), vectors(4, 1), np.array([2, 0, 1, 1, 0, 2, 2])
    weight = vectors(5, 2)
    linear = dl.nn.Linear(5, 5, bias=False).to(device)
    linear.weight.data = dl.tensor(weight, device=device)
    given = [dl.tensor(part, device=device) for part in (support, labels, query)]
    embedded, queries = support @ weight.T, query @ weight.T
    means = np.stack([embedded[labels == label].mean(0) for label in range(3)])
    squared = ((queries[:, None] - means) ** 2).sum(2)
    for distance, wanted in (("euclidean", -squared), ("cosine", cosines(queries, means))):
        found = dl.meta.ProtoNet(linear, distance)(*given).detach().numpy()  # type: ignore[arg-type]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    weights = np.exp(cosines(queries, embedded) / 0.3)
    chances = (weights / weights.sum(1, keepdims=True)) @ np.eye(3)[labels]
    matched = dl.meta.MatchingNet(linear, temperature=0.3)(*given).detach().numpy()
    np.testing.assert_allclose(np.exp(matched), chances, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [dl.meta.ProtoNet, dl.meta.MatchingNet])
def test_they_learn_which_axes_count(kind: Any) -> None:
    """Classes differ along two of six axes; the others are noise, and larger."""
    draw = np.random.default_rng(0)
    labels = np.arange(400) % 8
    x = draw.standard_normal((400, 6)) * [0.1, 0.1, 3, 3, 3, 3]
    x[:, :2] += draw.standard_normal((8, 2))[labels]
    sampler = dl.meta.TaskSampler(x.astype(np.float32), labels, 4, 2, 5, seed=0)
    net = kind(dl.nn.Linear(6, 4, bias=False))
    optimizer = dl.optim.Adam(net.parameters(), lr=0.03)
    losses = []
    for task in itertools.islice(sampler, 150):
        optimizer.zero_grad()
        scores = net(task.support_x, task.support_y, task.query_x)
        loss = dl.nn.functional.cross_entropy(scores, task.query_y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert np.mean(losses[-20:]) < 0.5 * np.mean(losses[:5])


@pytest.mark.parametrize("kind", [dl.meta.ProtoNet, dl.meta.MatchingNet])
def test_support_sets_that_are_wrong(kind: Any) -> None:
    net = kind(dl.nn.Identity())
    x = dl.randn(3, 2)
    for labels, message in (([0, 1], "a label for each example"), ([[0, 1, 1]], "a label for each example")):
        with pytest.raises(ShapeError, match=message):
            net(x, dl.tensor(labels), x)
    with pytest.raises(ArgumentError, match="each class needs an example"):
        net(x, dl.tensor([0, 2, 2]), x)
    with pytest.raises(ShapeError, match="a vector for each example"):
        net(dl.randn(3, 2, 2), dl.tensor([0, 1, 1]), dl.randn(3, 2, 2))
    with pytest.raises(ShapeError):
        net(dl.zeros(0, 2), dl.tensor([], dtype=dl.int64), x)


def test_bad_settings() -> None:
    with pytest.raises(ArgumentError, match="'euclidean' or 'cosine', got 'manhattan'"):
        dl.meta.ProtoNet(dl.nn.Identity(), "manhattan")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ArgumentError, match="temperature must be above 0"):
        dl.meta.MatchingNet(dl.nn.Identity(), 0.0)
