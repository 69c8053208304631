"""Convolutions and their gradients against PyTorch's on the CPU."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import dl4all.torch  # noqa: E402

F = torch.nn.functional

# Shapes of input and weight, arguments, and whether there is a bias.
CASES: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...], dict[str, Any], bool]] = {
    "signals": (F.conv1d, (2, 3, 13), (5, 3, 3), {"padding": 2, "dilation": 3}, True),
    "images": (F.conv2d, (2, 3, 11, 7), (5, 3, 3, 2), {"stride": (2, 1), "padding": (1, 0)}, True),
    "one image": (F.conv2d, (4, 7, 5), (6, 2, 3, 3), {"groups": 2}, False),
    "depthwise": (F.conv2d, (2, 5, 7, 7), (5, 1, 3, 3), {"padding": "same", "groups": 5}, True),
    "volumes": (F.conv3d, (1, 2, 5, 3, 4), (3, 2, 3, 2, 1), {"padding": (1, 0, 0)}, True),
    "nothing": (F.conv2d, (0, 3, 5, 5), (2, 3, 3, 3), {}, True),
    "transposed signals": (F.conv_transpose1d, (2, 3, 5), (3, 4, 3), {"stride": 2}, False),
    "transposed images": (
        F.conv_transpose2d, (2, 4, 5, 3), (4, 3, 3, 2),
        {"stride": (3, 2), "padding": (1, 0), "output_padding": (2, 1), "groups": 2, "dilation": (1, 2)},
        True,
    ),
    "transposed, padded by more than a stride": (
        F.conv_transpose2d, (1, 2, 4, 3), (2, 2, 3, 3),
        {"stride": (1, 2), "padding": (2, 1), "output_padding": (2, 3), "dilation": 4}, True,
    ),
    "transposed volumes": (F.conv_transpose3d, (1, 2, 3, 2, 4), (2, 3, 2, 3, 1), {"stride": 2}, True),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_convolutions(case: str, place: str, natively: None) -> None:
    function, x_shape, w_shape, arguments, has_bias = CASES[case]
    torch.manual_seed(1)
    filters = w_shape[1] * arguments.get("groups", 1) if "transpose" in function.__name__ else w_shape[0]
    operands = [torch.randn(x_shape), torch.randn(w_shape), torch.randn(filters) if has_bias else None]
    results = []
    for where in ("cpu", place):
        leaves = [one if one is None else one.to(where).requires_grad_() for one in operands]
        output = function(*leaves, **arguments)
        wanted = [leaf for leaf in leaves if leaf is not None]
        results.append([output, *torch.autograd.grad((output**2).sum(), wanted)])
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-4)


def test_any_strides(place: str, natively: None) -> None:
    torch.manual_seed(2)
    x = torch.randn(2, 3, 7, 5).to(memory_format=torch.channels_last)
    w = torch.randn(3, 4, 3, 2).transpose(0, 1)
    expected = F.conv2d(x, w)
    got = F.conv2d(x.to(place), w.to(place))
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_only_the_gradients_in_need(place: str, natively: None) -> None:
    torch.manual_seed(3)
    x, w = torch.randn(1, 2, 5, 5).to(place), torch.randn(3, 2, 3, 3).to(place).requires_grad_()
    F.conv2d(x, w).sum().backward()
    expected = F.conv2d(x.cpu().transpose(0, 1), torch.ones(1, 1, 3, 3)).sum(1)
    assert x.grad is None
    torch.testing.assert_close(w.grad.cpu()[0], expected, rtol=1e-4, atol=1e-5)


def test_second_derivatives(natively: None) -> None:
    torch.manual_seed(4)
    x, w = torch.randn(2, 3, 6, 5), torch.randn(4, 3, 3, 2)
    results = []
    for where in ("cpu", "dlall"):
        leaves = [one.to(where).requires_grad_() for one in (x, w)]
        first = torch.autograd.grad((F.conv2d(*leaves, stride=2) ** 2).sum(), leaves, create_graph=True)
        results.append(torch.autograd.grad(sum((one**2).sum() for one in first), leaves))
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("transposed", [False, True])
def test_other_dtypes_run_on_the_cpu(transposed: bool) -> None:
    """ATen itself has no kernel of the op that devices get for the CPU."""
    torch.manual_seed(5)
    function = F.conv_transpose2d if transposed else F.conv2d
    operands = [torch.randn(shape, dtype=torch.complex64) for shape in ((2, 3, 5, 5), (3, 3, 2, 2), (3,))]
    dl4all.torch.set_fallback("silent")
    results = []
    for where in ("cpu", "dlall"):
        leaves = [one.to(where).requires_grad_() for one in operands]
        output = function(*leaves)
        results.append([output, *torch.autograd.grad(output.abs().sum(), leaves)])
    dl4all.torch.set_fallback(None)
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-4)


def test_wrong_operands_raise_as_on_the_cpu() -> None:
    x, w = torch.randn(2, 3, 5, 5).to("dlall"), torch.randn(2, 4, 3, 3).to("dlall")
    with pytest.raises(RuntimeError, match="expected input"):
        F.conv2d(x, w)
