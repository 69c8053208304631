"""Facts from the schemas of ATen's ops for calls that are computed in another way than asked for."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import torch


@dataclasses.dataclass(frozen=True)
class SchemaPlan:
    """Facts from an op's schema that matter to a fallback."""

    view: bool
    arguments: tuple[str, ...]
    positional: int
    written: tuple[str, ...]
    """The operands that the op changes."""
    returned: tuple[str | None, ...]
    """For each result, the operand that it is; None for a new tensor."""
    tensors: frozenset[str]
    """Arguments that the schema calls tensors; Python numbers may come in their places."""

    def call(self, given: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments by name as the op takes them: positional ones and keywords."""
        positional = []
        for name in self.arguments[: self.positional]:
            if name not in given:
                break
            positional.append(given[name])
        passed = self.arguments[: len(positional)]
        return positional, {name: value for name, value in given.items() if name not in passed}


HIDDEN_WRITES = {"aten::native_batch_norm": ("running_mean", "running_var")}
"""Operands that an op changes although its schema does not say so."""


@functools.cache
def plan(op: Any) -> SchemaPlan:
    """The plan of an overload."""
    schema = op._schema
    arguments = schema.arguments
    aliases = {a.name: a.alias_info for a in arguments if a.alias_info is not None}
    written = tuple(name for name, alias in aliases.items() if alias.is_write)
    returned = []
    for result in schema.returns:
        alias = result.alias_info
        source = None
        if alias is not None and alias.is_write:
            source = next(name for name, a in aliases.items() if a.before_set & alias.before_set)
        returned.append(source)
    return SchemaPlan(
        view=any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns),
        arguments=tuple(a.name for a in arguments),
        positional=sum(not a.kwarg_only for a in arguments),
        written=written + HIDDEN_WRITES.get(schema.name, ()),
        returned=tuple(returned),
        tensors=frozenset(a.name for a in arguments if "Tensor" in str(a.type) and "List" not in str(a.type)),
    )


def tensors_in(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The tensors among values and in lists of them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)
