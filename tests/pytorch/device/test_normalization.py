"""Normalisation on PyTorch's device: results, gradients and running statistics are those of PyTorch's CPU."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the PyTorch device needs PyTorch")

import torch.nn.functional as F  # noqa: E402

pytestmark = pytest.mark.usefixtures("natively")


def _step(module: Any, x: Any, grad: Any) -> list[Any]:
    """The result, the input's gradient, parameters and buffers, and gradients of parameters, on the CPU."""
    leaf = x.detach().requires_grad_()
    result = module(leaf)
    result.backward(grad)
    tensors = [
        result.detach(),
        leaf.grad,
        *module.state_dict().values(),
        *(p.grad for p in module.parameters()),
    ]
    return [one.cpu() for one in tensors]


def _check(module: Any, x: Any, place: str, tolerance: float = 1e-5) -> None:
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    there, grad = copy.deepcopy(module).to(place), torch.randn_like(x)
    want, got = _step(module, x, grad), _step(there, x.to(place), grad.to(place))
    for one, other in zip(want, got, strict=True):
        torch.testing.assert_close(other, one, rtol=10 * tolerance, atol=tolerance)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm(training: bool, place: str) -> None:
    for affine, tracked in itertools.product((True, False), repeat=2):
        for shape in ((5, 3), (2, 3, 7), (2, 3, 5, 7)):
            kind = torch.nn.BatchNorm2d if len(shape) == 4 else torch.nn.BatchNorm1d
            module = kind(3, affine=affine, track_running_stats=tracked)
            if tracked:
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
            _check(module.train(training), torch.randn(shape) * 3 + 1, place)


def test_batch_norm_of_half_precision_with_parameters_of_single(place: str) -> None:
    _check(torch.nn.BatchNorm2d(3), torch.randn(2, 3, 5, 7).half(), place, tolerance=2e-3)


def test_batch_norm_of_other_layouts(place: str) -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    _check(torch.nn.BatchNorm2d(3), x, place)
    _check(torch.nn.BatchNorm1d(5), torch.randn(5, 7).t(), place)


def test_functional_batch_norm_leaves_its_operands_alone(place: str) -> None:
    x, mean, var = torch.randn(4, 3, 5), torch.randn(3), torch.rand(3)
    op = torch.ops.aten._native_batch_norm_legit_functional
    there = mean.to(place)
    want = op(x, None, None, mean, var, True, 0.1, 1e-5)
    got = op(x.to(place), None, None, there, var.to(place), True, 0.1, 1e-5)
    for one, other in zip(want, got, strict=True):
        torch.testing.assert_close(other.cpu(), one)
    assert torch.equal(there.cpu(), mean)


def test_layer_norm(place: str) -> None:
    for sizes in ((13,), (5, 12), (7, 1031)):
        _check(torch.nn.LayerNorm(sizes, eps=1e-3), torch.randn(3, *sizes), place)
    _check(torch.nn.LayerNorm((12,), bias=False), torch.randn(5, 3, 12).transpose(0, 1), place)
    _check(torch.nn.LayerNorm((12,), elementwise_affine=False), torch.randn(0, 12), place)


def test_group_norm(place: str) -> None:
    for groups, shape in ((2, (3, 6, 5)), (3, (2, 39)), (1, (2, 4, 3, 4))):
        _check(torch.nn.GroupNorm(groups, shape[1]), torch.randn(shape), place)
    _check(torch.nn.InstanceNorm2d(3, affine=True, track_running_stats=True), torch.randn(2, 3, 5, 7), place)
    _check(torch.nn.RMSNorm(12), torch.randn(5, 12), place)


def test_statistics_of_layer_norm(place: str) -> None:
    x = torch.randn(3, 5, 7)
    want = torch.native_layer_norm(x, (5, 7), None, None, 1e-5)
    got = torch.native_layer_norm(x.to(place), (5, 7), None, None, 1e-5)
    for one, other in zip(want, got, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(other.cpu(), one, rtol=1e-5, atol=1e-6)


def test_second_gradients(place: str) -> None:
    """PyTorch composes them of other ops."""
    x, weight = torch.randn(4, 6), torch.randn(6)
    gradients = []
    for device in ("cpu", place):
        leaf = x.to(device, copy=True).requires_grad_()
        result = F.layer_norm(leaf, (6,), weight.to(device)).pow(3).sum()
        (first,) = torch.autograd.grad(result, leaf, create_graph=True)
        gradients.append(torch.autograd.grad(first.pow(2).sum(), leaf)[0].cpu())
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=1e-3)
