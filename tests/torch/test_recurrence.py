"""Layers of LSTM and GRU against PyTorch's on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import dl4all.torch  # noqa: E402, F401 - registers the device


def outcome(layer: Any, x: Any, states: Any, use: Callable[..., Any]) -> list[Any]:
    """The outputs, and the gradients of input, states and parameters."""
    leaves = [x, *states]
    for leaf in leaves:
        leaf.requires_grad_()
    output, last = layer(x, tuple(states) if len(states) > 1 else states[0])
    results = [output, *(last if isinstance(last, tuple) else (last,))]
    parameters = list(layer.parameters())
    gradients = torch.autograd.grad(use(*results), [*leaves, *parameters], allow_unused=True)
    assert all(gradient is not None for gradient in gradients[: 1 + len(states)])
    return [one.detach().cpu() for one in (*results, *(g for g in gradients if g is not None))]


LAYERS = {
    "lstm": lambda: torch.nn.LSTM(5, 7),
    "lstm, two layers in both directions, no biases": lambda: torch.nn.LSTM(
        5, 3, num_layers=2, bidirectional=True, bias=False
    ),
    "lstm with a projection": lambda: torch.nn.LSTM(5, 7, proj_size=3),
    "gru": lambda: torch.nn.GRU(5, 7),
    "gru, two layers in both directions, no biases": lambda: torch.nn.GRU(
        5, 3, num_layers=2, bidirectional=True, bias=False
    ),
}
USES: dict[str, Callable[..., Any]] = {
    "all": lambda output, *last: (output * output).sum() + sum((one * one * one).sum() for one in last),
    "cells": lambda output, *last: (last[-1] * last[-1]).sum(),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")  # of the reference
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("layer", LAYERS)
def test_recurrent_layers(layer: str, use: str, place: str, natively: None) -> None:
    torch.manual_seed(3)
    host = LAYERS[layer]()
    device = LAYERS[layer]().to(place)
    device.load_state_dict(host.state_dict())
    directions = host.num_layers * (1 + host.bidirectional)
    sizes = [getattr(host, "proj_size", 0) or host.hidden_size]
    if isinstance(host, torch.nn.LSTM):
        sizes.append(host.hidden_size)
    x, states = torch.randn(4, 2, 5), [torch.randn(directions, 2, size) for size in sizes]
    expected = outcome(host, x, states, USES[use])
    got = outcome(device, x.detach().to(place), [s.detach().to(place) for s in states], USES[use])
    for one, other in zip(expected, got, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)


def test_packed_sequences(place: str, natively: None) -> None:
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    torch.manual_seed(4)
    host = torch.nn.LSTM(3, 5, bidirectional=True)
    device = torch.nn.LSTM(3, 5, bidirectional=True).to(place)
    device.load_state_dict(host.state_dict())
    x = torch.randn(4, 3, 3)
    results = []
    for layer, input in ((host, x), (device, x.to(place))):
        output, _ = layer(pack_padded_sequence(input, [4, 2, 1]))
        results.append(pad_packed_sequence(output)[0].cpu())
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cell", [torch.nn.LSTMCell, torch.nn.GRUCell])
def test_cells_of_other_dtypes_run_on_the_cpu(cell: Any) -> None:
    """ATen itself has no kernels of the fused steps for the CPU."""
    torch.manual_seed(5)
    host = cell(3, 5).bfloat16()
    device = cell(3, 5).bfloat16().to("dlall")
    device.load_state_dict(host.state_dict())
    x = torch.randn(2, 3).bfloat16()
    results = []
    for layer, input in ((host, x), (device, x.to("dlall"))):
        input.requires_grad_()
        output = layer(input)
        states = output if isinstance(output, tuple) else (output,)
        (gradient,) = torch.autograd.grad(sum((one * one).sum() for one in states), input)
        results.append([one.detach().float().cpu() for one in (*states, gradient)])
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=3e-2, atol=1e-2)


def test_second_derivative_of_a_step(natively: None) -> None:
    torch.manual_seed(6)
    host = torch.nn.GRUCell(3, 5)
    device = torch.nn.GRUCell(3, 5).to("dlall")
    device.load_state_dict(host.state_dict())
    x = torch.randn(2, 3)
    results = []
    for layer, input in ((host, x), (device, x.to("dlall"))):
        input = input.requires_grad_()
        (first,) = torch.autograd.grad((layer(input) ** 2).sum(), input, create_graph=True)
        (second,) = torch.autograd.grad((first**2).sum(), input)
        results.append(second.cpu())
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
