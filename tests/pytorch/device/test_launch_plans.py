"""Calls on the device like earlier ones, which follow launch plans, compute what PyTorch computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from dl4all.pytorch.device.devices import device_at, names  # noqa: E402
from dl4all.pytorch.device.dispatch.launch_plans import KernelPlan  # noqa: E402

F = torch.nn.functional
ROUNDS = 4  # the second call makes a plan, later ones follow it

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "shared": lambda x, y: x * x - y * x,
    "number": lambda x, y: x * 0.5 + 3,
    "transposed": lambda x, y: x.transpose(-1, -2).contiguous() + 1,
    "channels_last": lambda x, y: torch.relu(x.contiguous(memory_format=torch.channels_last)),
    "part": lambda x, y: torch.exp(x[:, 1:, ::2]),
    "in place": lambda x, y: x.clone().mul_(2).add_(y, alpha=-0.3),
    "gelu": lambda x, y: F.gelu(x, approximate="tanh"),
    "softmax": lambda x, y: torch.softmax(x, -1),
    "sum": lambda x, y: (x.sum(), x.sum((0, 2)), x.sum((0, 2), keepdim=True)),
    "matmul": lambda x, y: x @ y.transpose(-1, -2),
    "convolution": lambda x, y: F.conv2d(x, y[:, :, :3, :3], padding=1),
    "layer_norm": lambda x, y: F.layer_norm(x, x.shape[-1:]),
}


@pytest.fixture(scope="module")
def place() -> Any:
    if "vulkan:0" not in names():
        pytest.skip("no Vulkan device")
    return torch.device("dlall", names().index("vulkan:0"))


@pytest.mark.parametrize("name", CALLS)
def test_repeated_calls_follow_pytorch(name: str, place: Any) -> None:
    generator = torch.Generator().manual_seed(len(name))
    for _ in range(ROUNDS):
        x, y = (torch.randn(3, 3, 5, 7, generator=generator) for _ in range(2))
        result, expected = CALLS[name](x.to(place), y.to(place)), CALLS[name](x, y)
        several = isinstance(expected, tuple)
        for own, other in zip(result, expected, strict=True) if several else ((result, expected),):
            assert own.stride() == other.stride()
            torch.testing.assert_close(own.cpu(), other, rtol=1e-5, atol=1e-5)
    plans = device_at(place.index).plans._plans.values()
    assert any(isinstance(plan, KernelPlan) for plan in plans)


def test_statistics_move_in_each_training_step(place: Any) -> None:
    generator = torch.Generator().manual_seed(3)
    theirs, ours = torch.nn.BatchNorm2d(5), torch.nn.BatchNorm2d(5).to(place)
    for _ in range(ROUNDS):
        x = torch.randn(2, 5, 7, 3, generator=generator)
        torch.testing.assert_close(ours(x.to(place)).cpu(), theirs(x), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(ours.running_mean.cpu(), theirs.running_mean)
        torch.testing.assert_close(ours.running_var.cpu(), theirs.running_var)


def test_changed_filters_count(place: Any) -> None:
    """Filters that PyTorch changes in place are transformed anew."""
    generator = torch.Generator().manual_seed(4)
    x, w = (torch.randn(16, 16, *size, generator=generator) for size in ((12, 12), (3, 3)))
    here, filters = x[:1].to(place), w.to(place)
    for _ in range(6):
        for _ in range(ROUNDS):
            expected = F.conv2d(x[:1], w, padding=1)
            torch.testing.assert_close(
                F.conv2d(here, filters, padding=1).cpu(), expected, rtol=1e-4, atol=1e-3
            )
        w.mul_(-1.25)
        filters.mul_(-1.25)


def test_random_numbers_differ(place: Any) -> None:
    x = torch.ones(32, 32, device=place)
    masks = [F.dropout(x, 0.5).cpu() for _ in range(ROUNDS)]
    assert not any(torch.equal(masks[0], other) for other in masks[1:])
