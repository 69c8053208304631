"""Programs that chance writes compute the same on PyTorch, dl4all, compiled, on devices and on ``dlall``.

300 programs in the usual run, the same ones in each; 50,000 in the full run, others each night. One that
differs is cut down by Hypothesis to a short one, which is printed as a script.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="what is compared with")

from tests.attacks import random_programs  # noqa: E402
from tests.conftest import need  # noqa: E402
from tests.support.subcases import FULL  # noqa: E402

NUMBERS = st.integers(0, 63)
CHOICES = st.lists(st.tuples(st.integers(0, 999), NUMBERS, NUMBERS, NUMBERS), min_size=5, max_size=30)
SHAPES = st.tuples(NUMBERS, NUMBERS)
KOMPUTE = ["kompute:0"] if FULL else []
"""Runs the shaders of the other backend."""
KOMPUTE = ["kompute:0"] if FULL else []
"""Runs the shaders of the other backend."""


def programs(count: int) -> settings:
    return settings(
        max_examples=count * (170 if FULL else 1),
        derandomize=not FULL,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )


def check(made: random_programs.Program, *ways: str) -> None:
    found = random_programs.compare(made, ways)
    assert not found, f"{found}\n\n{made.script()}"


@programs(180)
@given(CHOICES, SHAPES, NUMBERS)
def test_functions_compiled(
    choices: list[random_programs.Choice], shapes: tuple[int, int], branch: int
) -> None:
    check(random_programs.program(choices, shapes, branch), "compiled")


@programs(60)
@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_training_steps_compiled(optimizer: int, loss: int, pause: int, extra: int, shape: int) -> None:
    check(random_programs.training(optimizer, loss, pause, extra, shape), "compiled")


@programs(30)
@given(CHOICES, SHAPES, NUMBERS)
def test_functions_on_the_device_of_pytorch(
    choices: list[random_programs.Choice], shapes: tuple[int, int], branch: int
) -> None:
    check(random_programs.program(choices, shapes, branch), "dlall")


@pytest.mark.vulkan
@programs(20)
@given(CHOICES, SHAPES, NUMBERS)
def test_functions_on_a_device(
    choices: list[random_programs.Choice], shapes: tuple[int, int], branch: int
) -> None:
    need("vulkan:0")
    check(random_programs.program(choices, shapes, branch), "vulkan:0")


@pytest.mark.vulkan
@programs(10)
@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_training_steps_on_devices(optimizer: int, loss: int, pause: int, extra: int, shape: int) -> None:
    need("vulkan:0")
    check(random_programs.training(optimizer, loss, pause, extra, shape), "vulkan:0", *KOMPUTE)


def test_a_fault_is_seen_and_cut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that forgets a view's writes is caught, by a program of few statements."""
    made = random_programs.program([(0, 0, 1, 2)] * 5, (0, 0), 0)
    own = random_programs.run(made, torch, torch.from_numpy, lambda function: function)
    other = random_programs.run(made, torch, lambda array: torch.from_numpy(array) * 1.01, lambda f: f)
    assert random_programs.difference(own, own, 1e-6, may_refuse=False) == ""
    assert "call 0" in random_programs.difference(own, other, 1e-4, may_refuse=False)
    assert "dl.compile(program)" in made.script()
