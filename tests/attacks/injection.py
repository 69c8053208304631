"""Exceptions raised at chosen places: at each line, or wherever the interpreter looks at signals.

A line is where a debugger stops. CPython itself delivers signals when a function is entered, after calls of
what is written in C, and where a loop goes back: such places are :data:`CHECKS`. What is in between cannot be
interrupted, and a line that ends a ``with`` block cannot either.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Literal, NamedTuple

from dl4all.runtime import registry

ROOT = Path(registry.__file__).resolve().parents[1]
PARTS = (
    "allocator", "runtime", "scheduler", "dl4all/autograd", "dl4all/multi_device", "dl4all/ops/core",
    "dl4all/ops/memory", "dl4all/optim",
)  # fmt: skip
"""Folders in whose files exceptions are raised."""

SETTINGS = {"_call_once", "_until_the_end", "assigned", "changed", "recording"}
"""Functions that put settings back in lines without a call: no signal comes there, and a debugger may."""
Mode = Literal["lines", "checks"]
LINES: Mode = "lines"
CHECKS: Mode = "checks"
CALLS = {"CALL", "CALL_FUNCTION", "CALL_METHOD", "CALL_FUNCTION_KW", "CALL_FUNCTION_EX", "CALL_KW"}
WITH = {"BEFORE_WITH", "SETUP_WITH", "LOAD_SPECIAL"}
WRAPPED = {"__init__", "__new__", "<lambda>", "<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>"}
"""Python functions that C code calls as a rule: when it returns, signals are looked at."""


class Place(NamedTuple):
    """Where an exception is raised."""

    path: str
    function: str
    line: int
    offset: int
    """Of the instruction, -1 for a whole line."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.function}" + (f"+{self.offset}" if self.offset >= 0 else "")


class Point(NamedTuple):
    """A place, and the how-manieth time that it is come to."""

    place: Place
    occurrence: int

    def __str__(self) -> str:
        return f"{self.place} #{self.occurrence}"


def points(run: Callable[[], Any], mode: Mode, parts: Iterable[str] = PARTS) -> list[Point]:
    """Each place that a function comes to: the first time, and in the middle of all times."""
    seen = Counter[Place]()
    visit = functools.partial(_count, seen)
    sys.settrace(_tracer(visit, mode, tuple(parts)))
    try:
        run()
    finally:
        sys.settrace(None)
    found = [Point(place, 1) for place in seen]
    found += [Point(place, count // 2 + 1) for place, count in seen.items() if count > 1]
    return sorted(found)


def _count(seen: Counter[Place], place: Place) -> None:
    seen[place] += 1


def inject(run: Callable[[], Any], point: Point, error: type[BaseException]) -> str:
    """Run a function with an exception at one point; returns what came out of it."""
    left = [point.occurrence]
    fired = False

    def visit(place: Place) -> None:
        nonlocal fired
        if place == point.place:
            left[0] -= 1
            if not left[0]:
                sys.settrace(None)
                fired = True
                raise error("injected")

    sys.settrace(_tracer(visit, LINES if point.place.offset < 0 else CHECKS, (), only=point.place))
    try:
        run()
    except error:
        return "raised"
    except BaseException as other:  # noqa: BLE001  # whatever it is, it is a finding
        return f"became {type(other).__name__}: {other}"
    finally:
        sys.settrace(None)
    return "swallowed" if fired else "not reached"


def _tracer(
    visit: Callable[[Place], None], mode: Mode, parts: tuple[str, ...], only: Place | None = None
) -> Callable[[FrameType, str, Any], Any]:
    called: dict[int, str] = {}  # by frame, the Python function that its last call led to

    def enter(frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if mode == CHECKS and frame.f_back is not None:
            called[id(frame.f_back)] = code.co_name
        path = _relative(code.co_filename)
        if only is None:
            if path is None or not path.startswith(parts):
                return None
        elif path != only.path or code.co_name != only.function:
            return None
        if mode == LINES:
            return lines
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if frame.f_lasti > _first(code):
            return instructions  # a generator goes on, or is closed, where signals are not looked at
        visit(Place(str(path), code.co_name, code.co_firstlineno, 0))
        return instructions

    def lines(frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if event == "line" and code.co_name not in SETTINGS and frame.f_lasti not in _after_blocks(code):
            visit(Place(str(_relative(code.co_filename)), code.co_name, frame.f_lineno, -1))
        return lines

    def instructions(frame: FrameType, event: str, arg: Any) -> Any:
        if event == "opcode":
            kind = _checks(frame.f_code).get(frame.f_lasti)
            if kind == "call":
                called.pop(id(frame), None)
            elif kind is not None:
                callee = called.pop(id(frame), None)
                inlined = sys.version_info >= (3, 11) and callee is not None and callee not in WRAPPED
                if kind == "jump" or not inlined:
                    path = str(_relative(frame.f_code.co_filename))
                    line = frame.f_lineno or frame.f_code.co_firstlineno
                    visit(Place(path, frame.f_code.co_name, line, frame.f_lasti))
        return instructions

    return enter


@functools.cache
def _relative(path: str) -> str | None:
    """A file's path within the repository, however it was imported; None of files elsewhere."""
    resolved = Path(path).resolve()
    return str(resolved.relative_to(ROOT)) if resolved.is_relative_to(ROOT) else None


@functools.cache
def _first(code: CodeType) -> int:
    """The offset of the instruction at which a function looks at signals when it is entered."""
    resumes = [i.offset for i in dis.get_instructions(code) if i.opname == "RESUME"]
    return resumes[0] if resumes else 0


@functools.cache
def _after_blocks(code: CodeType) -> frozenset[int]:
    """Where instructions begin that leave a ``with`` block: debuggers show its first line once more.

    Also those that do nothing, such as ``try``: what they raise does not count as raised within a block.
    """
    begun: dict[int | None, int] = {}
    after = set()
    line: int | None = None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "NOP":
            after.add(instruction.offset)
        line = _starts(instruction) or line
        if instruction.opname in WITH:
            begun.setdefault(line, instruction.offset)
        elif line in begun:
            after.add(instruction.offset)
    return frozenset(after)


def _starts(instruction: dis.Instruction) -> int | None:
    starts = instruction.starts_line
    return getattr(instruction, "line_number", None) if isinstance(starts, bool) else starts


@functools.cache
def _checks(code: CodeType) -> dict[int, str]:
    """Instructions that call (``call``), that follow a call (``after``), and to which a loop goes back."""
    found: dict[int, str] = {}
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG")]
    for index, instruction in enumerate(instructions):
        if instruction.opname in CALLS:
            following = instructions[index + 1 : index + 5]
            leaves = sum(i.opname == "LOAD_CONST" and i.argval is None for i in following) >= 3
            if following and not leaves:  # there the interpreter still counts the call to the block
                found.setdefault(following[0].offset, "after")
            found[instruction.offset] = "call"
        elif "JUMP" in instruction.opname and instruction.argval < instruction.offset:
            found[instruction.argval] = "jump"
    return found
