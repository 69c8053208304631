"""Parameters that layers of several stages share, such as an embedding that is also the last layer's.

Such a parameter lives with the first stage that uses it. While a batch is on its way, the others use a
replica on their own device, whose gradient goes to the parameter.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dl4all.multi_device.stage import Stage
from dl4all.nn.module import Module, Parameter
from dl4all.tensor.tensor import Tensor


class Replica(NamedTuple):
    """Stands in for a parameter in one stage."""

    parameter: Parameter
    tensor: Tensor
    users: list[tuple[Module, str]]  # and the attribute's name


def replicas_of(stages: Sequence[Stage]) -> list[Replica]:
    """A replica for each stage that uses a parameter of an earlier one, with its present values."""
    owners: dict[int, Stage] = {}
    replicas: dict[tuple[int, int], Replica] = {}
    for stage in stages:
        for module in stage.modules:
            for name, value in vars(module).items():
                if not isinstance(value, Parameter) or owners.setdefault(id(value), stage) is stage:
                    continue
                key = id(value), stage.index
                if key not in replicas:
                    copy = value.detach().to(stage.device, non_blocking=True)
                    replicas[key] = Replica(value, copy.requires_grad_(value.requires_grad), [])
                replicas[key].users.append((module, name))
    return list(replicas.values())


@contextlib.contextmanager
def in_place_of_shared(replicas: Sequence[Replica]) -> Iterator[None]:
    """Within, modules have the replicas for attributes."""
    for replica in replicas:
        for module, name in replica.users:
            vars(module)[name] = replica.tensor
    try:
        yield
    finally:
        for replica in replicas:
            for module, name in replica.users:
                vars(module)[name] = replica.parameter


def add_gradients(replicas: Sequence[Replica]) -> None:
    """Move the replicas' gradients to the parameters, and add them there."""
    for parameter, tensor, _ in replicas:
        if tensor.grad is None:
            continue
        gradient = tensor.grad.to(parameter.device)
        parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        tensor.grad = None
