"""Modules that IREE has compiled, beside ours."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, BackendMissingError, GradientError, GraphError
from dl4all.graph.run import compiled
from dl4all.onnx import iree_compiler
from tests.conftest import need, parameter

DEVICES = [parameter(name) for name in ("cpu", "vulkan:0")]
pytest.importorskip("iree.compiler", exc_type=ImportError)


def block() -> tuple[dl.nn.Module, Any]:
    return dl.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval(), dl.randn(2, 7, 32)


def convolutions() -> tuple[dl.nn.Module, Any]:
    layers = dl.nn.Conv2d(3, 8, 3, 2), dl.nn.BatchNorm2d(8), dl.nn.ReLU(), dl.nn.MaxPool2d(2), dl.nn.Flatten()
    return dl.nn.Sequential(*layers, dl.nn.Linear(8 * 49, 5)).eval(), dl.randn(2, 3, 29, 29)


def resnet18() -> tuple[dl.nn.Module, Any]:
    return dl.models.resnet18().eval(), dl.randn(1, 3, 64, 64)


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("make", [block, convolutions, pytest.param(resnet18, marks=pytest.mark.full)])
def test_it_computes_what_the_module_computes(name: str, make: Any) -> None:
    need(name)
    module, x = make()
    module, x = module.to(name), x.to(name)
    run: Any = dl.compile(module, backend="iree")
    with dl.no_grad():
        for scale in (1.0, 0.5):
            got, expected = run(x * scale), module(x * scale)
            assert got.device == expected.device
            np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)
    assert [*run.parameters()] == [*module.parameters()]


def test_each_kind_of_arguments_and_each_state_of_the_weights_is_compiled_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Any] = []
    inner = iree_compiler.compiled

    def counting(module: Any, tensors: Any) -> Any:
        made.append([tensor.shape for tensor in tensors])
        return inner(module, tensors)

    monkeypatch.setattr(iree_compiler, "compiled", counting)
    module = dl.nn.Linear(3, 2).to("cpu")
    run: Any = dl.compile(module, backend="iree")
    module.eval()
    with dl.no_grad():
        for rows in (1, 5, 1, 5):
            x = dl.randn(rows, 3, device="cpu")
            np.testing.assert_allclose(run(x).numpy(), module(x).numpy(), rtol=1e-5, atol=1e-6)
        assert made == [[(1, 3)], [(5, 3)]]
        module.weight.mul_(2)
        np.testing.assert_allclose(run(x).numpy(), module(x).numpy(), rtol=1e-5, atol=1e-6)
    assert len(made) == 3
    module.weight = dl.nn.Parameter(dl.ones(2, 3, device="cpu"))
    with dl.no_grad():
        np.testing.assert_allclose(run(x).numpy(), module(x).numpy(), rtol=1e-5, atol=1e-6)
    assert len(made) == 4
    module.train()
    with dl.no_grad(), pytest.raises(GraphError, match="training mode"):
        run(x)


def test_functions_of_tensors_with_several_results() -> None:
    run: Any = dl.compile(lambda x, y: (x @ y, (x * 2).relu()), backend="iree")
    x, y = dl.randn(3, 4, device="cpu"), dl.randn(4, 5, device="cpu")
    for one, other in zip(run(x, y), (x @ y, (x * 2).relu()), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-6)


def test_what_it_cannot_do_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = dl.nn.Linear(3, 2), dl.ones(1, 3, device="cpu")
    run: Any = dl.compile(module.to("cpu"), backend="iree")
    with pytest.raises(GradientError, match=r"computes no gradients; call it within dl\.no_grad"):
        run(x)
    with dl.no_grad(), pytest.raises(GraphError, match="training mode"):
        run(x)
    with pytest.raises(ArgumentError, match="takes tensors as arguments"):
        run(1.0)
    with pytest.raises(ArgumentError, match="a function that sees no tensors but its arguments"):
        dl.compile(lambda y: y + x, backend="iree")
    with dl.no_grad(), pytest.raises(ArgumentError, match="computes on the CPU and on Vulkan devices"):
        run(dl.ones(1, 3, device="null:0"))
    monkeypatch.setitem(sys.modules, "iree.compiler", None)
    iree_compiler._package.cache_clear()
    module.eval()
    with dl.no_grad(), pytest.raises(BackendMissingError, match=r"pip install 'onnx>=.*iree-base-compiler=="):
        run(x)
    iree_compiler._package.cache_clear()


def test_other_packages_bring_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("twice", "tests.onnx.test_iree_compiler:twice", compiled.COMPILERS)
    monkeypatch.setattr(compiled, "entry_points", lambda group: (entry,))
    run: Any = dl.compile(lambda x: x + 1, backend="twice")
    assert run(1) == 4
    names = "'iree', 'twice', 'eager', 'inductor'"
    with pytest.raises(ArgumentError, match=f"there is no compiler 'tree'; there are {names}"):
        dl.compile(lambda x: x, backend="tree")
    assert isinstance(dl.compile(lambda x: x, backend="inductor"), compiled.Compiled)


def twice(function: Any) -> Any:
    return lambda x: 2 * function(x)
