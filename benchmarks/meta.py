"""Meta-learning on its two classical tests.

``python benchmarks/meta.py sinusoid`` trains MAML on sinusoids of random amplitude and phase (10 points, one
step, a perceptron of two layers of 40) and prints the mean squared error on new ones after 0, 1 and 5 steps.

``python benchmarks/meta.py digits`` trains MAML, Reptile, ANIL, ProtoNet and MatchingNet on the first five
digits of scikit-learn (8 x 8), and prints the accuracy on one-shot tasks of the five others, which they have
never seen, with 95 % intervals over 600 tasks.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import dl4all as dl

F = dl.nn.functional


def sinusoids(rng: np.random.Generator, tasks: int, points: int) -> list[dl.Tensor]:
    """Points of sinusoids to adapt to and others to be measured on: x, y, x, y of shape (tasks, points, 1).

    Source: C. Finn, P. Abbeel and S. Levine, Model-Agnostic Meta-Learning, 2017, section 5.1.
    """
    amplitude = rng.uniform(0.1, 5.0, (tasks, 1, 1))
    phase = rng.uniform(0.0, np.pi, (tasks, 1, 1))
    x = [rng.uniform(-5.0, 5.0, (tasks, count, 1)) for count in (points, points)]
    parts = [part for xs in x for part in (xs, amplitude * np.sin(xs - phase))]
    return [dl.tensor(part.astype(np.float32)) for part in parts]


def sinusoid(iterations: int) -> None:
    dl.manual_seed(0)
    rng = np.random.default_rng(0)
    layers = (dl.nn.Linear(1, 40), dl.nn.ReLU(), dl.nn.Linear(40, 40), dl.nn.ReLU(), dl.nn.Linear(40, 1))
    maml = dl.meta.MAML(dl.nn.Sequential(*layers), lr=0.01)
    optimizer = dl.optim.Adam(maml.parameters(), lr=1e-3)

    @dl.compile
    def losses(x: dl.Tensor, y: dl.Tensor, query_x: dl.Tensor, query_y: dl.Tensor) -> dl.Tensor:
        return maml.loss((x, y), (query_x, query_y), F.mse_loss).mean()

    begun = time.perf_counter()
    for number in range(iterations + 1):
        if number % (iterations // 5) == 0:
            errors = " ".join(f"{mean:.3f} ± {half:.3f}" for mean, half in measured(maml))
            seconds = time.perf_counter() - begun
            print(f"iteration {number}, {seconds:.0f} s: error after 0, 1, 5 steps {errors}", flush=True)
        optimizer.zero_grad()
        losses(*sinusoids(rng, 25, 10)).backward()
        optimizer.step()


def measured(maml: dl.meta.MAML, tasks: int = 600) -> list[tuple[float, float]]:
    """Mean squared errors on new sinusoids after 0, 1 and 5 steps, with half of their 95 % intervals."""
    x, y, query_x, query_y = sinusoids(np.random.default_rng(1), tasks, 10)
    found = []
    for steps in (0, 1, 5):
        if steps:
            losses = maml.loss((x, y), (query_x, query_y), F.mse_loss, steps).detach().numpy()
        else:
            losses = (maml(query_x) - query_y).square().mean((1, 2)).detach().numpy()
        found.append((float(losses.mean()), float(1.96 * losses.std() / tasks**0.5)))
    return found


def embedding(outputs: int) -> dl.nn.Module:
    """A small CNN for digits."""
    return dl.nn.Sequential(
        dl.nn.Conv2d(1, 32, 3, padding=1), dl.nn.ReLU(), dl.nn.MaxPool2d(2),
        dl.nn.Conv2d(32, 32, 3, padding=1), dl.nn.ReLU(), dl.nn.MaxPool2d(2),
        dl.nn.Flatten(), dl.nn.Linear(128, outputs),
    )  # fmt: skip


def digits(iterations: int) -> None:
    bunch = load_digits()
    x = bunch.images[:, None].astype(np.float32) / 16
    old = dl.meta.TaskSampler(x, bunch.target, 5, 1, 5, classes=range(5), seed=0)
    new = dl.meta.TaskSampler(x, bunch.target, 5, 1, 5, classes=range(5, 10), seed=1)
    dl.manual_seed(0)
    # Tasks of all five old classes differ in how they are numbered only, which is what there is to adapt to.
    steppers: dict[str, Callable[[dl.nn.Module], dl.meta.MAML]] = {
        "MAML": lambda net: dl.meta.MAML(net, lr=0.1),
        "ANIL": lambda net: dl.meta.ANIL(net, lr=0.1),
        "Reptile": lambda net: dl.meta.Reptile(net, lr=0.1, meta_lr=0.2),
    }
    for name, make in steppers.items():
        algorithm = make(embedding(5))
        optimizer = dl.optim.Adam(algorithm.parameters(), lr=1e-3)
        for _ in range(iterations):
            if isinstance(algorithm, dl.meta.Reptile):
                algorithm.update(
                    [adapted(algorithm, task, 5) for _, task in zip(range(4), old, strict=False)]
                )
                continue
            task = old.batch(8)
            optimizer.zero_grad()
            algorithm.loss(task[:2], task[2:], F.cross_entropy, 5).mean().backward()
            optimizer.step()
        report(name, [told(adapted(algorithm, task, 10)(task.query_x), task) for task in first(new)])
    for name, net in (
        ("ProtoNet", dl.meta.ProtoNet(embedding(32))),
        ("MatchingNet", dl.meta.MatchingNet(embedding(32))),
    ):
        optimizer = dl.optim.Adam(net.parameters(), lr=1e-3)
        for _, task in zip(range(iterations), old, strict=False):
            optimizer.zero_grad()
            F.cross_entropy(net(task.support_x, task.support_y, task.query_x), task.query_y).backward()
            optimizer.step()
        with dl.no_grad():
            report(name, [told(net(t.support_x, t.support_y, t.query_x), t) for t in first(new)])


def first(sampler: dl.meta.TaskSampler) -> list[dl.meta.FewShotTask]:
    return [task for _, task in zip(range(600), sampler, strict=False)]


def adapted(algorithm: dl.meta.MAML, task: dl.meta.FewShotTask, steps: int) -> dl.meta.Learner:
    learner = algorithm.clone()
    for _ in range(steps):
        learner.adapt(F.cross_entropy(learner(task.support_x), task.support_y))
    return learner


def told(scores: Any, task: dl.meta.FewShotTask) -> float:
    return float((scores.detach().argmax(1) == task.query_y).to(dl.float32).mean())


def report(name: str, accuracies: list[float]) -> None:
    half = 1.96 * np.std(accuracies) / len(accuracies) ** 0.5
    print(f"{name:12} {np.mean(accuracies):.3f} ± {half:.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("test", choices=["sinusoid", "digits"])
    parser.add_argument("--iterations", type=int)
    options = parser.parse_args()
    if options.test == "sinusoid":
        sinusoid(options.iterations or 30_000)
    else:
        digits(options.iterations or 600)
