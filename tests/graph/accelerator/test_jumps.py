"""Conditions, loops and masks as programs of the accelerator: jumps, and a word for each bool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError
from dl4all.graph.accelerator.program import AcceleratorProgram
from tests.conftest import need


def noise(*shape: int, seed: int = 0) -> dl.Tensor:
    return dl.tensor(np.random.default_rng(seed).standard_normal(shape, np.float32))


LAYER = dl.nn.Linear(8, 8)
WEIGHT = noise(8, 8, seed=5) * 0.3


def either(x: dl.Tensor) -> Any:
    """Branches that see a layer's parameters, and a result that is used behind."""
    return dl.cond((x > 2.5).any(), lambda x: LAYER(x).relu(), lambda x: x - LAYER(x), (x,)) * x


def root(a: dl.Tensor) -> Any:
    """Newton's iteration: how often it runs depends on the number."""
    return dl.while_loop(
        lambda x, a: (x * x - a).abs() > 1e-4, lambda x, a: ((x + a / x) / 2, a), (a, a)
    )[0]  # fmt: skip


def swapped(a: dl.Tensor, b: dl.Tensor) -> Any:
    """Carried tensors that change places."""
    total = dl.tensor(0.0)
    return dl.while_loop(lambda x, y, k: k < 100, lambda x, y, k: (y, x, k + x.abs().sum()), (a, b, total))


def nested(x: dl.Tensor) -> Any:
    """A condition in a loop, with a tensor of the call in a closure."""
    made = x @ WEIGHT

    def body(h: dl.Tensor, k: dl.Tensor) -> Any:
        up = dl.cond(h.sum() > 0, lambda h: (h @ WEIGHT).tanh(), lambda h: (h + made).sigmoid(), (h,))
        return up, k + 1

    return dl.while_loop(lambda h, k: k < 4, body, (made, dl.tensor(0.0)))[0]


def parts(x: dl.Tensor) -> Any:
    """Operands that lie in the middle of their memory."""
    return dl.cond((x > 0)[1, 2], lambda a, b: a - b, lambda a, b: b * 3, (x[1:3], x[2:]))


def masks(x: dl.Tensor, mask: dl.Tensor) -> Any:
    inside = (x > -1) & (x <= 1) | (x == 0)
    return inside, dl.where(mask, x, -x), (~inside & mask).float(), (x != x.floor()).float().sum()


CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[dl.Tensor, ...], ...]]] = {
    "either": (either, ((noise(5, 8) * 3,), (noise(5, 8) * 0.1,))),
    "root": (root, ((dl.tensor(2.0),), (dl.tensor(4900.0),), (dl.tensor(1.0),))),
    "swapped": (swapped, ((noise(6), noise(6, seed=1)), (noise(6) + 30, noise(6, seed=1)))),
    "nested": (nested, ((noise(4, 8),), (-noise(4, 8),))),
    "parts": (parts, ((noise(4, 5),), (-noise(4, 5),))),
    "masks": (masks, ((noise(3, 5), noise(3, 5, seed=1) > 0), (noise(3, 5), noise(3, 5, seed=2) > 1))),
}


def compiled(name: str) -> AcceleratorProgram:
    call, inputs = CASES[name]
    with dl.no_grad():
        return dl.accelerator_model(scratchpad=16 << 10).compile(call, *inputs[0])


@pytest.mark.parametrize("name", CASES)
def test_values_decide_in_each_run(name: str, device: str) -> None:
    need(device)
    program = compiled(name)
    for inputs in CASES[name][1]:
        with dl.no_grad():
            expected = CASES[name][0](*inputs)
        got = program(*inputs, device=device)
        pairs = zip(got, expected, strict=True) if isinstance(got, tuple) else [(got, expected)]
        for one, other in pairs:
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=2e-6, atol=2e-6)


def test_time_depends_on_values() -> None:
    program = compiled("root")
    assert program.report(dl.tensor(4900.0)).cycles > program.report(dl.tensor(2.0)).cycles
    with pytest.raises(ArgumentError, match=r"depends on data; give report\(\) inputs"):
        program.report()


def test_a_loop_takes_no_more_instructions_for_more_iterations() -> None:
    assert compiled("root").text.count("\njump ") == 3
    assert compiled("either").text.count("\njump ") == 2


def test_long_scans_are_refused() -> None:
    def folded(x: dl.Tensor) -> Any:
        return dl.scan(lambda c, x: (c + x, c * x), x[0], x)[1]

    with pytest.raises(ArgumentError, match="the op scan has no instructions: it is a scan of more slices"):
        dl.accelerator_model().compile(folded, noise(70, 3))


def test_tensors_of_other_elements_are_refused() -> None:
    with pytest.raises(ArgumentError, match="cond has no instructions: it takes or gives tensors of int64"):
        dl.accelerator_model().compile(
            lambda x, n: dl.cond(x.sum() > 0, lambda n: n, lambda n: n, (n,)), noise(3), dl.tensor([1, 2])
        )


def test_bools_do_not_compute() -> None:
    with pytest.raises(ArgumentError, match=r"has no instructions: it computes with bools"):
        dl.accelerator_model().compile(lambda x: (x > 0) + (x > 1), noise(3))
