"""The ops of ``op_db``: each sample's results and gradients on the device beside the CPU's.

Each sample is also computed with operands in other layouts, in place, and into tensors of the caller.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.testing._internal import common_methods_invocations as invocations
from torch.testing._internal import common_utils
from torch.testing._internal.opinfo import core

from lab.torch_databases.comparison import (
    Wrong,
    all_close,
    all_equal,
    compare,
    compare_moments,
    described,
    message,
    same_strides,
)
from lab.torch_databases.outcome import Outcome
from lab.torch_databases.samples import copied, each_layout, is_plain, on_device, tensors, widened

op_db = invocations.op_db
# Some entries seed for themselves, always the same, so that nobody would see them to be random.
vars(invocations)["wrapper_set_seed"] = lambda op, *args, **kwargs: op(*args, **kwargs)

# For each sample PyTorch looks through the stack for a test of its own, with the sources of all frames.
for module in (common_utils, core):
    vars(module)["extract_test_fn"] = lambda: None

DRAWS = 16
"""How often random results are drawn to compare their moments."""

VARIED = 10
"""How many samples of an op are computed in other layouts, in place and with ``out=``."""

HOST_OPERANDS = ("tensor_split",)
"""Ops that want tensors among their further operands on the CPU whatever the device; those are left out."""

UNDEFINED = ("empty", "resize_")
"""Ops with these in their names leave elements undefined."""

Operands = tuple[Any, tuple[Any, ...], dict[str, Any]]


def entries(dtype: torch.dtype) -> dict[str, Any]:
    """The ops that have samples of a dtype on the CPU, by name and variant."""
    named = {f"{op.name}.{op.variant_test_name}".rstrip("."): op for op in op_db}
    return {name: op for name, op in named.items() if dtype in op.supported_dtypes("cpu")}


def check(name: str, op: Any, dtype: torch.dtype, *, variants: bool = True) -> Outcome:
    """Compute all samples of an op.

    Args:
        name, op: one of :func:`entries`.
        dtype: of the samples.
        variants: whether also other layouts, in place and ``out=``.
    """
    outcome = Outcome(name)
    differentiable = bool(op.supports_autograd) and dtype in op.supported_backward_dtypes("cpu")
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = op.sample_inputs("cpu", dtype, requires_grad=differentiable)
        for number, sample in enumerate(samples):
            operands: Operands = (sample.input, tuple(sample.args), dict(sample.kwargs))
            if op.name in HOST_OPERANDS and any(map(torch.is_tensor, operands[1])):
                continue
            _check_sample(outcome, op, operands)
            if variants and number < VARIED:
                plain = detached(operands)
                for layout, changed in each_layout(plain):
                    _check_forward(outcome, op, changed, layout)
                _check_in_place(outcome, op, plain)
                _check_out(outcome, op, plain)
        if variants:
            _check_errors(outcome, op)
    return outcome


def detached(operands: Operands) -> Operands:
    """Copies that require no gradients."""
    plain: Operands = copied(operands)
    for one in tensors(plain):
        one.requires_grad_(False)
    return plain


def call(function: Callable[..., Any], operands: Operands, seed: int = 0) -> Any:
    """Call a function of PyTorch's after seeding its generator."""
    torch.manual_seed(seed)
    return function(operands[0], *operands[1], **operands[2])


def _on_device(operands: Operands) -> Operands:
    return on_device(operands[0]), on_device(operands[1]), on_device(operands[2])


def widened_operands(operands: Operands) -> Operands:
    """The operands in float64."""
    return widened(operands[0]), widened(operands[1]), widened(operands[2])


def _attempt(function: Callable[..., Any], operands: Operands, seed: int = 0) -> tuple[Any, str]:
    """The CPU's result, or its error."""
    try:
        return call(function, copied(operands), seed), ""
    except Exception as error:  # noqa: BLE001 - the device must refuse, too
        return None, message(error)


