"""Elementwise ops of lists of tensors, as PyTorch's optimizers call them: one dispatch for many tensors.

Tensors of other dtypes than float32, with gaps, or too scattered to share a dispatch are computed one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from dl4all import ops
from dl4all.ops.core.kernels.multi_tensor import side_by_side
from dl4all.ops.elementwise.joined import is_joined, run_joined
from dl4all.ops.reduce.global_norm import scale_in_place
from dl4all.pytorch.device.devices import NAME, device_at
from dl4all.pytorch.device.dispatch.registration import native, overload
from dl4all.pytorch.device.storage.memory import NotNative, is_dense, tensor, wrap
from dl4all.tensor.tensor import Tensor

FLOAT = np.dtype(np.float32)


class Single(NamedTuple):
    """The dl4all op of each tensor of a list, and ATen's ops of one tensor with another or with a number."""

    op: Any
    by_tensor: str
    by_number: str = ""
    argument: str = ""
    """The number that the op takes beside its operands."""

    def overload(self, operands: Sequence[Any], in_place: bool) -> Any:
        name = self.by_tensor if isinstance(operands[-1], torch.Tensor) else self.by_number
        base, dot, kind = name.partition(".")
        return overload(f"{base}_{dot}{kind}" if in_place else name)


UNARY = {name: Single(getattr(ops, name), name) for name in ("abs", "neg", "reciprocal", "sign", "sqrt")}
BINARY = {
    "add": Single(ops.add, "add.Tensor", "add.Scalar", "alpha"),
    "sub": Single(ops.sub, "sub.Tensor", "sub.Scalar", "alpha"),
    "mul": Single(ops.mul, "mul.Tensor", "mul.Scalar"),
    "div": Single(ops.true_divide, "div.Tensor", "div.Scalar"),
    "maximum": Single(ops.maximum, "clamp_min.Tensor", "clamp_min"),
    "minimum": Single(ops.minimum, "clamp_max.Tensor", "clamp_max"),
    "clamp_min": Single(ops.maximum, "clamp_min.Tensor", "clamp_min"),
    "clamp_max": Single(ops.minimum, "clamp_max.Tensor", "clamp_max"),
}
TERNARY = {
    "addcmul": Single(ops.addcmul, "addcmul", argument="value"),
    "addcdiv": Single(ops.addcdiv, "addcdiv", argument="value"),
}
LERP = Single(ops.lerp, "lerp.Tensor", "lerp.Scalar")


class ForeachJob(NamedTuple):
    """The operands of one tensor of a list, and the number that the op takes beside them, if any."""

    operands: tuple[Any, ...]
    number: Any = None


# The jobs of each overload, by what follows the name's dot


def of_each(self: Sequence[Any]) -> list[ForeachJob]:
    return [ForeachJob((one,)) for one in self]


def with_number(self: Sequence[Any], scalar: Any) -> list[ForeachJob]:
    return [ForeachJob((one, scalar)) for one in self]


def with_list(self: Sequence[Any], other: Sequence[Any], *, alpha: Any = None) -> list[ForeachJob]:
    return [ForeachJob(pair, alpha) for pair in _pairs(self, other)]


def by_number(
    self: Sequence[Any], tensor1: Sequence[Any], tensor2: Sequence[Any], value: Any = None
) -> list[ForeachJob]:
    return [ForeachJob(three, value) for three in _pairs(self, tensor1, tensor2)]


def by_numbers(
    self: Sequence[Any], tensor1: Sequence[Any], tensor2: Sequence[Any], scalars: Sequence[Any]
) -> list[ForeachJob]:
    return [ForeachJob((*three,), value) for *three, value in _pairs(self, tensor1, tensor2, scalars)]


def weighted(self: Sequence[Any], tensors1: Sequence[Any], weight: Any) -> list[ForeachJob]:
    weights = weight if isinstance(weight, (list, tuple)) else [weight] * len(self)
    return [ForeachJob(three) for three in _pairs(self, tensors1, weights)]


def _pairs(*lists: Sequence[Any]) -> list[tuple[Any, ...]]:
    if len(set(map(len, lists))) > 1:
        raise NotNative("the lists differ in length")
    return list(zip(*lists, strict=True))


# Computing


def lies_densely(value: torch.Tensor) -> bool:
    """Whether a tensor on the device is of float32, not empty, and without gaps in memory."""
    return (
        value.dtype == torch.float32
        and value.device.type == NAME
        and value.numel() > 0
        and (value.is_contiguous() or is_dense(value.shape, value.stride()))
    )


