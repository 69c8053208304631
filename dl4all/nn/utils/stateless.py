"""Calls of a module with other parameters than its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dl4all.errors import ArgumentError
from dl4all.nn.module import Module
from dl4all.ops.core.tensor_base import TensorBase

State = Mapping[str, TensorBase]


def functional_call(
    module: Module,
    parameters_and_buffers: State | Sequence[State],
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a module with tensors in place of its parameters and buffers, and leave it as it was.

    What the module does to its buffers in the call, such as running statistics, happens to the given ones.
    Other threads must not use the module meanwhile.

    Args:
        module: what is called.
        parameters_and_buffers: tensors by dotted name, or several such dicts; names that are not there
            keep the module's own.
        args: the arguments of the call: a tuple, or the only one.
        kwargs: its arguments by name.
        tie_weights: give a tensor that the module has under several names to all of them.
        strict: refuse names that are missing.

    Raises:
        ArgumentError: the module has no parameter or buffer of a name, or, with `strict`, one is missing.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.Linear(2, 1, bias=False)
        >>> weights = {"weight": dl.tensor([[1.0, 10.0]])}
        >>> dl.func.functional_call(layer, weights, dl.tensor([2.0, 3.0])).tolist()
        [32.0]
    """
    given: dict[str, TensorBase] = {}
    parts = (
        [parameters_and_buffers] if isinstance(parameters_and_buffers, Mapping) else parameters_and_buffers
    )
    for part in parts:
        given.update(part)
    own = dict(module._state())
    unknown = [name for name in given if name not in own]
    missing = [name for name in own if name not in given]
    if unknown or (strict and missing):
        what = f"no parameter or buffer {unknown[0]!r}" if unknown else f"nothing for {missing[0]!r}"
        raise ArgumentError(
            f"[functional_call] there is {what} in {type(module).__name__}; it has {', '.join(own)}"
        )
    if tie_weights:
        tied = {id(own[name]): tensor for name, tensor in given.items()}
        given |= {name: tied[id(own[name])] for name in missing if id(own[name]) in tied}
    places = []
    for name, tensor in given.items():
        owner, _, last = name.rpartition(".")
        places.append((vars(module.get_submodule(owner)), last, tensor))
    before = [space[last] for space, last, _ in places]
    try:
        for space, last, tensor in places:
            space[last] = tensor
        return module(*(args if isinstance(args, tuple) else (args,)), **(kwargs or {}))
    finally:
        for (space, last, _), tensor in zip(places, before, strict=True):
            space[last] = tensor
