"""The modules of ``module_db``: results, gradients of inputs and parameters, and buffers afterwards."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from torch.testing._internal.common_modules import module_db

from dl4all.pytorch.device.devices import NAME
from lab.torch_databases.comparison import Wrong, all_close, compare, described
from lab.torch_databases.outcome import Outcome
from lab.torch_databases.samples import copied, on_device, rounded, tensors, widened


def entries(dtype: torch.dtype) -> dict[str, Any]:
    """The modules that take a dtype on the CPU, by name."""
    return {info.name: info for info in module_db if dtype in info.supported_dtypes("cpu")}


def check(name: str, info: Any, dtype: torch.dtype, *, variants: bool = True) -> Outcome:
    """Compute all samples of a module, in training and, where that differs, in evaluation."""
    outcome = Outcome(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for training in (True, False) if info.train_and_eval_differ else (True,):
            torch.manual_seed(0)
            for sample in info.module_inputs_func(
                info, device="cpu", dtype=dtype, requires_grad=True, training=training
            ):
                _check_sample(outcome, info.module_cls, sample, dtype, training)
    return outcome


def _check_sample(outcome: Outcome, module: Any, sample: Any, dtype: torch.dtype, training: bool) -> None:
    made = sample.constructor_input
    torch.manual_seed(0)
    try:
        own = module(*made.args, **made.kwargs).to(dtype).train(training)
    except Exception:  # noqa: BLE001 - a module that the CPU cannot make shows nothing
        return
    operands = (sample.forward_input.args, dict(sample.forward_input.kwargs))
    other, wide, again, first = (copy.deepcopy(own) for _ in range(4))
    given = copied(operands)
    try:
        expected = _call(own, given)
    except Exception:  # noqa: BLE001 - as above
        return
    what = f"{module.__name__}({described(made.args)} {described(made.kwargs)}) of {described(operands)}"
    with outcome.judging(f"{what}{', training' if training else ''}"):
        moved = on_device(operands)
        other = other.to(NAME)
        got = _call(other, moved)
        outcome.samples += 1
        fixed = all_close(tensors(expected), tensors(_call(again, copied(operands), seed=1)))
        if not fixed:
            compare(tensors(expected), tensors(got), "result", elements=False)
            return
        precise_operands = (widened(operands[0]), widened(operands[1]))
        wide = wide.double()
        compare(tensors(expected), tensors(got), "result", lambda: tensors(_call(wide, precise_operands)))
        gradients = _gradients(own, given, expected)
        if gradients is None:
            return
        found = _gradients(other, moved, got)
        if found is None or gradients.keys() != found.keys():
            raise Wrong(f"gradients of {sorted(gradients)} expected, got {sorted(found or ())}")

        def precise() -> list[torch.Tensor]:
            fresh = (widened(operands[0]), widened(operands[1]))
            wide.zero_grad()
            far = _gradients(wide, fresh, _call(wide, fresh)) or {}
            return [far[key] for key in gradients]

        def near() -> list[torch.Tensor]:
            changed = copy.deepcopy(first)
            with torch.no_grad():
                for parameter in changed.parameters():
                    parameter.copy_(rounded(parameter))
            fresh = (rounded(operands[0]), rounded(operands[1]))
            found = _gradients(changed, fresh, _call(changed, fresh)) or {}
            return [found[key] for key in gradients]

        compare(
            list(gradients.values()),
            [found[key] for key in gradients],
            f"gradients of {', '.join(gradients)}",
            precise,
            rounded=near,
        )
        compare(list(own.buffers()), list(other.buffers()), "buffers")


def _call(module: Any, operands: Any, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return module(*operands[0], **operands[1])


def _gradients(module: Any, operands: Any, result: Any) -> dict[str, torch.Tensor] | None:
    """Gradients of a weighted sum of the results, by what they belong to; None where there are none."""
    outs = [one for one in tensors(result) if one.requires_grad]
    if not outs:
        return None
    generator = torch.Generator().manual_seed(0)

    def weights(one: torch.Tensor) -> torch.Tensor:
        dtype = torch.float32 if one.dtype == torch.float64 else one.dtype
        drawn = torch.randn(one.shape, generator=generator, dtype=dtype)
        return drawn.to(one.dtype).to(one.device)

    torch.autograd.backward(outs, [weights(one) for one in outs])
    inputs = {f"input {at}": one for at, one in enumerate(tensors(operands))}
    named = {**inputs, **dict(module.named_parameters())}
    return {name: one.grad for name, one in named.items() if one.is_leaf and one.grad is not None}
