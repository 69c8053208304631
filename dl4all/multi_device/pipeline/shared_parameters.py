"""Parameters that layers of several stages share, such as an embedding that is also the last layer's.

Such a parameter lives with the first stage that uses it. While a batch is on its way, the others use a
stand-in on their own device, whose gradient goes to the parameter.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dl4all.multi_device.pipeline.stage import Stage
from dl4all.nn.module import Module, Parameter
from dl4all.tensor.tensor import Tensor


class StandIn(NamedTuple):
    """A tensor that takes a parameter's place in one stage."""

    parameter: Parameter
    tensor: Tensor
    users: list[tuple[Module, str]]  # and the attribute's name


def stand_ins_of(stages: Sequence[Stage]) -> list[StandIn]:
    """A stand-in for each stage that uses a parameter of an earlier one, with its present values."""
    owners: dict[int, Stage] = {}
    stand_ins: dict[tuple[int, int], StandIn] = {}
    for stage in stages:
        for module in stage.modules:
            for name, value in vars(module).items():
                if not isinstance(value, Parameter) or owners.setdefault(id(value), stage) is stage:
                    continue
                key = id(value), stage.index
                if key not in stand_ins:
                    copy = value.detach().to(stage.device, non_blocking=True)
                    stand_ins[key] = StandIn(value, copy.requires_grad_(value.requires_grad), [])
                stand_ins[key].users.append((module, name))
    return list(stand_ins.values())


@contextlib.contextmanager
def in_place_of_shared(stand_ins: Sequence[StandIn]) -> Iterator[None]:
    """Within, modules have the stand-ins for attributes."""
    for stand_in in stand_ins:
        for module, name in stand_in.users:
            vars(module)[name] = stand_in.tensor
    try:
        yield
    finally:
        for stand_in in stand_ins:
            for module, name in stand_in.users:
                vars(module)[name] = stand_in.parameter


def add_gradients(stand_ins: Sequence[StandIn]) -> None:
    """Move the stand-ins' gradients to the parameters, and add them there."""
    for parameter, tensor, _ in stand_ins:
        if tensor.grad is None:
            continue
        gradient = tensor.grad.to(parameter.device)
        parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        tensor.grad = None
