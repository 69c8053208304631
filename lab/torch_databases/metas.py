"""Kernels beside PyTorch's meta kernels, which say what ``torch.compile`` will believe of them.

Every ATen op that an entry's samples reach on the device is called on meta tensors too: dtypes, shapes and
strides of its results must be the same.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dl4all.pytorch.device.devices import is_here
from dl4all.pytorch.device.dispatch.registration import FUNCTIONS
from lab.torch_databases.comparison import Wrong
from lab.torch_databases.operators import entries
from lab.torch_databases.outcome import Outcome
from lab.torch_databases.samples import changed, on_device, tensors

SAMPLES = 4
"""How many samples of each op; shapes differ most among the first."""

__all__ = ["check", "entries"]


class Comparison(TorchDispatchMode):
    """Calls what is declared on meta tensors, too."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(func).removeprefix("aten.").removesuffix(".default")
        expected = None
        if name in FUNCTIONS and any(map(is_here, tensors([args, kwargs]))):
            expected = _on_meta(func, args, kwargs)
        result = func(*args, **kwargs)
        if expected is not None:
            self.outcome.samples += 1
            _compare(name, expected, tensors(result))
        return result


def _on_meta(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor] | None:
    def meta(one: torch.Tensor) -> torch.Tensor:
        if not is_here(one):
            return one
        return torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device="meta")

    try:
        return tensors(func(*changed(args, meta), **changed(kwargs, meta)))
    except (NotImplementedError, RuntimeError):
        return None  # its shape depends on elements, or there is no such kernel


def _compare(name: str, expected: list[torch.Tensor], got: list[torch.Tensor]) -> None:
    for one, other in zip(expected, got, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            raise Wrong(
                f"{name}: expected {tuple(one.shape)} {one.dtype}, got {tuple(other.shape)} {other.dtype}"
            )
        pairs = zip(one.stride(), other.stride(), one.shape, strict=True)
        if one.numel() and any(a != b for a, b, size in pairs if size > 1):
            raise Wrong(f"{name}: {tuple(one.shape)}, strides {one.stride()} expected, got {other.stride()}")


def check(name: str, op: Any, dtype: torch.dtype, *, variants: bool = True) -> Outcome:
    """Watch the first samples of an op."""
    outcome = Outcome(name)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=False)):
            if number >= SAMPLES:
                break
            operands = [on_device(part) for part in (sample.input, tuple(sample.args), dict(sample.kwargs))]
            try:
                op(sample.input, *sample.args, **sample.kwargs)
            except Exception:  # noqa: BLE001 - a sample that the CPU cannot compute shows nothing
                continue
            with outcome.judging(name), Comparison(outcome):
                op(operands[0], *operands[1], **operands[2])
    return outcome
