"""A pickle interpreter that can call nothing.

`pickle.Unpickler` imports and calls the functions that a file names. Overriding `find_class` prevents that,
but leaves other dangers (the extension cache, memo indices that allocate gigabytes, `__setstate__`, hashes of
deeply nested tuples). State dicts need some thirty opcodes, so this interpreter has those and no others:
it imports nothing, and it calls only the `Constructor`s that its caller passes.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import BinaryIO

from dl4all.io.weight_file import USUAL_LIMITS, Malformed, ReadLimits, brief

__all__ = ["REMEDY", "Constructor", "check_key", "mapping", "unpickle"]

REMEDY = "re-save it where it was made, as safetensors or as a plain state_dict of tensors"


@dataclass(frozen=True)
class Constructor:
    """The only kind of value that the opcode REDUCE may call: a harmless function of this package."""

    build: Callable[..., object]


def mapping(pairs: Iterable[tuple[object, object]] = ()) -> dict[object, object]:
    """A dict whose keys are scalars: hashing a deeply nested tuple overflows the C stack."""
    table: dict[object, object] = {}
    for key, value in pairs:
        check_key(key, "a dictionary with")
        table[key] = value
    return table


def check_key(key: object, where: str) -> None:
    """
    Raises:
        Malformed: the key of a dict, or the member of a set, is no scalar.
    """
    if type(key) not in (str, int, float, bool, type(None)):
        raise Malformed(f"has {where} a {type(key).__name__} for a key; {REMEDY}")


def unpickle(
    stream: BinaryIO,
    find_global: Callable[[str], object],
    load_persistent: Callable[[object], object],
    limits: ReadLimits = USUAL_LIMITS,
) -> object:
    """Read one pickle; the stream is then after its STOP.

    Args:
        stream: a stream whose `read(n)` allocates no more than it holds, such as `io.BytesIO`.
        find_global: returns the value for "module.name"; raises Malformed to refuse the name.
        load_persistent: returns the value for a persistent id.
        limits: how many opcodes there may be; one byte can become an object of 64 bytes.

    Raises:
        Malformed: the pickle is damaged, has too many opcodes, or uses one that state dicts do not need.

    Example:
        >>> import io, pickle
        >>> def refuse(name: object) -> object:
        ...     raise Malformed(f"refers to {name}")
        >>> unpickle(io.BytesIO(pickle.dumps({"a": [1, 2.5]}, protocol=2)), refuse, refuse)
        {'a': [1, 2.5]}
    """
    machine = _Machine(find_global, load_persistent)
    try:
        for number, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
            if number >= limits.opcodes:
                raise limits.refusal(f"a pickle of more than {limits.opcodes} opcodes")
            machine.step(opcode.name, argument)
        return machine.stack.pop()
    # A nonsensical opcode sequence pops from an empty stack, recalls a missing memo entry, or unpacks a
    # value of another shape. pickletools warns of odd escapes, which is an error where the user wants it so.
    except (IndexError, KeyError, TypeError, ValueError, OverflowError, Warning) as error:
        raise Malformed(
            f"is damaged or truncated: its pickle makes no sense before byte {stream.tell()}"
        ) from error


class _Machine:
    """The stack, the marks and the memo of the pickle protocol."""

    def __init__(
        self, find_global: Callable[[str], object], load_persistent: Callable[[object], object]
    ) -> None:
        self.find_global = find_global
        self.load_persistent = load_persistent
        self.stack: list[object] = []
        self.marks: list[int] = []
        self.memo: dict[object, object] = {}

    def pop_to_mark(self) -> list[object]:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def pop(self, count: int) -> tuple[object, ...]:
        items = tuple(self.stack[-count:])
        del self.stack[-count:]
        if len(items) != count:
            raise IndexError
        return items

    def extend(self, items: list[object]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise TypeError
        target.extend(items)

    def update(self, items: list[object]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(items) % 2:
            raise TypeError
        target.update(mapping(zip(items[::2], items[1::2], strict=True)))

    def add(self, items: list[object]) -> None:
        target = self.stack[-1]
        if not isinstance(target, set):
            raise TypeError
        for item in items:
            check_key(item, "a set with")
        target.update(items)

    def call(self, function: object, arguments: object) -> object:
        if not isinstance(function, Constructor) or not isinstance(arguments, tuple):
            raise Malformed(f"calls a {type(function).__name__} in its pickle, which is refused; {REMEDY}")
        return function.build(*arguments)

    def step(self, opcode: str, argument: object) -> None:
        stack = self.stack
        match opcode:
            case "PROTO" | "FRAME" | "STOP":
                pass
            case "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = stack[-1]
            case "MEMOIZE":
                self.memo[len(self.memo)] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(self.memo[argument])
            case "MARK":
                self.marks.append(len(stack))
            case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT":
                stack.append(argument)
            case "BINUNICODE" | "SHORT_BINUNICODE" | "BINUNICODE8":
                stack.append(argument)
            case "BINSTRING" | "SHORT_BINSTRING" | "BINBYTES" | "SHORT_BINBYTES":
                stack.append(argument)  # BINSTRING: files written by Python 2
            case "NONE":
                stack.append(None)
            case "NEWTRUE" | "NEWFALSE":
                stack.append(opcode == "NEWTRUE")
            case "EMPTY_DICT":
                stack.append({})
            case "EMPTY_LIST":
                stack.append([])
            case "EMPTY_SET":
                stack.append(set())
            case "ADDITEMS":
                self.add(self.pop_to_mark())
            case "EMPTY_TUPLE":
                stack.append(())
            case "TUPLE":
                stack.append(tuple(self.pop_to_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(self.pop(int(opcode[-1])))
            case "APPEND":
                self.extend([stack.pop()])
            case "APPENDS":
                self.extend(self.pop_to_mark())
            case "SETITEM":
                self.update(list(self.pop(2)))
            case "SETITEMS":
                self.update(self.pop_to_mark())
            case "GLOBAL":
                stack.append(self.find_global(str(argument).replace(" ", ".", 1)))
            case "STACK_GLOBAL":
                module, name = self.pop(2)
                if not isinstance(module, str) or not isinstance(name, str):
                    raise TypeError
                stack.append(self.find_global(f"{module}.{name}"))
            case "REDUCE":
                stack.append(self.call(*self.pop(2)))
            case "BUILD":
                # State set on an object (a state dict's `_metadata`, a Parameter's requires_grad) has no
                # weights, so it is dropped.
                self.pop(1)
                stack[-1]
            case "BINPERSID":
                stack.append(self.load_persistent(stack.pop()))
            case _:
                if opcode == "INST":
                    self.find_global(str(argument).replace(" ", ".", 1))
                detail = f" {brief(str(argument))}" if isinstance(argument, (str, int)) else ""
                raise Malformed(f"uses the pickle opcode {opcode}{detail}, which is refused; {REMEDY}")
