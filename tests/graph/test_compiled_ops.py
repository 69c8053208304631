"""Every op, compiled alone, gives the results and gradients of immediate mode."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import Dl4allError
from dl4all.graph.run.compiled import CompileWarning
from dl4all.ops.core.op import Example, Op
from tests.support.operands import LAYOUTS, TOLERANCE, NDArray, operands_of
from tests.support.subcases import each_example, is_usual

CALLS = 4  # of which the last ones are replays


def _results(op: Op[...], case: Example, layout: str, device: str, *, compiled: bool) -> list[NDArray | None]:
    """What the op returns, and the gradients of its operands, call by call."""

    def call(*operands: Any) -> Any:
        return op(*operands, **dict(case.arguments))

    function = dl.compile(call) if compiled else call
    found: list[NDArray | None] = []
    dl.manual_seed(7)
    for number in range(CALLS):
        tensors, _ = operands_of(op, case, LAYOUTS[layout], device)
        leaves = [t for t in tensors if t is not None and t.dtype.kind == "f"]
        for leaf in leaves:
            leaf.requires_grad_()
        result = function(*tensors)
        found.append(result.numpy())
        if result.requires_grad:
            (result * (number + 1)).sum().backward()
            found += [None if leaf.grad is None else leaf.grad.numpy() for leaf in leaves]
    return found


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param("vulkan:0", marks=pytest.mark.vulkan),
        pytest.param("kompute:0", marks=[pytest.mark.vulkan, pytest.mark.full]),
    ],
    indirect=True,
)
@each_example("layout", LAYOUTS, most=1)
def test_a_compiled_op(op: Op[...], case: Example, layout: str, device: str) -> None:
    """On Vulkan each fourth elementwise op: ``codegen/test_elementwise.py`` generates kernels for all."""
    if device != "cpu" and not is_usual(op):
        pytest.skip("a full run compiles each elementwise op on Vulkan")
    try:
        plain = _results(op, case, layout, device, compiled=False)
    except Dl4allError as error:
        pytest.skip(f"it cannot run so: {error}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CompileWarning)
        compiled = _results(op, case, layout, device, compiled=True)
    for one, other in zip(compiled, plain, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            close = TOLERANCE.get(one.dtype.name, 0.0)
            scale = (
                float(np.max(np.abs(other[np.isfinite(other)]), initial=1.0)) if one.dtype.kind == "f" else 1
            )
            np.testing.assert_allclose(one, other, rtol=close, atol=close * scale)
