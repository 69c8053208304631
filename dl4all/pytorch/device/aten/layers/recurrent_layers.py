"""LSTM, GRU and RNN over whole sequences, by one op of dl4all for each layer and direction.

ATen composes them of steps. Its composition serves second derivatives, tracing, and what dl4all refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dl4all.nn import recurrence
from dl4all.nn.recurrence import Steps, Weights
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.memory.copy import fresh_copy
from dl4all.pytorch.device.devices import NAME
from dl4all.pytorch.device.dispatch.registration import LIBRARY, REFUSALS, overload
from dl4all.pytorch.device.storage.memory import NotNative, tensor, wrap, wrap_parts

FLOATS = (torch.float32, torch.float16)
MODES = {"lstm": "lstm", "gru": "gru", "rnn_tanh": "tanh", "rnn_relu": "relu"}
"""ATen's names of the ops, and dl4all's of their cells."""

Tensors = Sequence[torch.Tensor]


# One layer in one direction


def _own(operands: Sequence[torch.Tensor | None]) -> list[Any]:
    return [None if one is None else tensor(one) for one in operands]


def _split(operands: Sequence[Any], mode: str) -> tuple[Any, tuple[Any, ...], Weights]:
    """The input, the states and the weights among the operands of a layer."""
    states = 2 if mode == "lstm" else 1
    return operands[0], tuple(operands[1 : 1 + states]), Weights(*operands[1 + states :])


def _forward(
    how: Steps, save: bool, operands: Sequence[torch.Tensor | None]
) -> tuple[TensorBase, torch.Tensor, list[torch.Tensor]]:
    """dl4all's result, the outputs, which share its memory, and the last states.

    Raises:
        NotNative: the device cannot keep so much in one buffer.
    """
    x, states, weights = _split(_own(operands), how.mode)
    if not recurrence.fits(x, weights, how):
        raise NotNative("a sequence too long for one buffer")
    result, (outputs, *last) = recurrence.sequence(x, states, weights, how, save=save)
    (y,) = wrap_parts(result, outputs.shape)
    return result, y, [wrap(fresh_copy(state)) for state in last]


class RecurrentLayer(torch.autograd.Function):
    """A layer in one direction, over packed rows."""

    @staticmethod
    def forward(ctx: Any, how: Steps, *operands: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        result, y, last = _forward(how, True, operands)
        reads_outputs = how.mode in ("tanh", "relu")  # a change in place then is an error
        ctx.save_for_backward(*operands, y if reads_outputs else None)
        ctx.how, ctx.result = how, result
        ctx.set_materialize_grads(False)
        return (y, *last)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        *operands, _ = ctx.saved_tensors
        needs = ctx.needs_input_grad[1:]
        if all(grad is None for grad in grads):
            return (None,) * (1 + len(operands))
        if torch.is_grad_enabled():
            return None, *_differentiable_gradients(ctx.how, grads, operands, needs)
        inputs = _split(_own(operands), ctx.how.mode)
        found = recurrence.gradients(_own(grads), *inputs, ctx.how, ctx.result, needs)
        # Both biases of an LSTM have one gradient. PyTorch copies a tensor that it gets twice.
        wrapped = {id(one): wrap(one) for one in found if one is not None}
        return None, *(None if one is None else wrapped[id(one)] for one in found)


def _differentiable_gradients(
    how: Steps, grads: Sequence[Any], operands: Sequence[Any], needs: Sequence[bool]
) -> list[torch.Tensor | None]:
    """The gradients of all operands that need one, which can be differentiated again."""
    outputs = composed(how, operands)
    pairs = [(one, grad) for one, grad in zip(outputs, grads, strict=True) if grad is not None]
    targets = [one for one, need in zip(operands, needs, strict=True) if need]
    found = iter(
        torch.autograd.grad(
            [one for one, _ in pairs], targets, [grad for _, grad in pairs],
            create_graph=True, allow_unused=True,
        )
    )  # fmt: skip
    return [next(found) if need else None for need in needs]


def composed(how: Steps, operands: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """ATen's composition for one layer in one direction; its reverse one comes with another in front."""
    x, states, weights = _split(operands, how.mode)
    directions = 1 + how.reverse
    parameters = [one for one in weights if one is not None] * directions
    op = overload(f"{next(name for name, mode in MODES.items() if mode == how.mode)}.data")
    initial = [torch.stack([state] * directions) for state in states]
    hx = initial if how.mode == "lstm" else initial[0]
    sizes, has_biases = torch.tensor(how.sizes), weights.bias_ih is not None
    y, *last = op.decompose(x, sizes, hx, parameters, has_biases, 1, 0.0, False, how.reverse)
    features = y.shape[1] // directions
    return (y[:, -features:], *(state[-1] for state in last))


