"""The modules of ``module_db``: results, gradients of inputs and parameters, and buffers afterwards.

dl4all's module gets the weights of PyTorch's, in whose order and under whose names its own are.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_modules import module_db

import dl4all as dl
from lab.peer_databases.functions import Missing
from lab.peer_databases.operands import named, peer_tensors, to_peer, to_torch
from lab.peer_databases.outcome import Outcome
from lab.torch_databases.comparison import Wrong, all_close, compare, described
from lab.torch_databases.samples import copied, rounded, tensors, widened

Gradients = dict[str, torch.Tensor]


def entries(dtype: torch.dtype) -> dict[str, Any]:
    """The modules that take a dtype on the CPU, by name."""
    return {info.name: info for info in module_db if dtype in info.supported_dtypes("cpu")}


def samples(info: Any, dtype: torch.dtype) -> Iterator[tuple[Any, bool]]:
    """The samples of a module, each with whether it is in training."""
    for training in (True, False) if info.train_and_eval_differ else (True,):
        torch.manual_seed(0)
        made = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
        yield from ((sample, training) for sample in made)


def check(name: str, info: Any, dtype: torch.dtype, *, variants: bool = True) -> Outcome:
    """Compute all samples of a module, in training and, where that differs, in evaluation."""
    outcome = Outcome(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample, training in samples(info, dtype):
            try:
                _check_sample(outcome, info.module_cls, sample, training)
            except Missing as error:
                outcome.count("missing", str(error))
                break
    return outcome


def _check_sample(outcome: Outcome, module: Any, sample: Any, training: bool) -> None:
    made, given = sample.constructor_input, sample.forward_input
    operands = (given.args, dict(given.kwargs))
    torch.manual_seed(0)
    try:
        own = module(*made.args, **made.kwargs).train(training)
        lazy = any(isinstance(one, torch.nn.UninitializedParameter) for one in own.parameters())
        first = own if lazy else copy.deepcopy(own)
        own_operands = copied(operands)
        expected = _call(own, own_operands)
    except Exception:  # noqa: BLE001 - a module that PyTorch cannot compute shows nothing
        return
    what = f"{module.__name__}({described(made.args)} {described(made.kwargs)}) of {described(operands)}"
    with outcome.judging(what + (", training" if training else "")):
        other = _peer(module, made, first, training)
        operands_there = to_peer(operands)
        got = other(*operands_there[0], **operands_there[1])
        _compare(own, other, (first, operands, own_operands, operands_there), expected, got)


def _peer(module: Any, made: Any, first: Any, training: bool) -> Any:
    """dl4all's module with the weights of PyTorch's.

    Raises:
        Missing: there is no such module.
        Wrong: the names or their order differ.
    """
    kind = getattr(dl.nn, module.__name__, None)
    if kind is None:
        raise Missing(f"dl4all has no nn.{module.__name__}")
    args, kwargs = _arguments((made.args, dict(made.kwargs)))
    peer = kind(*args, **kwargs).to(dl.tensor([]).device).train(training)
    weights = {key: to_torch(value.detach()).numpy() for key, value in first.state_dict().items()}
    if list(weights) != list(peer.state_dict()):
        raise Wrong(f"a state dict of {list(weights)} expected, got {list(peer.state_dict())}")
    peer.load_state_dict(weights)
    return peer


def _arguments(value: Any) -> Any:
    """Arguments of a module: functions and modules become dl4all's, too."""
    if isinstance(value, torch.nn.Module):
        return _layer(value)
    if isinstance(value, dict):
        return {key: _arguments(named({key: item})[key]) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_arguments(item) for item in value)
    if callable(value) and hasattr(torch.nn.functional, getattr(value, "__name__", "")):
        return getattr(dl.nn.functional, value.__name__)
    return to_peer(value)


