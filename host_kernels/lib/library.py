"""Compiled functions that several kernels call: compiled once, and found by kernels under their names."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.compiler import LlvmCompiler
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, Operand

Write = Callable[..., Code]
"""``write(module, *key)`` writes a function whose name is :data:`NAME`, and returns its code."""

NAME = "dl4all_shared"

_made: dict[tuple[Any, ...], Shared] = {}


class Shared(NamedTuple):
    """A function that kernels may call."""

    name: str
    types: tuple[str, ...]  # of its parameters

    def run(self, code: Code, *operands: Operand) -> None:
        """Call it."""
        given = (code.as_value(type, operand) for type, operand in zip(self.types, operands, strict=True))
        code.call(self.name, "void", *given)


def shared(write: Write, *key: Any) -> Shared:
    """The function that `write` writes for a key, compiled if it is needed for the first time."""
    compiler = provider.compiler()
    whole_key = (compiler, write, *key)
    found = _made.get(whole_key)
    if found is None:
        module = IrModule()
        code = write(module, *key)
        found = _made[whole_key] = _compiled(compiler, module.text, code)
    return found


def _compiled(compiler: LlvmCompiler, text: str, code: Code) -> Shared:
    # The process knows it by its name, as it may know that of another processor's compiler.
    digest = hashlib.sha256(f"{compiler.target} {text}".encode()).hexdigest()[:16]
    name = f"{NAME}_{digest}"
    address = compiler.functions(text.replace(f"@{NAME}(", f"@{name}("), (name,))[name]
    compiler.define(name, address)
    return Shared(name, tuple(parameter.type for parameter in code.parameters))