# All layers


def layers(
    mode: str,
    x: torch.Tensor,
    sizes: tuple[int, ...],
    states: Tensors,
    parameters: Tensors,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[torch.Tensor, ...]:
    """The outputs for packed rows, and the last states of all layers and directions.

    Raises:
        NotNative, and dl4all's errors about operands.
    """
    _check(x, [*states, *parameters])
    directions = 1 + bidirectional
    count = len(parameters) // (num_layers * directions)
    save = torch.is_grad_enabled() and any(one.requires_grad for one in (x, *states, *parameters))
    last: list[Tensors] = []
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            at = layer * directions + direction
            weights = _weights(parameters[at * count : (at + 1) * count], has_biases)
            operands: list[torch.Tensor | None] = [x, *(state[at] for state in states), *weights]
            how = Steps(mode, sizes, bool(direction))
            y, *final = RecurrentLayer.apply(how, *operands) if save else _results(how, operands)
            outputs.append(y)
            last.append(final)
        x = torch.cat(outputs, 1) if bidirectional else outputs[0]
        if dropout and train and layer < num_layers - 1:
            x = torch.dropout(x, dropout, True)
    return (x, *(torch.stack(kind) for kind in zip(*last, strict=True)))


def _results(how: Steps, operands: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor, ...]:
    _, y, last = _forward(how, False, operands)
    return (y, *last)


def _weights(parameters: Tensors, has_biases: bool) -> list[torch.Tensor | None]:
    """The parameters of a layer in one direction, in the order of :class:`Weights`."""
    weights: list[torch.Tensor | None] = list(parameters)
    if not has_biases:
        weights[2:2] = [None, None]
    return weights + [None] * (len(Weights._fields) - len(weights))


def _check(x: torch.Tensor, others: Tensors) -> None:
    """
    Raises:
        NotNative
    """
    if any(type(one) not in (torch.Tensor, torch.nn.Parameter) for one in (x, *others)):
        raise NotNative("a traced call")
    if x.dtype not in FLOATS or any(one.dtype != x.dtype or one.device.type != NAME for one in others):
        raise NotNative("operands of other or of several dtypes")


# ATen's ops


def _of_sequences(name: str) -> Callable[..., Any]:
    """The kernel for padded sequences (steps, samples, features)."""
    mode, op = MODES[name], overload(f"{name}.input")

    def kernel(
        input: torch.Tensor,
        hx: Any,
        params: Tensors,
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        options = has_biases, num_layers, dropout, train, bidirectional
        states = hx if mode == "lstm" else [hx]
        try:
            steps = input.transpose(0, 1) if batch_first else input
            if steps.dim() != 3 or not steps.numel() or len(states) != (2 if mode == "lstm" else 1):
                raise NotNative("no rows of sequences")
            sizes = (steps.shape[1],) * steps.shape[0]
            y, *last = layers(mode, steps.flatten(0, 1), sizes, states, params, *options)
        except REFUSALS:
            return op.decompose(input, hx, params, *options, batch_first)
        y = y.unflatten(0, (len(sizes), sizes[0]))
        return (y.transpose(0, 1) if batch_first else y, *last)

    return kernel


def _of_packed_rows(name: str) -> Callable[..., Any]:
    """The kernel for packed sequences (rows, features)."""
    mode, op = MODES[name], overload(f"{name}.data")

    def kernel(
        data: torch.Tensor,
        batch_sizes: torch.Tensor,
        hx: Any,
        params: Tensors,
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
    ) -> Any:
        options = has_biases, num_layers, dropout, train, bidirectional
        states = hx if mode == "lstm" else [hx]
        try:
            if type(batch_sizes) is not torch.Tensor or batch_sizes.device.type != "cpu" or not data.numel():
                raise NotNative("no rows of sequences")
            return layers(mode, data, tuple(batch_sizes.tolist()), states, params, *options)
        except REFUSALS:
            return op.decompose(data, batch_sizes, hx, params, *options)

    return kernel


for _name in MODES:
    for _key in ("PrivateUse1", "AutogradPrivateUse1"):
        LIBRARY.impl(f"{_name}.input", _of_sequences(_name), _key)
        LIBRARY.impl(f"{_name}.data", _of_packed_rows(_name), _key)
