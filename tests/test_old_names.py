"""Names of early versions of PyTorch, and paths into it, by which public code still asks."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import numpy as np
import pytest

import dl4all as dl
import dl4all.distributions
from dl4all.autograd import variable
from dl4all.autograd.function import once_differentiable
from dl4all.distributions import PATHS
from dl4all.errors import BackendMissingError, DTypeError, GradientError

torch = pytest.importorskip("torch", reason="results are compared with PyTorch's")

Variable: Any = variable.Variable
VALUES = np.random.default_rng(4).standard_normal((3, 5)).astype(np.float32)


def test_variable_is_a_leaf_on_the_same_memory(device: str) -> None:
    base = dl.tensor(VALUES, device=device).requires_grad_()
    results = base * 2
    x = Variable(results)
    assert not x.requires_grad
    assert x.is_leaf
    x = Variable(results, requires_grad=True)
    x.data.add_(1)
    np.testing.assert_allclose(results.detach().numpy(), VALUES * 2 + 1, rtol=1e-6)
    (x * x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), VALUES * 4 + 2, rtol=1e-6)
    assert base.grad is None
    assert isinstance(results, Variable)
    assert not isinstance(VALUES, Variable)
    assert dl.autograd.Variable is Variable


@pytest.mark.parametrize("arguments", [(), (2,), (2, 3), (dl.Size((3, 1)),), ([4.0, 2.5],), ((1, 2),)])
def test_new_has_the_sizes_or_the_data(arguments: Any, device: str) -> None:
    for dtype in ("float32", "int64"):
        ours = dl.tensor([5], dtype=dtype, device=device).new(*arguments)
        words = [torch.Size(a) if isinstance(a, dl.Size) else a for a in arguments]
        theirs = torch.tensor([5], dtype=getattr(torch, dtype)).new(*words)
        assert tuple(ours.shape) == tuple(theirs.shape)
        assert ours.dtype == dtype
        assert str(ours.device) == device
        if arguments and not isinstance(arguments[0], (int, dl.Size)):
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_types_by_the_names_of_pytorchs_classes(device: str) -> None:
    x, reference = dl.tensor(VALUES * 9, device=device), torch.from_numpy(VALUES * 9)
    for kind in ["Float", "Double", "Half", "Long", "Int", "Short", "Char", "Bool"]:
        found, expected = x.type(f"torch.{kind}Tensor"), reference.type(f"torch.{kind}Tensor")
        assert found.dtype == expected.numpy().dtype
        np.testing.assert_array_equal(found.numpy(), expected.numpy())
    with pytest.raises(DTypeError, match=r"\[type\] 'torch.ComplexFloatTensor' names no class of tensors"):
        x.type("torch.ComplexFloatTensor")
    with dl.device("cpu"), pytest.raises(BackendMissingError, match="no device is called cuda"):
        x.type("torch.cuda.FloatTensor")


class Doubled(dl.autograd.Function):
    """Twice the square, with a backward that has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any, factor: float) -> Any:
        ctx.save_for_backward(x)
        return x * x * 2

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Any) -> Any:
        assert not dl.is_grad_enabled()
        (x,) = ctx.saved_tensors
        return gradient * x * 4, None


def test_once_differentiable(device: str) -> None:
    x = dl.tensor(VALUES, device=device).requires_grad_()
    Doubled.apply(x, 2.0).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), VALUES * 4, rtol=1e-6)
    first = Doubled.apply(x, 2.0).pow(2).sum()
    (gradient,) = dl.autograd.grad(first, x, create_graph=True)
    with pytest.raises(GradientError, match=r"Doubled.backward\] is declared with once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize("path", sorted(PATHS))
def test_distributions_under_the_paths_of_pytorch(path: str) -> None:
    ours = importlib.import_module(f"dl4all.distributions.{path}")
    theirs = importlib.import_module(f"torch.distributions.{path}")
    classes = {
        name for name in theirs.__all__ if inspect.isclass(getattr(theirs, name)) and hasattr(ours, name)
    }
    assert classes
    assert all(getattr(ours, name) is getattr(dl.distributions, name) for name in classes)


@pytest.mark.parametrize("shape", [(5, 3), (7, 2, 3), (4, 3, 5, 1)])
def test_fans_of_a_weight(shape: tuple[int, ...]) -> None:
    expected = torch.nn.init._calculate_fan_in_and_fan_out(torch.empty(shape))
    assert dl.nn.init._calculate_fan_in_and_fan_out(dl.empty(*shape, device="cpu")) == expected


def test_svd_names_v(device: str) -> None:
    U, S, V = factors = dl.svd(dl.tensor(VALUES, device=device))
    assert factors.V is V
    np.testing.assert_allclose((U @ dl.diag(S) @ V.T).numpy(), VALUES, rtol=1e-4, atol=1e-5)


def test_assert_says_the_message() -> None:
    dl._assert(True, "unused")
    with pytest.raises(AssertionError, match="expected a matrix"):
        dl._assert(VALUES.ndim == 1, "expected a matrix")