def _check_sample(outcome: Outcome, op: Any, operands: Operands) -> None:
    given = copied(operands)
    try:
        expected = call(op, given)
    except Exception:  # noqa: BLE001 - ops in place cannot have gradients of their operand
        operands = detached(operands)
        given = copied(operands)
        try:
            expected = call(op, given)
        except Exception:  # noqa: BLE001 - a sample that the CPU cannot compute shows nothing
            return
    what = described(operands)
    with outcome.judging(what):
        moved = _on_device(operands)
        got = call(op, moved)
        outcome.samples += 1
        if is_undefined(op):
            compare(tensors(expected), tensors(got), "result", elements=False)
            return
        if not all_close(tensors(expected), tensors(_attempt(op, operands, seed=1)[0])):
            if all_close(tensors(expected), tensors(_attempt(op, operands)[0])):
                _check_random(op, operands, expected, got)
            else:  # whatever was in memory
                compare(tensors(expected), tensors(got), "result", elements=False)
            return
        compare(
            tensors(expected), tensors(got), "result", lambda: tensors(call(op, widened_operands(operands)))
        )
        _check_aliases(given, expected, moved, got)
        if is_plain([expected, got]):
            strides = same_strides(tensors(expected), tensors(got))
            if strides:
                outcome.note("strides", f"{strides} ({what})")
        _check_gradients(op, operands, (given, expected), (moved, got))


def _check_random(op: Any, operands: Operands, expected: Any, got: Any) -> None:
    compare(tensors(expected), tensors(got), "result", elements=False)
    if not all_equal(tensors(got), tensors(call(op, _on_device(operands)))):
        raise Wrong("a seed does not fix the result")
    ours = [tensors(call(op, _on_device(operands), seed)) for seed in range(DRAWS)]
    theirs = [tensors(call(op, copied(operands), seed)) for seed in range(DRAWS)]
    compare_moments(theirs, ours, "result")


def _check_aliases(given: Operands, expected: Any, moved: Operands, got: Any) -> None:
    def shared(inputs: Any, results: Any) -> list[bool]:
        memory = {one.untyped_storage().data_ptr() for one in tensors(inputs) if one.numel()}
        return [one.numel() > 0 and one.untyped_storage().data_ptr() in memory for one in tensors(results)]

    if not is_plain([given, expected, moved, got]):
        return
    own, other = shared(given, expected), shared(moved, got)
    if own != other:
        raise Wrong(f"results that are views of operands: expected {own}, got {other}")


def _check_gradients(
    op: Any, operands: Operands, cpu: tuple[Operands, Any], device: tuple[Operands, Any]
) -> None:
    outs = [one for one in tensors(cpu[1]) if one.requires_grad]
    inputs = [one for one in tensors(cpu[0]) if one.requires_grad]
    if not outs or not inputs:
        return
    cotangents = [torch.randn_like(one) for one in outs]
    try:
        expected = torch.autograd.grad(outs, inputs, cotangents, allow_unused=True)
    except Exception:  # noqa: BLE001 - the CPU has no gradient of this sample
        return
    got = torch.autograd.grad(
        [one for one in tensors(device[1]) if one.requires_grad],
        [one for one in tensors(device[0]) if one.requires_grad],
        [on_device(one) for one in cotangents],
        allow_unused=True,
    )
    if [one is None for one in expected] != [one is None for one in got]:
        raise Wrong(f"gradients that are None: {[one is None for one in got]}")

    def precise() -> list[torch.Tensor]:
        wide = widened_operands(operands)
        results = [one for one in tensors(call(op, wide)) if one.requires_grad]
        wanted = [one for one in tensors(wide) if one.requires_grad]
        found = torch.autograd.grad(results, wanted, widened(cotangents), allow_unused=True)
        return [one for one in found if one is not None]

    present = [one for one in expected if one is not None]
    compare(present, [one for one in got if one is not None], "gradient", precise)


def _check_forward(outcome: Outcome, op: Any, operands: Operands, layout: str) -> None:
    expected, error = _attempt(op, operands)
    if error or is_undefined(op):
        return
    if not all_close(tensors(expected), tensors(_attempt(op, operands, seed=1)[0])):
        return
    what = f"{layout} {described(operands)}"
    with outcome.judging(what, variant=True):
        got = call(op, _on_device(operands))
        outcome.samples += 1
        compare(
            tensors(expected),
            tensors(got),
            "result",
            lambda: tensors(call(op, widened_operands(operands))),
        )
        if is_plain([expected, got]):
            strides = same_strides(tensors(expected), tensors(got))
            if strides:
                outcome.note("strides", f"{strides} ({what})")


