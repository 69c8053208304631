"""Recurrent layers and cells with weights in few bits, beside the same numbers in floats."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.quantization import Int4WeightOnlyConfig, Int8WeightOnlyConfig, quantize_, quantize_dynamic
from tests.support.operands import generator, numbers

LAYERS: dict[str, Callable[[], Any]] = {
    "LSTM": lambda: dl.nn.LSTM(12, 20, 2, bidirectional=True),
    "LSTM with a projection": lambda: dl.nn.LSTM(12, 20, proj_size=8),
    "GRU": lambda: dl.nn.GRU(12, 16, batch_first=True, bias=False),
    "RNN": lambda: dl.nn.RNN(12, 9, nonlinearity="relu"),
    "LSTMCell": lambda: dl.nn.LSTMCell(12, 20),
    "GRUCell": lambda: dl.nn.GRUCell(12, 7),
}


def in_floats(small: Any, like: Any) -> Any:
    """A layer of floats with the numbers that the weights of another one stand for."""
    wide = copy.deepcopy(like)
    for name, _ in like.named_parameters():
        held = getattr(small, name)
        numbers_of = held.dequantized() if isinstance(held, dl.quantization.QuantizedWeight) else held
        getattr(wide, name).data = numbers_of.detach().clone()
    return wide


def first(result: Any) -> Any:
    return first(result[0]) if isinstance(result, tuple) else result


def drawn(name: str, device: str) -> tuple[Any, dl.Tensor]:
    dl.manual_seed(5)
    layer = LAYERS[name]().to(device)
    shape = (3, 12) if name.endswith("Cell") else (7, 3, 12)
    return layer, dl.tensor(numbers(generator("recurrent", name), shape), device=device)


@pytest.mark.parametrize("name", LAYERS)
def test_int8_weights_give_what_their_numbers_give(name: str, device: str) -> None:
    layer, x = drawn(name, device)
    small = copy.deepcopy(layer)
    quantize_(small, Int8WeightOnlyConfig(), lambda module, _: True)
    wanted = first(in_floats(small, layer)(x)).detach().cpu().numpy()
    with dl.no_grad():
        got = first(small(x)).cpu().numpy()
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    assert not np.array_equal(got, first(layer(x)).detach().cpu().numpy())


@pytest.mark.parametrize("name", LAYERS)
def test_dynamic_layers_are_near_floats_and_pass_gradients(name: str, device: str) -> None:
    layer, x = drawn(name, device)
    small = quantize_dynamic(layer)
    assert not any("weight" in key for key, _ in small.named_parameters())
    wanted = first(layer(x)).detach()
    scale = wanted.abs().max().item()
    with dl.no_grad():
        got = first(small(x))
        assert 0 < (got - wanted).abs().max().item() < 0.03 * scale
        compiled = dl.compile(small)
        for _ in range(3):
            assert first(compiled(x)).tolist() == got.tolist()
    given, exact = x.clone().requires_grad_(), x.clone().requires_grad_()
    recorded = first(small(given))
    np.testing.assert_allclose(recorded.detach().cpu().numpy(), got.cpu().numpy(), rtol=1e-3, atol=1e-5)
    recorded.square().sum().backward()
    first(layer(exact)).square().sum().backward()
    assert given.grad is not None
    assert exact.grad is not None
    assert (given.grad - exact.grad).abs().max().item() < 0.06 * exact.grad.abs().max().item()


def test_files_are_smaller_and_load_again() -> None:
    net = dl.nn.Sequential(dl.nn.LSTM(64, 64), dl.nn.Linear(64, 64))
    small, other = quantize_dynamic(net), quantize_dynamic(copy.deepcopy(net).half().float())
    sizes = [sum(t.numel() * t.dtype.itemsize for t in one.state_dict().values()) for one in (small, net)]
    assert sizes[0] < 0.29 * sizes[1]
    other.load_state_dict(small.state_dict())
    x = dl.randn(4, 2, 64)
    with dl.no_grad():
        assert other[0](x)[0].tolist() == small[0](x)[0].tolist()
    [report] = dl.quantization.layer_reports(net[:1], small[:1], x)
    assert report.kind == "Int8DynamicWeight"
    assert report.signal_to_noise > 30


def test_packed_sequences_and_mixed_precision(device: str) -> None:
    layer, x = drawn("LSTM", device)
    small = quantize_dynamic(layer)
    packed = dl.nn.utils.rnn.pack_padded_sequence(x, [7, 4, 2])
    with dl.no_grad():
        data = small(packed)[0].data
        assert (data - layer(packed)[0].data).abs().max().item() < 0.02
        with dl.autocast(dl.device(device).type, dtype=dl.bfloat16):
            assert small(x)[0].dtype == dl.bfloat16
        assert small.half()(x.half())[0].dtype == dl.float16


def test_recurrent_layers_stay_in_floats_unless_they_are_named() -> None:
    net = dl.nn.Sequential(dl.nn.Linear(32, 32), dl.nn.LSTM(32, 30))
    quantize_(net, Int4WeightOnlyConfig())
    assert isinstance(net[0].weight, dl.quantization.Int4Weight)
    assert isinstance(net[1].weight_ih_l0, dl.nn.Parameter)
    quantize_(net, Int8WeightOnlyConfig(), lambda module, _: isinstance(module, dl.nn.LSTM))
    assert isinstance(net[1].weight_hh_l0, dl.quantization.Int8Weight)
