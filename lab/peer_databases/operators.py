"""The ops of ``op_db``: each sample's results and gradients by dl4all's functions beside PyTorch's."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.testing._internal.opinfo.core import OpInfo
from torch.testing._utils import wrapper_set_seed

import dl4all as dl
from lab.peer_databases import functions, ties
from lab.peer_databases.functions import Missing
from lab.peer_databases.operands import moved, peer_tensors, to_torch
from lab.peer_databases.outcome import Outcome
from lab.torch_databases.comparison import Wrong, all_close, compare, described
from lab.torch_databases.operators import (
    Operands,
    call,
    detached,
    entries,
    is_undefined,
    widened_operands,
)
from lab.torch_databases.samples import copied, is_plain, rounded, tensors, widened

VARIED = 10
"""How many samples of an op are computed by its method and in place, too."""

UNWRAPPED = (OpInfo.gradcheck_wrapper, wrapper_set_seed)
"""Wrappers of gradient checks that change no operands; the others make matrices symmetric or triangular, say,
where an op reads one half of them only."""

Determined = Callable[[Any], Any]
"""What of a result is determined, such as singular vectors but for their signs."""

__all__ = ["check", "entries"]


def check(name: str, op: Any, dtype: torch.dtype, *, variants: bool = True) -> Outcome:
    """Compute all samples of an op.

    Args:
        name, op: one of :func:`entries`.
        dtype: of the samples.
        variants: whether also by the method, in place and by other names.
    """
    outcome = Outcome(name)
    differentiable = bool(op.supports_autograd) and dtype in op.supported_backward_dtypes("cpu")
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=differentiable)):
            operands: Operands = (sample.input, tuple(sample.args), dict(sample.kwargs))
            try:
                determined = sample.output_process_fn_grad
                _check_sample(outcome, op, op.op, operands, "", determined)
                if variants and number < VARIED:
                    _check_variants(outcome, op, operands, determined)
            except Missing as error:
                outcome.count("missing", str(error))
                if number == 0:
                    break
    return outcome


def _check_variants(outcome: Outcome, op: Any, operands: Operands, determined: Determined) -> None:
    plain = detached(operands)
    if not isinstance(plain[0], torch.Tensor):
        return
    method = getattr(dl.Tensor, op.name, None) and op.method_variant
    in_place = op.inplace_variant
    ways = {"method": method, "in place": in_place, **{alias.name: alias.op for alias in op.aliases}}
    for kind, function in ways.items():
        if function is not None:
            try:
                _check_sample(outcome, op, function, plain, f"{kind} ", determined)
            except Missing:
                continue


def _check_sample(
    outcome: Outcome,
    op: Any,
    function: Callable[..., Any],
    operands: Operands,
    kind: str,
    determined: Determined,
) -> None:
    def own(operands: Operands, seed: int = 0) -> Any:
        return determined(call(function, operands, seed))

    given = copied(operands)
    try:
        whole = call(function, given)
    except Exception:  # noqa: BLE001 - ops in place cannot have gradients of their operand
        operands = detached(operands)
        given = copied(operands)
        try:
            whole = call(function, given)
        except Exception:  # noqa: BLE001 - a sample that PyTorch cannot compute shows nothing
            return
    with outcome.judging(f"{kind}{described(operands)}"):
        peers = tuple(map(moved, copied(operands)))
        dl.manual_seed(0)
        got = functions.call(function, peers)
        compare(tensors(whole), tensors(to_torch(got)), "result", elements=False)
        expected, got = determined(whole), functions.applied(determined, got)
        results = tensors(to_torch(got))
        elements = not is_undefined(op)
        if elements and not all_close(tensors(expected), tensors(own(copied(operands), seed=1))):
            elements = False  # random, or whatever was in memory

        def precise() -> list[torch.Tensor]:
            return tensors(own(widened_operands(operands)))

        def near() -> list[torch.Tensor]:
            return tensors(own(tuple(map(rounded, operands))))

        found = tensors(expected)
        if elements and ties.leaves_open(op.name, operands[2]):
            found, results = (ties.named_elements(op.name, operands, each) for each in (found, results))
        compare(found, results, "result", precise, elements, near)
        if not tensors(expected) and to_torch(got) != expected:
            raise Wrong(f"result: expected {expected!r}, got {got!r}")
        if elements and is_plain(expected):
            wrapper = op.gradcheck_wrapper
            if wrapper not in UNWRAPPED and tensors(expected)[0].requires_grad:
                function = functools.partial(wrapper, function)
                given, peers = copied(operands), tuple(map(moved, copied(operands)))
                expected = own(given)
                got = functions.applied(determined, functions.call(function, peers))
            _check_gradients(
                own, operands, (given, expected), (peers, got), op.name in ties.UNDEFINED_GRADIENTS
            )


def _check_gradients(
    function: Callable[[Operands], Any],
    operands: Operands,
    own: tuple[Operands, Any],
    peer: tuple[Any, Any],
    nan_is_open: bool,
) -> None:
    """Compare gradients; one that is None stands for zeros, as it does in PyTorch's engine."""
    at = [number for number, one in enumerate(tensors(own[1])) if one.requires_grad]
    outs = [tensors(own[1])[number] for number in at]
    inputs = [one for one in tensors(own[0]) if one.requires_grad]
    if not outs or not inputs:
        return
    cotangents = [torch.randn_like(one) for one in outs]
    try:
        expected = _with_zeros(torch.autograd.grad(outs, inputs, cotangents, allow_unused=True), inputs)
    except Exception:  # noqa: BLE001 - PyTorch has no gradient of this sample
        return
    peer_outs = [peer_tensors(peer[1])[number] for number in at]
    differentiable = [number for number, one in enumerate(peer_outs) if one.requires_grad]
    peer_inputs = [one for one in peer_tensors(peer[0]) if one.requires_grad]
    got: Any = [None] * len(inputs)
    if differentiable:
        weights = [moved(cotangents[number]) for number in differentiable]
        results = [peer_outs[number] for number in differentiable]
        got = dl.autograd.grad(results, peer_inputs, weights, allow_unused=True)

    def again(change: Callable[[Any], Any]) -> list[torch.Tensor]:
        fresh: Any = tuple(map(change, operands))
        results = [one for one in tensors(function(fresh)) if one.requires_grad]
        wanted = [one for one in tensors(fresh) if one.requires_grad]
        weights = widened(cotangents) if change is widened else cotangents
        return _with_zeros(torch.autograd.grad(results, wanted, weights, allow_unused=True), wanted)

    found = _with_zeros([None if one is None else to_torch(one) for one in got], inputs)
    if nan_is_open:
        found = [torch.where(one.isnan(), one, own) for one, own in zip(expected, found, strict=True)]
    compare(
        expected,
        found,
        "gradient",
        lambda: again(widened),
        rounded=lambda: again(rounded),
    )


def _with_zeros(gradients: Sequence[torch.Tensor | None], likes: list[torch.Tensor]) -> list[torch.Tensor]:
    pairs = zip(gradients, likes, strict=True)
    return [torch.zeros_like(like) if one is None else one for one, like in pairs]
