"""The compiler and the thread pool of this process, made when the first kernel is needed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from dl4all.runtime import fork
from dl4all.runtime.cpu.llvm import target
from dl4all.runtime.cpu.llvm.compiler import Function, HeldFunction, LlvmCompiler
from dl4all.runtime.cpu.llvm.ir import IrModule
from dl4all.runtime.cpu.llvm.target import Target
from dl4all.runtime.cpu.llvm.thread_pool import ThreadPool, wanted_threads

enabled = True
"""Whether ops may use compiled kernels; tests switch it."""

_functions: dict[tuple[Any, ...], tuple[Any, Any]] = {}
_linked: set[str] = set()


def available() -> bool:
    """Whether there is a compiler, and it may be used."""
    return enabled and target.binding() is not None


def compiler() -> LlvmCompiler:
    """The compiler for this processor, with the pool's threads started."""
    with fork.excluded:
        return _compiler()


@functools.cache
def _compiler() -> LlvmCompiler:
    made = LlvmCompiler(target.host())
    ThreadPool(made, wanted_threads()).start()
    return made


def started() -> bool:
    """Whether there is a compiler already, and its threads."""
    return _compiler.cache_info().currsize > 0


def processor() -> Target:
    """The processor that kernels are compiled for."""
    return compiler().target


def function(text: Callable[..., IrModule], key: tuple[Any, ...], *, long: bool) -> Any:
    """The function of a kernel, to be called with the bytes of its slots.

    Args:
        text: writes the module; its exported function has the name of `text`.
        key: what `text` is called with.
        long: whether other threads of Python may run meanwhile, which takes a moment.
    """
    found = _functions.get((text, *key))
    if found is None:
        with fork.excluded:
            name = text.__name__
            address = compiler().functions(text(*key).text, (name,))[name]
            found = _functions[(text, *key)] = HeldFunction(address), Function(address)
    return found[long]


def description() -> str:
    """The compiler of kernels, and the vectors that they use; empty without a compiler.

    >>> description() in ("", f"LLVM {'.'.join(map(str, target.version()))}, {target.host().instructions}")
    True
    """
    if not available():
        return ""
    return f"LLVM {'.'.join(map(str, target.version()))}, {target.host().instructions}"


def linked(text: Callable[..., IrModule], *key: Any) -> str:
    """The name by which modules that are compiled from now on can call a function of another module.

    Args:
        text: writes the other module; its exported function has the name of `text`, and any parameters.
        key: what `text` is called with: strings and numbers.
    """
    name = "_".join(("dl4all", text.__name__, *map(str, key)))
    with fork.excluded:
        if name not in _linked:
            address = compiler().functions(text(*key).text, (text.__name__,))[text.__name__]
            compiler().define(name, address)
            _linked.add(name)
    return name