def _check_in_place(outcome: Outcome, op: Any, operands: Operands) -> None:
    method = op.inplace_variant
    if (
        is_undefined(op)
        or method is None
        or not isinstance(operands[0], torch.Tensor)
        or _is_random(method, operands)
    ):
        return
    given = copied(operands)
    try:
        call(method, given)
    except Exception as error:  # noqa: BLE001 - the device must refuse, too
        _refuses(outcome, method, operands, f"in place, where the CPU raises {message(error)}")
        return
    with outcome.judging(f"in place {described(operands)}", variant=True):
        moved = _on_device(operands)
        returned = call(method, moved)
        outcome.samples += 1
        if returned is not moved[0]:
            raise Wrong("the operand is not what is returned")

        def precise() -> list[torch.Tensor]:
            wide = widened_operands(operands)
            call(method, wide)
            return [wide[0]]

        compare([given[0]], [moved[0]], "operand", precise)
        if given[0].stride() != moved[0].stride():
            raise Wrong(f"the operand's strides became {moved[0].stride()}")


def is_undefined(op: Any) -> bool:
    """Whether elements of the result are whatever was in memory."""
    return any(word in op.name for word in UNDEFINED)


def _is_random(op: Any, operands: Operands) -> bool:
    first, error = _attempt(op, operands)
    return not error and not all_close(tensors(first), tensors(_attempt(op, operands, seed=1)[0]))


def _refuses(outcome: Outcome, function: Callable[..., Any], operands: Operands, what: str) -> None:
    try:
        call(function, _on_device(operands))
    except Exception:  # noqa: BLE001 - as it should
        return
    outcome.note("accepts", f"{what} ({described(operands)})")


def _check_out(outcome: Outcome, op: Any, operands: Operands) -> None:
    if not op.supports_out or is_undefined(op) or _is_random(op, operands):
        return
    plain, error = _attempt(op, operands)
    if error or not is_plain(plain) or not tensors(plain):
        return
    several = not isinstance(plain, torch.Tensor)
    for kind, outs in _outs(tensors(plain)):
        given, moved = copied(outs), on_device(outs)

        def write(value: Any, *args: Any, targets: Sequence[torch.Tensor], **kwargs: Any) -> Any:
            return op(value, *args, **kwargs, out=tuple(targets) if several else targets[0])

        into_cpu = (*copied(operands)[:2], {**copied(operands)[2], "targets": given})
        into_device = (*_on_device(operands)[:2], {**_on_device(operands)[2], "targets": moved})
        try:
            call(write, into_cpu)
        except Exception as raised:  # noqa: BLE001 - the device must refuse, too
            try:
                call(write, into_device)
            except Exception:  # noqa: BLE001 - as it should
                continue
            outcome.note("accepts", f"{kind} out=, where the CPU raises {message(raised)}")
            continue
        with outcome.judging(f"{kind} out= {described(operands)}", variant=True):
            returned = call(write, into_device)
            outcome.samples += 1
            results = moved if returned is None else tensors(returned)  # splits return nothing
            if any(a is not b for a, b in zip(results, moved, strict=True)):
                raise Wrong("out= is not what is returned")
            compare(given, moved, "out", lambda: [one.double() for one in _precise_outs(op, operands)])
            if [one.stride() for one in given] != [one.stride() for one in moved]:
                outcome.note(
                    "strides", f"{kind} out=: {[one.stride() for one in moved]} ({described(operands)})"
                )


def _precise_outs(op: Any, operands: Operands) -> list[torch.Tensor]:
    return tensors(call(op, widened_operands(operands)))


def _outs(results: list[torch.Tensor]) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """Tensors to write into: fitting, with gaps, of no elements, and of other dtypes."""

    def noise(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.randint(0, 2, tuple(shape)).to(dtype)

    yield "fitting", [noise(one.shape, one.dtype) for one in results]
    yield (
        "strided",
        [noise((*one.shape, 2), one.dtype)[..., 1] if one.dim() else noise((), one.dtype) for one in results],
    )
    yield "empty", [noise((0,), one.dtype) for one in results]
    yield "int64", [noise(one.shape, torch.int64) for one in results]
    yield "float64", [noise(one.shape, torch.float64) for one in results]


def _check_errors(outcome: Outcome, op: Any) -> None:
    """Operands that PyTorch documents as errors."""
    if op.error_inputs_func is None:
        return
    for bad in op.error_inputs("cpu"):
        sample = bad.sample_input
        operands: Operands = (sample.input, tuple(sample.args), dict(sample.kwargs))
        if not is_plain(operands) or not _attempt(op, operands)[1]:
            continue
        _refuses(outcome, op, operands, f"what PyTorch refuses: {bad.error_regex}")