def _layer(layer: Any) -> Any:
    """A transformer's layer, the only modules that modules of the database are made of."""
    return getattr(dl.nn, type(layer).__name__)(
        layer.linear1.in_features,
        layer.self_attn.num_heads,
        layer.linear1.out_features,
        layer.dropout.p,
        _arguments(layer.activation),
        batch_first=layer.self_attn.batch_first,
        norm_first=layer.norm_first,
        bias=layer.linear1.bias is not None,
    )


def _compare(own: Any, other: Any, operands: Any, expected: Any, got: Any) -> None:
    """Results, gradients and buffers.

    Args:
        own, other: PyTorch's module and dl4all's.
        operands: PyTorch's module as it was before its call, the sample's operands, and those that `own` and
            `other` were called with.
        expected, got: what they returned.

    Raises:
        Wrong: they differ.
    """
    first, given, own_given, other_given = operands
    flat, found = tensors(expected), tensors(to_torch(got))
    if not all_close(flat, tensors(_call(copy.deepcopy(first), copied(given), seed=1))):  # it is random
        compare(flat, found, "result", elements=False)
        return
    wide = copy.deepcopy(first).double()
    wide_given = widened(given[0]), widened(given[1])
    compare(flat, found, "result", lambda: tensors(_call(wide, wide_given)))
    gradients = _gradients(own, own_given, expected)
    if gradients is not None:
        _compare_gradients(gradients, _peer_gradients(other, other_given, got), first, given)
    buffers = dict(own.named_buffers())
    others = {key: to_torch(value) for key, value in other.named_buffers()}
    if buffers.keys() != others.keys():
        raise Wrong(f"buffers {sorted(buffers)} expected, got {sorted(others)}")
    compare(list(buffers.values()), [others[key] for key in buffers], f"buffers {', '.join(buffers)}")


def _compare_gradients(expected: Gradients, got: Gradients, first: Any, given: Any) -> None:
    """Compare gradients by name.

    Raises:
        Wrong: they differ by more than rounding explains.
    """
    if expected.keys() != got.keys():
        raise Wrong(f"gradients of {sorted(expected)} expected, got {sorted(got)}")

    def precise() -> list[torch.Tensor]:
        module, operands = copy.deepcopy(first).double(), (widened(given[0]), widened(given[1]))
        far = _gradients(module, operands, _call(module, operands)) or {}
        return [far[key] for key in expected]

    def near() -> list[torch.Tensor]:
        module, operands = copy.deepcopy(first), (rounded(given[0]), rounded(given[1]))
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(rounded(parameter))
        found = _gradients(module, operands, _call(module, operands)) or {}
        return [found[key] for key in expected]

    names = f"gradients of {', '.join(expected)}"
    compare(list(expected.values()), [got[key] for key in expected], names, precise, rounded=near)


def _call(module: Any, operands: Any, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return module(*operands[0], **operands[1])


def _weights(outs: list[torch.Tensor]) -> list[torch.Tensor]:
    """A weight for each element of the results, whose weighted sum is differentiated."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(one.shape, generator=generator).to(one.dtype) for one in outs]


def _gradients(module: Any, operands: Any, result: Any) -> Gradients | None:
    """PyTorch's gradients, by what they belong to; None where there are none."""
    outs = [one for one in tensors(result) if one.requires_grad]
    if not outs:
        return None
    torch.autograd.backward(outs, _weights(outs))
    given = {f"input {at}": one for at, one in enumerate(tensors(operands))}
    given.update(module.named_parameters())
    return {name: one.grad for name, one in given.items() if one.is_leaf and one.grad is not None}


def _peer_gradients(module: Any, operands: Any, result: Any) -> Gradients:
    outs = [one for one in peer_tensors(result) if one.requires_grad]
    weights = [to_peer(weight) for weight in _weights([to_torch(one) for one in outs])]
    dl.autograd.backward(outs, weights)
    given: dict[str, Any] = {f"input {at}": one for at, one in enumerate(peer_tensors(operands))}
    given.update(module.named_parameters())
    return {name: to_torch(one.grad) for name, one in given.items() if one.is_leaf and one.grad is not None}
