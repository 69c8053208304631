"""Layers of LSTM and GRU against PyTorch's on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import dl4all.torch  # noqa: E402, F401 - registers the device
from dl4all.nn import recurrence  # noqa: E402


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
    "rnn of tanh, samples first": lambda: torch.nn.RNN(5, 7, num_layers=2, batch_first=True),
    "rnn of relu": lambda: torch.nn.RNN(5, 3, nonlinearity="relu", bidirectional=True),
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
    x = torch.randn(2, 4, 5) if host.batch_first else torch.randn(4, 2, 5)
    states = [torch.randn(directions, 2, size) for size in sizes]
    expected = outcome(host, x, states, USES[use])
    got = outcome(device, x.detach().to(place), [s.detach().to(place) for s in states], USES[use])
    for one, other in zip(expected, got, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_gradients_are_clipped_once(kind: Any, place: str, natively: None) -> None:
    torch.manual_seed(5)
    host = kind(3, 5, num_layers=2, bidirectional=True)
    device = kind(3, 5, num_layers=2, bidirectional=True).to(place)
    device.load_state_dict(host.state_dict())
    x = torch.randn(4, 2, 3)
    for layer, input in ((host, x), (device, x.to(place))):
        (layer(input)[0] ** 2).sum().backward()
        assert torch.nn.utils.clip_grad_norm_(layer.parameters(), 0.01) > 0.01
    for (name, expected), got in zip(host.named_parameters(), device.parameters(), strict=True):
        torch.testing.assert_close(got.grad.cpu(), expected.grad, rtol=1e-4, atol=1e-7, msg=name)


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_packed_sequences(kind: Any, place: str, natively: None) -> None:
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    torch.manual_seed(4)
    host = kind(3, 5, bidirectional=True)
    device = kind(3, 5, bidirectional=True).to(place)
    device.load_state_dict(host.state_dict())
    x = torch.randn(4, 3, 3)
    results = []
    for layer, input in ((host, x), (device, x.to(place))):
        input.requires_grad_()
        output, last = layer(pack_padded_sequence(input, [4, 2, 1]))
        last = last if isinstance(last, tuple) else (last,)
        outputs = [pad_packed_sequence(output)[0], *last]
        (gradient,) = torch.autograd.grad(sum((one**2).sum() for one in outputs), input)
        results.append([one.detach().cpu() for one in (*outputs, gradient)])
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_a_layer_is_one_op(natively: None, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    own = recurrence.sequence

    def counted(*args: Any, save: bool) -> Any:
        calls.append(save)
        return own(*args, save=save)

    monkeypatch.setattr(recurrence, "sequence", counted)
    layer = torch.nn.LSTM(3, 5, num_layers=2, bidirectional=True).to("dlall")
    output, _ = layer(torch.randn(4, 2, 3).to("dlall"))
    with torch.no_grad():
        same, _ = layer(torch.zeros(4, 2, 3).to("dlall"))
    with torch.inference_mode():
        layer(torch.zeros(4, 2, 3).to("dlall"))
    assert calls == [True] * 4 + [False] * 8
    assert (output.requires_grad, same.requires_grad) == (True, False)


def test_outputs_may_change_in_place(natively: None) -> None:
    """Where the gradient reads them, PyTorch says so."""
    torch.manual_seed(7)
    x, results = torch.randn(4, 2, 3), []
    for where in ("cpu", "dlall"):
        torch.manual_seed(8)
        layer = torch.nn.LSTM(3, 5).to(where)
        output, _ = layer(x.to(where))
        output = output * 2 if where == "cpu" else output.mul_(2)
        output.sum().backward()
        results.append(layer.weight_hh_l0.grad.cpu())
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
    output, _ = torch.nn.RNN(3, 5).to("dlall")(x.to("dlall"))
    with pytest.raises(RuntimeError, match="inplace operation"):
        output.mul_(2).sum().backward()


def test_dropout_between_layers(natively: None) -> None:
    layer = torch.nn.GRU(3, 64, num_layers=2, dropout=0.9).to("dlall")
    x = torch.randn(4, 2, 3).to("dlall")
    first, second = layer(x)[0], layer(x)[0]
    assert not torch.equal(first.cpu(), second.cpu())
    layer.eval()
    torch.testing.assert_close(layer(x)[0].cpu(), layer(x)[0].cpu())


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_gradients_of_both_biases_can_be_changed_in_place(kind: Any, natively: None) -> None:
    """As clipping does; those of an LSTM are equal."""
    torch.manual_seed(8)
    layer = kind(3, 5).to("dlall")
    layer(torch.randn(4, 2, 3).to("dlall"))[0].square().sum().backward()
    expected = layer.bias_hh_l0.grad.cpu()
    layer.bias_ih_l0.grad.mul_(2)
    assert torch.equal(layer.bias_hh_l0.grad.cpu(), expected)


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


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_second_derivatives_of_layers(kind: Any, natively: None) -> None:
    torch.manual_seed(9)
    host = kind(3, 5, bidirectional=True)
    device = kind(3, 5, bidirectional=True).to("dlall")
    device.load_state_dict(host.state_dict())
    x, results = torch.randn(4, 2, 3), []
    for layer, input in ((host, x), (device, x.to("dlall"))):
        leaves = [input.requires_grad_(), *layer.parameters()]
        output = layer(input)[0]
        first = torch.autograd.grad((output**2).sum(), leaves, create_graph=True)
        second = torch.autograd.grad(sum((one**2).sum() for one in first), leaves)
        results.append([one.detach().cpu() for one in (*first, *second)])
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)


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
