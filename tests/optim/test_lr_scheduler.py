"""Learning rate schedulers compared with PyTorch over a hundred steps, and their saved states."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError
from dl4all.optim import SGD, lr_scheduler

torch = pytest.importorskip("torch", reason="rates are compared with PyTorch's")

STEPS = 100
Make = Callable[[Any, Any], Any]  # from the module with the schedulers, and an optimizer

MAKE: dict[str, Make] = {
    "lambda": lambda m, o: m.LambdaLR(o, lambda epoch: 0.95**epoch),
    "lambdas": lambda m, o: m.LambdaLR(o, [lambda epoch: 1 / (1 + epoch), lambda epoch: epoch % 3]),
    "step": lambda m, o: m.StepLR(o, 7, 0.5),
    "multistep": lambda m, o: m.MultiStepLR(o, [30, 5, 30, 60], 0.3),
    "constant": lambda m, o: m.ConstantLR(o, 0.25, 12),
    "linear": lambda m, o: m.LinearLR(o, 0.1, 0.7, 40),
    "linear, defaults": lambda m, o: m.LinearLR(o),
    "exponential": lambda m, o: m.ExponentialLR(o, 0.97),
    "polynomial": lambda m, o: m.PolynomialLR(o, 60, 2.0),
    "cosine": lambda m, o: m.CosineAnnealingLR(o, 100, 1e-3),
    "cosine, up again": lambda m, o: m.CosineAnnealingLR(o, 17, 0.01),
    "restarts": lambda m, o: m.CosineAnnealingWarmRestarts(o, 9),
    "longer restarts": lambda m, o: m.CosineAnnealingWarmRestarts(o, 5, 2, 0.01),
    "one cycle": lambda m, o: m.OneCycleLR(o, 0.5, STEPS + 1),
    "one cycle, linear": lambda m, o: m.OneCycleLR(
        o, [0.5, 2.0], epochs=11, steps_per_epoch=10, pct_start=0.4, anneal_strategy="linear", div_factor=10,
    ),
    "one cycle, three phases": lambda m, o: m.OneCycleLR(
        o, 0.5, 120, three_phase=True, base_momentum=0.7, max_momentum=0.9, final_div_factor=100,
    ),
    "sequence": lambda m, o: m.SequentialLR(
        o, [m.LinearLR(o, 0.1, total_iters=10), m.CosineAnnealingLR(o, 40), m.ExponentialLR(o, 0.9)], [10, 60]
    ),
    "multiplicative": lambda m, o: m.MultiplicativeLR(o, [lambda epoch: 0.95, lambda epoch: 1 + epoch % 2]),
    "cyclic": lambda m, o: m.CyclicLR(o, 0.01, [0.1, 0.5], 7, 11),
    "cyclic, lower each time": lambda m, o: m.CyclicLR(o, 0.01, 0.1, 9, mode="triangular2"),
    "cyclic, lower each step": lambda m, o: m.CyclicLR(
        o, 0.01, 0.1, 9, mode="exp_range", gamma=0.98, base_momentum=[0.6, 0.7],
    ),
    "cyclic, scaled": lambda m, o: m.CyclicLR(
        o, 0.01, 0.1, 9, scale_fn=lambda step: 1 / (1 + step), scale_mode="iterations", cycle_momentum=False,
    ),
    "chained": lambda m, o: m.ChainedScheduler(
        [m.LinearLR(o, 0.1, total_iters=10), m.ExponentialLR(o, 0.97), m.StepLR(o, 9)]
    ),
    "sequence of restarts": lambda m, o: m.SequentialLR(
        o, [m.ConstantLR(o, 0.5, 100), m.CosineAnnealingWarmRestarts(o, 7), m.StepLR(o, 5)], [3, 50]
    ),
}  # fmt: skip


def pair(name: str = "SGD") -> tuple[Any, Any]:
    """An optimizer with two groups, here and in PyTorch."""
    made = []
    options = {"SGD": {"momentum": 0.8}, "Adam": {}, "RMSprop": {}}[name]
    for module, zeros in (
        (dl.optim, lambda: dl.zeros(1, device="cpu")),
        (torch.optim, lambda: torch.zeros(1)),
    ):
        groups = [{"params": [zeros()]}, {"params": [zeros()], "lr": 0.4}]
        made.append(getattr(module, name)(groups, lr=0.1, **options))
    return made[0], made[1]


def options(optimizer: Any) -> list[float]:
    """The options that schedulers change."""
    found = []
    for group in optimizer.param_groups:
        found += [group["lr"], *((group["betas"][0],) if "betas" in group else (group["momentum"],))]
    return found


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
@pytest.mark.parametrize("name", MAKE)
def test_rates_equal_pytorch(name: str, optimizer: str) -> None:
    mine, theirs = pair(optimizer)
    scheduler, reference = (
        MAKE[name](lr_scheduler, mine),
        MAKE[name](torch.optim.lr_scheduler, theirs),
    )
    for _ in range(STEPS):
        np.testing.assert_allclose(options(mine), options(theirs), rtol=1e-9, atol=1e-14)
        np.testing.assert_allclose(scheduler.get_last_lr(), reference.get_last_lr(), rtol=1e-9, atol=1e-14)
        scheduler.step()
        reference.step()


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
def test_several_schedulers_of_one_optimizer() -> None:
    """Each continues from the current rate, also where the user has set it."""
    mine, theirs = pair()
    made = [
        [m.ConstantLR(o, 0.1, 5), m.ExponentialLR(o, 0.9), m.StepLR(o, 4)]
        for m, o in ((lr_scheduler, mine), (torch.optim.lr_scheduler, theirs))
    ]
    for step in range(STEPS):
        if step == 10:
            mine.param_groups[0]["lr"] = theirs.param_groups[0]["lr"] = 3.0
        for schedulers in made:
            for scheduler in schedulers:
                scheduler.step()
        np.testing.assert_allclose(options(mine), options(theirs), rtol=1e-9)


@pytest.mark.parametrize(
    "given",
    [
        {}, {"mode": "max", "factor": 0.5, "patience": 2}, {"threshold": 0.1, "threshold_mode": "abs"},
        {"patience": 0, "cooldown": 3, "min_lr": 0.02}, {"patience": 1, "min_lr": [0.05, 0.1], "eps": 1e-3},
        {"mode": "max", "threshold": 0.05, "threshold_mode": "abs", "patience": 3},
    ],
    ids=str,
)  # fmt: skip
def test_plateau(given: dict[str, Any]) -> None:
    mine, theirs = pair()
    scheduler = lr_scheduler.ReduceLROnPlateau(mine, **given)
    reference = torch.optim.lr_scheduler.ReduceLROnPlateau(theirs, **given)
    rng = np.random.default_rng(3)
    for step in range(STEPS):
        if step == 40:  # from the saved state
            state, again = copy.deepcopy(scheduler.state_dict()), pair()[0]
            again.load_state_dict(mine.state_dict())
            mine, scheduler = again, lr_scheduler.ReduceLROnPlateau(again)
            scheduler.load_state_dict(state)
        loss = 2 / (1 + step) + rng.normal() * 0.1
        scheduler.step(dl.tensor(loss, dtype="float64", device="cpu") if step % 2 else loss)
        reference.step(loss)
        assert options(mine) == options(theirs)
        assert scheduler.get_last_lr() == [group["lr"] for group in theirs.param_groups]


@pytest.mark.parametrize("name", MAKE)
def test_states(name: str) -> None:
    """After saving at step 20 and loading into a new pair, the rates continue exactly."""
    mine, again = pair()[0], pair()[0]
    scheduler = MAKE[name](lr_scheduler, mine)
    for _ in range(20):
        scheduler.step()
    state = copy.deepcopy((mine.state_dict(), scheduler.state_dict()))
    other = MAKE[name](lr_scheduler, again)
    again.load_state_dict(state[0])
    other.load_state_dict(state[1])
    for _ in range(50):
        scheduler.step()
        other.step()
        assert options(mine) == options(again)


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
@pytest.mark.parametrize("name", ["StepLR", "ExponentialLR", "CosineAnnealingLR", "LinearLR", "MultiStepLR"])
def test_last_epoch(name: str) -> None:
    """``last_epoch`` continues with a loaded optimizer."""
    arguments = {
        "StepLR": (3,), "ExponentialLR": (0.9,), "CosineAnnealingLR": (20,), "LinearLR": (0.5,),
        "MultiStepLR": ([9, 12],),
    }[name]  # fmt: skip
    mine, theirs = pair()
    for optimizer in (mine, theirs):
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"] * 2
    scheduler = getattr(lr_scheduler, name)(mine, *arguments, last_epoch=7)
    reference = getattr(torch.optim.lr_scheduler, name)(theirs, *arguments, last_epoch=7)
    for _ in range(10):
        if name != "CosineAnnealingLR":  # PyTorch's changes the form in which it computes this
            np.testing.assert_allclose(options(mine), options(theirs), rtol=1e-9)
        scheduler.step()
        reference.step()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m, o: m.StepLR(o, 0), "step_size of at least 1"),
        (lambda m, o: m.LambdaLR(o, [float]), "2 groups, but 1 functions"),
        (lambda m, o: m.ConstantLR(o, 2.0), "factor above 0 and at most 1"),
        (lambda m, o: m.LinearLR(o, 0.0), "factors up to 1"),
        (lambda m, o: m.CosineAnnealingLR(o, 0), "T_max of at least 1"),
        (lambda m, o: m.CosineAnnealingWarmRestarts(o, 0), "T_0 and T_mult"),
        (lambda m, o: m.OneCycleLR(o, 1.0), "pass total_steps"),
        (lambda m, o: m.OneCycleLR(o, [1.0], 5), "2 groups, but 1 rates"),
        (lambda m, o: m.OneCycleLR(o, 1.0, 5, pct_start=1.5), "expected a share"),
        (lambda m, o: m.ReduceLROnPlateau(o, factor=1.0), "factor below 1"),
        (lambda m, o: m.ReduceLROnPlateau(o, mode="best"), "no such mode"),
        (lambda m, o: m.ReduceLROnPlateau(o, min_lr=[0.1]), "2 groups, but 1 lowest"),
        (lambda m, o: m.SequentialLR(o, [m.StepLR(o, 1)], [1]), "one milestone less"),
        (lambda m, o: m.SequentialLR(o, [m.ReduceLROnPlateau(o)], []), "of this optimizer"),
        (lambda m, o: m.ExponentialLR(o, 0.5, last_epoch=3), "no initial_lr"),
    ],
)
def test_refusals(make: Make, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make(lr_scheduler, pair()[0])


def test_one_cycle_ends_and_needs_a_momentum() -> None:
    scheduler = lr_scheduler.OneCycleLR(SGD([dl.zeros(1, device="cpu")]), 1.0, total_steps=3)
    for _ in range(3):
        scheduler.step()
    with pytest.raises(ArgumentError, match="step 4 comes after the last of 3"):
        scheduler.step()
    plain = dl.optim.Adagrad([dl.zeros(1, device="cpu")])
    with pytest.raises(ArgumentError, match="no momentum; pass cycle_momentum=False"):
        lr_scheduler.OneCycleLR(plain, 1.0, 10)
    assert lr_scheduler.OneCycleLR(plain, 1.0, 10, cycle_momentum=False).get_last_lr() == pytest.approx(
        [0.04]
    )


def test_step_uses_the_scheduled_rate(device: str) -> None:
    """An optimizer's next step takes the current rate."""
    w = dl.tensor([0.0], device=device)
    optimizer = SGD([w], lr=1.0)
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)
    for _ in range(3):
        w.grad = dl.tensor([-1.0], device=device)
        optimizer.step()
        scheduler.step()
    assert w.tolist() == [1.75]


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
@pytest.mark.parametrize("name", [name for name in MAKE if name != "cyclic, scaled"])
def test_states_go_to_pytorch_and_back(name: str) -> None:
    """A scheduler continues from the state that PyTorch's saved, and PyTorch's from its own."""
    (mine, theirs), (again, others) = pair(), pair()
    made = [MAKE[name](lr_scheduler, mine), MAKE[name](torch.optim.lr_scheduler, theirs)]
    for _ in range(20):
        for scheduler in made:
            scheduler.step()
    states = [
        copy.deepcopy((o.state_dict(), s.state_dict())) for o, s in zip((mine, theirs), made, strict=True)
    ]
    resumed = [MAKE[name](lr_scheduler, again), MAKE[name](torch.optim.lr_scheduler, others)]
    for optimizer, scheduler, (options_of, state) in zip(
        (again, others), resumed, reversed(states), strict=True
    ):
        optimizer.load_state_dict(options_of)
        scheduler.load_state_dict(state)
    for _ in range(40):
        for scheduler in (*made, *resumed):
            scheduler.step()
        for optimizer in (theirs, again, others):
            np.testing.assert_allclose(options(optimizer), options(mine), rtol=1e-9, atol=1e-14)


