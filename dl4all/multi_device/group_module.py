"""The common base of models over the devices of a group."""

from __future__ import annotations

from typing import Any, SupportsIndex

from dl4all.errors import ArgumentError
from dl4all.nn.module import Module


class GroupModule(Module):
    """A module whose calls give tasks to the devices of a group, and wait for them."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        name = type(self).__name__
        raise ArgumentError(
            f"[{name}] it holds devices and their threads, which cannot be copied or pickled; copy the model "
            f"that it was made of, or its state_dict(), and make another {name} of the copy"
        )


def check_parts(name: str, model: Any) -> None:
    """
    Raises:
        ArgumentError: it is no module, or a part of it is itself over several devices: its tasks would wait
            for the devices whose tasks wait for it.
    """
    if not isinstance(model, Module):
        raise ArgumentError(f"[{name}] expected a module, got {type(model).__name__}")
    for path, part in model.named_modules():
        if isinstance(part, GroupModule):
            where = f"its part {path!r}" if path else "it"
            raise ArgumentError(
                f"[{name}] expected a model on one device, but {where} is a {type(part).__name__} itself; "
                f"give {name} the model that this was made of"
            )
