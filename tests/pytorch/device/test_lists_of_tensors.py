"""Ops of lists of tensors, and PyTorch's optimizers, compute what they do on the CPU in few dispatches."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the PyTorch device needs PyTorch")

import dl4all as dl  # noqa: E402
import dl4all.torch  # noqa: E402
from dl4all.pytorch.device.devices import device_at  # noqa: E402

pytestmark = pytest.mark.usefixtures("natively")

SHAPES = ((7, 5), (13,), (31, 17), (1,), (3, 3, 5, 2), (64,), (9, 4), (257,), (11, 11), (2,), (8, 3), (5,))


def random_lists(count: int, *shapes: tuple[int, ...]) -> list[list[Any]]:
    return [[torch.rand(shape) + 0.1 for shape in shapes or SHAPES] for _ in range(count)]


def moved(value: Any, place: str) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone().to(place)
    return [moved(one, place) for one in value] if isinstance(value, list) else value


def check(name: str, place: str, *arguments: Any, tolerance: float = 1e-6, **keywords: Any) -> int:
    """Both forms are as on the CPU; returns how many dispatches the one in place took."""
    overload = getattr(torch.ops.aten, name.partition(".")[0])
    kind = name.partition(".")[2] or "default"
    written = getattr(getattr(torch.ops.aten, name.partition(".")[0] + "_"), kind)
    functional = getattr(overload, kind)
    want = functional(*moved(arguments, "cpu"), **keywords)
    given = moved(list(arguments), place)
    for got, one in zip(functional(*given, **keywords), want, strict=True):
        assert got.stride() == one.stride()
        torch.testing.assert_close(got.cpu(), one, rtol=tolerance, atol=tolerance)
    before = device_at(given[0][0].get_device()).counters.launches
    written(*given, **keywords)
    launches = device_at(given[0][0].get_device()).counters.launches - before
    for got, one in zip(given[0], want, strict=True):
        torch.testing.assert_close(got.cpu(), one, rtol=tolerance, atol=tolerance)
    return int(launches)


def test_every_op_of_lists(place: str) -> None:
    a, b, c = random_lists(3)
    numbers = [0.5 + (at % 2) for at in range(len(SHAPES))]
    most = []
    for name in ("abs", "neg", "reciprocal", "sign", "sqrt"):
        most.append(check(f"_foreach_{name}", place, a))
    for name in ("add", "sub", "mul", "div", "maximum", "minimum", "clamp_min", "clamp_max"):
        most.append(check(f"_foreach_{name}.Scalar", place, a, 0.7))
        most.append(check(f"_foreach_{name}.List", place, a, b))
        check(f"_foreach_{name}.ScalarList", place, a, numbers)
    most.append(check("_foreach_add.List", place, a, b, alpha=-0.3))
    for name in ("addcmul", "addcdiv"):
        most.append(check(f"_foreach_{name}.Scalar", place, a, b, c, 0.3))
        check(f"_foreach_{name}.ScalarList", place, a, b, c, numbers)
    most.append(check("_foreach_lerp.Scalar", place, a, b, 0.2))
    most.append(check("_foreach_lerp.List", place, a, b, c))
    assert max(most) < len(SHAPES)


def test_lists_of_all_sorts(place: str) -> None:
    """Channels last, transposed, empty, of integers and of float16, broadcast, and one list given twice."""
    image = torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    sorts = [*random_lists(1)[0], image, torch.rand(5, 7).t(), torch.zeros(0, 3), torch.arange(5)]
    sorts += [torch.rand(9).half(), torch.rand(8)[::2]]
    check("_foreach_mul.Scalar", place, sorts, 3)
    check("_foreach_add.List", place, sorts, [torch.ones_like(one) for one in sorts])
    check("_foreach_add.List", place, [torch.rand(5, 3) for _ in range(9)], [torch.rand(3) for _ in range(9)])
    same = moved(random_lists(1)[0], place)
    want = [2 * one.cpu() for one in same]
    torch._foreach_add_(same, same)
    assert all(torch.equal(got.cpu(), one) for got, one in zip(same, want, strict=True))


def test_lists_of_different_lengths_are_pytorchs_error(place: str) -> None:
    dl4all.torch.set_fallback("silent")
    a, b = (moved(one, place) for one in random_lists(2))
    with pytest.raises(RuntimeError, match="same number of tensors"):
        torch._foreach_add_(a, b[1:])


def test_clipping(place: str) -> None:
    """Gradients are scaled by a number that stays on the device."""
    results = []
    values = [torch.randn(shape) for shape in SHAPES]
    for where in ("cpu", place):
        parameters = [torch.zeros(shape, device=where, requires_grad=True) for shape in SHAPES]
        for parameter, value in zip(parameters, values, strict=True):
            parameter.grad = value.clone().to(where)
        norm = torch.nn.utils.clip_grad_norm_(parameters, 0.5)
        results.append([norm.cpu(), *(parameter.grad.cpu() for parameter in parameters)])
    torch.testing.assert_close(results[1], results[0], rtol=2e-6, atol=1e-7)


OPTIMIZERS: list[tuple[Any, dict[str, Any]]] = [
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.2, "weight_decay": 0.01}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    (torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.1, "amsgrad": True}),
    (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1, "maximize": True}),
    (torch.optim.Adagrad, {"lr": 0.01, "lr_decay": 0.1}),
    (torch.optim.Adadelta, {"lr": 0.5, "weight_decay": 0.1}),
    (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.9, "centered": True}),
    (torch.optim.Adamax, {"lr": 0.01, "weight_decay": 0.1}),
    (torch.optim.NAdam, {"lr": 0.01}),
    (torch.optim.RAdam, {"lr": 0.01, "weight_decay": 0.1}),
    (torch.optim.Rprop, {"lr": 0.01}),
    (torch.optim.ASGD, {"lr": 0.01}),
    (torch.optim.Adafactor, {"lr": 0.01}),
]
FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)


def steps(optimizer: Any, options: dict[str, Any], place: str, start: list[Any], gradients: Any) -> list[Any]:
    """The parameters after a step for each list of gradients."""
    parameters = [value.clone().to(place).requires_grad_() for value in start]
    made = optimizer(parameters, **options)
    for one in gradients:
        for parameter, gradient in zip(parameters, one, strict=True):
            parameter.grad = gradient.clone().to(place)
        made.step()
    return [parameter.detach().cpu() for parameter in parameters]


@pytest.mark.parametrize(("optimizer", "options"), OPTIMIZERS)
def test_optimizers(place: str, optimizer: Any, options: dict[str, Any]) -> None:
    start = [torch.randn(shape) for shape in SHAPES]
    gradients = [[torch.randn(shape) for shape in SHAPES] for _ in range(3)]
    want = steps(optimizer, options, "cpu", start, gradients)
    forms = [{}, {"fused": True}] if optimizer in FUSED else [{}]
    for form in forms:
        got = steps(optimizer, options | form, place, start, gradients)
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_scaled_gradients(place: str) -> None:
    """A step that GradScaler skips, then one that it makes; fused, which divides the gradients itself."""
    results = []
    values = [[torch.randn(shape) for shape in SHAPES] for _ in range(3)]
    values[1][4][0] = float("inf")
    for where, fused in (("cpu", False), (place, False), (place, True)):
        parameters = [torch.ones(shape, device=where, requires_grad=True) for shape in SHAPES]
        optimizer = torch.optim.AdamW(parameters, lr=0.1, fused=fused)
        scaler = torch.amp.GradScaler(where.partition(":")[0], init_scale=8.0, growth_interval=1)
        for one in values:
            loss = sum((p * v.to(where)).sum() for p, v in zip(parameters, one, strict=True))
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            with dl.fallback.policy("silent"):  # GradScaler divides in float64, which Vulkan's devices lack
                scaler.step(optimizer)
            scaler.update()
        results.append([torch.tensor(scaler.get_scale()), *(one.detach().cpu() for one in parameters)])
    for got in results[1:]:
        torch.testing.assert_close(got, results[0], rtol=1e-5, atol=1e-6)
