"""Found networks: their space, their source, their training, and which of them are taken together."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.automl.networks import NetworkSpace
from dl4all.automl.training import CRITERIA, OPTIMIZERS, SCHEDULES, _Batches, _shifted
from dl4all.errors import ArgumentError

Settings = dl.automl.TrainingSettings
SHAPES = [(1,), (7,), (130,), (1, 1), (3, 2), (2, 37), (1, 1, 1), (3, 5, 4), (1, 8, 8), (2, 33, 70)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("classes", [False, True])
def test_every_network_of_a_space_is_its_source(shape: tuple[int, ...], classes: bool) -> None:
    made = NetworkSpace(shape, 3, classes)
    space = dl.search.Space(made)
    for values in made.first():
        assert values.keys() <= space.dimensions.keys()
    names = set()
    x = dl.tensor(np.random.default_rng(0).normal(size=(4, *shape)).astype(np.float32))
    for seed in range(12):
        values = space.draw(seed)
        network = space.build(values)
        names |= set(values)
        again = eval(dl.automl.source(network), {"dl": dl})
        assert [(n, p.shape) for n, p in again.named_parameters()] == [
            (n, p.shape) for n, p in network.named_parameters()
        ]
        again.load_state_dict(network.state_dict())
        expected = network.eval()(x).detach().numpy()
        assert expected.shape == (4, 3)
        np.testing.assert_array_equal(again.eval()(x).detach().numpy(), expected)
        settings = dl.automl.training_settings(values)
        assert (settings.lr, settings.steps) == (values["lr"], values["steps"])
    assert names == set(space.dimensions), "draws that miss a hyperparameter prove little"


def problem(rows: int = 300) -> tuple[Any, Any]:
    """Points within a circle, and others."""
    x = np.random.default_rng(0).normal(size=(rows, 2)).astype(np.float32)
    return x, (np.square(x).sum(1) > 1.4).astype(np.int64)


def perceptron(outputs: int = 2) -> dl.nn.Module:
    dl.manual_seed(0)
    return dl.nn.Sequential(dl.nn.Linear(2, 32), dl.nn.Tanh(), dl.nn.Linear(32, outputs))


@pytest.mark.parametrize(("optimizer", "schedule"), list(itertools.product(OPTIMIZERS, SCHEDULES)))
def test_every_optimizer_and_schedule_trains(optimizer: str, schedule: str) -> None:
    x, y = problem()
    settings = Settings(lr=0.03, optimizer=optimizer, schedule=schedule, steps=200, weight_decay=1e-4)
    network = dl.automl.train(perceptron(), x, y, settings, device="cpu")
    right = dl.automl.outputs(network, x, device="cpu").argmax(1) == y
    assert right.mean() > (0.8 if optimizer == "sgd" else 0.95)
    assert not network.training


@pytest.mark.parametrize("device", ["cpu", "vulkan:0"])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_numbers_are_learned_on_each_device(device: str, criterion: str) -> None:
    x, _ = problem()
    y = np.stack([x[:, 0] * 2, x[:, 1] - x[:, 0]], 1)
    settings = Settings(lr=0.02, criterion=criterion, steps=150, mixup=0.2, noise=0.01)
    network = dl.automl.train(perceptron(), x, y, settings, device=device)
    assert np.square(dl.automl.outputs(network, x, device=device) - y).mean() < 0.05 * y.var()


def test_the_same_seed_trains_the_same_network() -> None:
    x, y = problem()
    settings = Settings(steps=30, mixup=0.4, noise=0.1)
    trained = [
        dl.automl.outputs(dl.automl.train(perceptron(), x, y, settings, seed=seed, device="cpu"), x)
        for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(trained[0], trained[1])
    assert np.abs(trained[0] - trained[2]).max() > 1e-3


def test_classes_that_are_missing_in_a_fold_may_be_mixed() -> None:
    x, y = problem()
    network = dl.automl.train(perceptron(5), x, y, Settings(steps=5, mixup=0.5), device="cpu")
    assert dl.automl.outputs(network, x, device="cpu").shape == (300, 5)


def test_training_ends_when_its_time_is_over() -> None:
    x, y = problem()
    begun = time.monotonic()
    dl.automl.train(perceptron(), x, y, Settings(steps=10**9), device="cpu", until=time.monotonic() + 0.3)
    assert time.monotonic() - begun < 60
    after = dl.automl.train(perceptron(), x, y, Settings(steps=10**9), device="cpu", until=0.0)
    before = next(perceptron().parameters()).tolist()
    assert next(after.parameters()).tolist() != before, "there is always a step"


@pytest.mark.parametrize("shape", [(6, 2, 9), (6, 1, 5, 7)])
def test_shifts_move_samples_and_let_zeros_in(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).uniform(1, 2, shape).astype(np.float32)
    moved = set()
    for seed in range(40):
        found = _shifted(x, 2, np.random.default_rng(seed))
        for one, sample in zip(found, x, strict=True):
            there = np.argwhere(one[0] > 0)
            place = tuple(int(-low) if low else int(n - 1 - high) for low, high, n in zip(
                there.min(0), there.max(0), shape[2:], strict=True))  # fmt: skip
            moved.add(place)
            kept = tuple(slice(max(0, p), n + min(0, p)) for p, n in zip(place, shape[2:], strict=True))
            came = tuple(slice(max(0, -p), n + min(0, -p)) for p, n in zip(place, shape[2:], strict=True))
            np.testing.assert_array_equal(one[(slice(None), *came)], sample[(slice(None), *kept)])
            assert one.sum() == pytest.approx(float(sample[(slice(None), *kept)].sum()), rel=1e-5)
    assert moved == set(itertools.product(range(-2, 3), repeat=len(shape) - 2))


def test_half_of_the_pictures_are_mirrored() -> None:
    x = np.random.default_rng(0).uniform(size=(64, 1, 3, 4)).astype(np.float32)
    batches = _Batches(
        x, np.zeros(64, np.int64), Settings(flip=True, batch=64, steps=3), np.random.default_rng(0), math.inf
    )
    plain = {sample.tobytes() for sample in x}
    mirrored = {np.ascontiguousarray(sample[..., ::-1]).tobytes() for sample in x}
    for found, _ in batches:
        assert len(found) == 64
        same = sum(np.ascontiguousarray(sample).tobytes() in plain for sample in found)
        assert sum(np.ascontiguousarray(sample).tobytes() in mirrored for sample in found) == 64 - same
        assert 16 < same < 48
    assert {sample.tobytes() for sample in x} == plain, "the samples themselves stay as they are"


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"optimizer": "magic"}, "one of adamw, nadam, sgd, got 'magic'"),
        ({"schedule": "never"}, "one of cosine, one-cycle, constant"),
        ({"criterion": "l3"}, "one of mse, huber"),
        ({"steps": 0}, "at least one step"),
        ({"batch": 0}, "at least one step"),
    ],
)
def test_settings_that_are_none(changed: dict[str, Any], match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        dl.automl.train(perceptron(), *problem(), Settings(**changed), device="cpu")
    with pytest.raises(ArgumentError, match="got 2 for 300"):
        dl.automl.train(perceptron(), problem()[0], problem()[1][:2], Settings(), device="cpu")


def test_ensembles_are_no_worse_than_their_best_network() -> None:
    for seed in range(20):
        draw = np.random.default_rng(seed)
        truth = draw.normal(size=50)
        guesses = [truth + draw.normal(scale=scale, size=50) for scale in draw.uniform(0.5, 3, 8)]

        def loss(guess: Any, truth: Any = truth) -> float:
            return float(np.square(guess - truth).mean())

        def mean(weights: Any, guesses: Any = guesses) -> Any:
            return sum(w * g for w, g in zip(weights, guesses, strict=True))

        weights = dl.automl.greedy_selection(guesses, loss)
        of_rounds = [loss(mean(dl.automl.greedy_selection(guesses, loss, rounds))) for rounds in range(1, 50)]
        assert of_rounds == sorted(of_rounds, reverse=True), "more rounds are never worse"
        assert weights.sum() == pytest.approx(1)
        assert loss(mean(weights)) < min(map(loss, guesses))
    alone = dl.automl.greedy_selection([truth, truth + 1], loss)
    assert alone.tolist() == [1.0, 0.0]