def _fits(operands: tuple[Any, ...]) -> bool:
    """Whether the tensors of a job are of float32 and lie alike in memory without gaps."""
    first = operands[0]
    if not lies_densely(first):
        return False
    shape, strides = first.shape, first.stride()
    for one in operands[1:]:
        if not isinstance(one, torch.Tensor):
            if type(one) not in (int, float):
                return False
        elif (
            one.dtype != torch.float32
            or one.shape != shape
            or one.stride() != strides
            or one.device != first.device
        ):
            return False
    return True


def flat(value: torch.Tensor) -> Tensor:
    """The elements of a tensor without gaps, in the order of memory."""
    view = tensor(value)
    if not view.is_contiguous():
        view = view.strided_view((value.numel(),), (1,), view.offset)
    return view


def _compute(single: Single, jobs: Sequence[ForeachJob], in_place: bool) -> list[Any]:
    """The results of all jobs; None for those that were computed in place."""
    results: list[Any] = [None] * len(jobs)
    rest, groups = list[int](), dict[Any, list[int]]()
    for at, job in enumerate(jobs):
        if _fits(job.operands):
            numbers = tuple(one for one in job.operands if not isinstance(one, torch.Tensor))
            groups.setdefault((job.operands[0].get_device(), numbers, job.number), []).append(at)
        else:
            rest.append(at)
    for (index, _, number), group in groups.items():
        operands = [
            tuple(flat(one) if isinstance(one, torch.Tensor) else one for one in jobs[at].operands)
            for at in group
        ]
        if (
            len(group) == 1
            or device_at(index).is_host
            or not is_joined(single.op, operands[0], in_place=in_place)
        ):
            rest += group
            continue
        arguments = {} if number is None else {single.argument: number}
        targets = [one[0] for one in operands] if in_place else _new_tensors(operands, index)
        left = set(run_joined(single.op, operands, targets, arguments))
        for place, at in enumerate(group):
            if place in left:
                rest.append(at)
            elif not in_place:
                first = jobs[at].operands[0]
                results[at] = wrap(targets[place], tuple(first.shape), first.stride())
    for at in sorted(rest):
        job = jobs[at]
        keywords = {} if job.number is None else {single.argument: job.number}
        results[at] = single.overload(job.operands, in_place)(*job.operands, **keywords)
    return results


def _new_tensors(operands: Sequence[tuple[Any, ...]], index: int) -> list[Tensor]:
    """Flat tensors for the results, one behind the other in memory."""
    device = device_at(index)
    counts = [one[0].numel() for one in operands]
    storages = side_by_side(device, [FLOAT.itemsize * count for count in counts])
    return [
        Tensor(storage, (count,), FLOAT, device, (1,), 0)
        for storage, count in zip(storages, counts, strict=True)
    ]


def _declare(name: str, single: Single, jobs: Callable[..., list[ForeachJob]]) -> None:
    """Give both forms of an op of lists, such as ``_foreach_add.List``, their kernels."""
    base, dot, kind = name.partition(".")

    def functional(*args: Any, **kwargs: Any) -> list[Any]:
        return _compute(single, jobs(*args, **kwargs), in_place=False)

    def in_place(*args: Any, **kwargs: Any) -> None:
        _compute(single, jobs(*args, **kwargs), in_place=True)

    native(name)(functional)
    native(f"{base}_{dot}{kind}")(in_place)


for _name, _single in UNARY.items():
    _declare(f"_foreach_{_name}", _single, of_each)
for _name, _single in BINARY.items():
    _declare(f"_foreach_{_name}.Scalar", _single, with_number)
    _declare(
        f"_foreach_{_name}.ScalarList",
        _single,
        lambda self, scalars: list(map(ForeachJob, _pairs(self, scalars))),
    )
    _declare(f"_foreach_{_name}.List", _single, with_list)
for _name, _single in TERNARY.items():
    _declare(f"_foreach_{_name}.Scalar", _single, by_number)
    _declare(f"_foreach_{_name}.ScalarList", _single, by_numbers)
for _kind in ("List", "Scalar", "ScalarList"):
    _declare(f"_foreach_lerp.{_kind}", LERP, weighted)


@native("_foreach_mul_.Tensor")
def multiply_by_tensor(self: Sequence[Any], other: torch.Tensor) -> None:
    """Multiply by one number that lies on the device, as gradient clipping does."""
    rest = list(self)
    if other.device.type == NAME and other.dtype == torch.float32 and not other.dim():
        fitting = [one for one in rest if lies_densely(one)]
        rest = [one for one in rest if not any(one is other for other in fitting)]
        views = [flat(one) for one in fitting]
        left = {id(view) for view in scale_in_place(views, tensor(other))} if views else set()
        rest += [one for one, view in zip(fitting, views, strict=True) if id(view) in left]
    for one in rest:
        one.mul_(other)