@pytest.mark.filterwarnings("ignore:.*epoch parameter.*", "ignore:.*lr_scheduler.step.*")
@pytest.mark.parametrize(
    "name",
    ["step", "multistep", "constant", "linear", "exponential", "polynomial", "cosine", "longer restarts"],
)
def test_a_given_epoch(name: str) -> None:
    mine, theirs = pair()
    made = MAKE[name](lr_scheduler, mine), MAKE[name](torch.optim.lr_scheduler, theirs)
    for epoch in (3, 31, 0, None, 12, None, *((2.75, None, 41.5) if "restarts" in name else ())):
        for scheduler in made:
            scheduler.step(epoch)
        np.testing.assert_allclose(options(mine), options(theirs), rtol=1e-9, atol=1e-14)


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
def test_a_scheduler_of_a_users_own() -> None:
    """As scripts write them: a subclass of _LRScheduler with get_lr()."""
    rates = []
    for library, optimizer in zip((lr_scheduler, torch.optim.lr_scheduler), pair(), strict=True):

        class Warmup(library._LRScheduler):  # type: ignore[misc, name-defined]
            def get_lr(self) -> list[float]:
                return [base * min(1.0, (self.last_epoch + 1) / 5) for base in self.base_lrs]

        made = library.SequentialLR(optimizer, [Warmup(optimizer), Warmup(optimizer)], [7])
        rates.append([made.get_last_lr()])
        for _ in range(10):
            made.step()
            rates[-1].append(made.get_last_lr())
    np.testing.assert_allclose(rates[0], rates[1], rtol=1e-9)


def test_a_rate_that_is_a_tensor(device: str) -> None:
    """It is filled, so that who holds it sees the rate, and the next step takes it."""
    rate, w = dl.tensor(1.0, device=device), dl.tensor([0.0], device=device)
    optimizer = SGD([w], lr=rate)
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)
    for _ in range(3):
        w.grad = dl.tensor([-1.0], device=device)
        optimizer.step()
        scheduler.step()
    assert (w.item(), rate.item(), optimizer.param_groups[0]["lr"] is rate) == (1.75, 0.125, True)
