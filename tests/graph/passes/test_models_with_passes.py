"""Models compiled with all passes, with each alone, and without each, compute the same as uncompiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.graph.passes.pipeline import NAMES
from tests.support.traced_graphs import CASES, case_on

CALLS = 5  # of which the first two are traced
on_each_device = pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param("vulkan:0", marks=pytest.mark.vulkan),
        pytest.param("kompute:0", marks=[pytest.mark.vulkan, pytest.mark.full]),
    ],
    indirect=True,
)


def _run(case: str, device: str, *, compiled: bool) -> list[npt.NDArray[Any]]:
    """The results of some calls, and the model's parameters and buffers after them."""
    dl.manual_seed(7)
    call = case_on(case, device)
    made = dl.compile(call.function)
    function = made if compiled else call.function
    results = [function(*call.tensors).numpy() for _ in range(CALLS)]
    assert bool(made.specializations) == compiled
    return [*results, *(tensor.numpy() for tensor in call.module.state_dict().values())]


def _check(case: str, device: str) -> None:
    for compiled, plain in zip(
        _run(case, device, compiled=True), _run(case, device, compiled=False), strict=True
    ):
        np.testing.assert_allclose(compiled, plain, rtol=2e-3, atol=2e-5)


@pytest.mark.sampled(6)
@on_each_device
@pytest.mark.parametrize("passes", ["", "none"], ids=["all", "none"])
@pytest.mark.parametrize("case", CASES)
def test_all_and_none(monkeypatch: pytest.MonkeyPatch, device: str, case: str, passes: str) -> None:
    monkeypatch.setenv("DL4ALL_PASSES", passes)
    _check(case, device)


@pytest.mark.sampled(2)
@on_each_device
@pytest.mark.parametrize("sign", ["", "-"], ids=["alone", "without"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "case",
    [
        "training mlp",
        pytest.param("training gpt", marks=pytest.mark.full),
        pytest.param("forward resnet", marks=pytest.mark.full),
    ],
)
def test_each(monkeypatch: pytest.MonkeyPatch, device: str, case: str, name: str, sign: str) -> None:
    monkeypatch.setenv("DL4ALL_PASSES", sign + name)
    _check(case, device)
