"""Reads the text of a graph: the inverse of :func:`dl4all.graph.ir.text.print_graph`."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, TypeVar, get_args

from dl4all.errors import GraphError
from dl4all.graph.ir.graph import (
    Argument,
    Binding,
    BoundFill,
    BoundLaunch,
    Command,
    Foreign,
    Graph,
    GraphBuffer,
    Kind,
    MultiTensorLaunch,
    Node,
    Operand,
    Value,
    VaryingWord,
    bound_bytes,
)
from dl4all.graph.ir.text import BARE, HALVES, INDENT, implied_reads, implied_writes
from dl4all.ops.conv.window import Window
from dl4all.ops.core.dtypes import KINDS
from dl4all.ops.core.tensor_base import Shape, contiguous_strides
from dl4all.ops.pool.windows import Pooling
from dl4all.runtime.protocols import Grid
from dl4all.runtime.spirv import Shader
from dl4all.scheduler.device.programs import Launch

T = TypeVar("T")
RECORDS: dict[str, Callable[..., Any]] = {record.__name__: record for record in (Foreign, Pooling, Window)}
"""Classes whose instances ops take as arguments, by name."""

RECORDS |= {dtype.name: dtype.type for dtype in KINDS} | {"slice": slice}
WORDS = {"None": None, "True": True, "False": False, "...": Ellipsis}
MOST_DIGITS = 400
TOKEN = re.compile(
    r"""\s*(?:
    (?P<comment>\#.*) | (?P<string>"(?:[^"\\]|\\.)*") | (?P<hex>0x[0-9a-f]*)
    | (?P<value>%\d+(?:\.\d+)?) | (?P<buffer>@\d+)
    | (?P<number>-?(?:inf\b|nan\b|\d+(?:\.\d+)?(?:e[+-]?\d+)?))
    | (?P<word>"""
    + BARE.pattern
    + r"""|None|True|False|\.\.\.) | (?P<mark>[\[\](){},:=<>]))""",
    re.VERBOSE,
)


class Token(NamedTuple):
    """A word of a line, and what it is: the name of a group of TOKEN."""

    kind: str
    text: str


def parse_graph(text: str) -> Graph:
    """The graph that a text describes.

    Raises:
        GraphError: a line is wrong; the message names it. Calls of the host cannot be read back.

    >>> from dl4all.graph.ir.text import print_graph
    >>> graph = parse_graph("graph cpu\\nbuffer @0: input, 4 bytes\\ninputs @0\\nreturn %0.0: float32[1]\\n")
    >>> graph.outputs
    (Operand(value=Value(buffer=0, version=0), shape=(1,), dtype='float32', strides=(1,), offset=0),)
    """
    try:
        return _GraphParser(text).graph()
    except RecursionError:
        raise GraphError("[parse_graph] arguments or parts are nested too deeply") from None


class _Line:
    """The tokens of one line, taken one after the other."""

    def __init__(self, number: int, text: str) -> None:
        self.number = number
        self.depth = 0
        while text.startswith(INDENT):
            text, self.depth = text[len(INDENT) :], self.depth + 1
        self.text = text
        self.tokens = list[Token]()
        position = 0
        while text[position:].strip() and not text.startswith("|"):
            found = TOKEN.match(text, position)
            if found is None:
                self.fail(f"cannot read {text[position:].strip()[:40]!r}")
            kind = str(found.lastgroup)
            if kind in ("number", "value", "buffer") and len(found[kind]) > MOST_DIGITS:
                self.fail(f"a number of more than {MOST_DIGITS} digits")
            self.tokens.append(Token(kind, found[kind]))
            position = found.end()
        self.tokens.reverse()

    def fail(self, problem: str) -> NoReturn:
        raise GraphError(f"[parse_graph] line {self.number}: {problem}")

    def _found(self) -> str:
        """The next token for messages."""
        return repr(self.tokens[-1].text) if self.tokens else "the end of the line"

    def at(self, *texts: str) -> bool:
        """Whether the next token is one of these, not in quotes."""
        return bool(self.tokens) and self.tokens[-1].text in texts

    def at_kind(self, kind: str) -> bool:
        return bool(self.tokens) and self.tokens[-1].kind == kind

    def skip(self, text: str) -> bool:
        """Take the next token if it is this one."""
        if self.at(text):
            self.tokens.pop()
            return True
        return False

    def take(self, *kinds: str) -> str:
        """The text of the next token, which is of one of these kinds."""
        if not self.tokens or self.tokens[-1].kind not in kinds:
            self.fail(f"expected a {' or '.join(kinds)}, got {self._found()}")
        return self.tokens.pop().text

    def expect(self, text: str) -> None:
        if not self.skip(text):
            self.fail(f"expected {text!r}, got {self._found()}")

    def end(self) -> None:
        if self.tokens:
            self.fail(f"expected the end of the line, got {self.tokens[-1].text!r}")

    # What tokens stand for

    def name(self) -> str:
        return self.unquoted(self.take("word", "string"))

    def unquoted(self, text: str) -> str:
        """A text without the quotes it may be in."""
        try:
            return str(json.loads(text)) if text.startswith('"') else text
        except ValueError as error:
            self.fail(f"{text[:40]} is no text: {error}")

    def integer(self) -> int:
        text = self.take("number")
        try:
            return int(text)
        except ValueError:
            self.fail(f"expected an int, got {text}")

    def bytes(self) -> bytes:
        text = self.take("hex")[2:]
        if len(text) % 2:
            self.fail(f"0x{text[:40]} has half a byte")
        return bytes.fromhex(text)

    def buffer(self) -> int:
        return int(self.take("buffer")[1:])

    def value(self) -> Value:
        buffer, _, version = self.take("value")[1:].partition(".")
        return Value(int(buffer), int(version or 1))

    def items(self, end: str, item: Callable[[], T]) -> tuple[T, ...]:
        """Items between commas, up to a closing bracket."""
        found = list[T]()
        while not self.skip(end):
            found.append(item())
            if not self.at(end):
                self.expect(",")
        return tuple(found)

    def integers(self) -> tuple[int, ...]:
        self.expect("[")
        return self.items("]", self.integer)

    def listed(self, item: Callable[[], T]) -> tuple[T, ...]:
        """Items between commas, at least one."""
        found = [item()]
        while self.skip(","):
            found.append(item())
        return tuple(found)


class _GraphParser:
    """Lines, and by which shape each value was first seen."""

    def __init__(self, text: str) -> None:
        lines = (_Line(number, line) for number, line in enumerate(text.split("\n"), 1))
        self._lines = [line for line in lines if line.text.strip()]
        self._position = 0
        self._seen: dict[Value, Operand] = {}
        self._buffers: dict[int, GraphBuffer] = {}

    def _next(self, depth: int = 0) -> _Line | None:
        """The next line, if it is indented as deeply."""
        if self._position < len(self._lines) and self._lines[self._position].depth == depth:
            return self._lines[self._position]
        return None

    def graph(self) -> Graph:
        first = self._next()
        if first is None or not first.skip("graph"):
            raise GraphError("[parse_graph] line 1: expected 'graph' and a device; print_graph writes it")
        device = first.name()
        first.end()
        self._position += 1
        notes: dict[str, str] = {}
        sources, nodes, preamble = list[str](), list[Node](), list[Node]()
        inputs: tuple[int, ...] = ()
        outputs: tuple[Operand, ...] = ()
        kept: tuple[Value, ...] = ()
        while (line := self._next()) is not None:
            if self._is_statement(line, "note"):
                name = line.name()
                line.expect(":")
                notes[name] = line.name()
            elif self._is_statement(line, "source"):
                sources.append(line.name())
            elif self._is_statement(line, "buffer"):
                self._buffer(line)
            elif self._is_statement(line, "inputs"):
                inputs = line.listed(line.buffer)
            elif self._is_statement(line, "return"):
                outputs = line.listed(functools.partial(self._operand, line))
            elif self._is_statement(line, "keep"):
                kept = line.listed(line.value)
            else:
                to = preamble if self._is_statement(line, "preamble") else nodes
                to.append(self._node(line, 0))
                continue
            line.end()
            self._position += 1
        if self._position < len(self._lines):
            self._lines[self._position].fail("it is indented, and no node is above it")
        return Graph(
            device,
            self._buffers,
            tuple(nodes),
            inputs,
            outputs,
            tuple(sources),
            frozenset(kept),
            tuple(preamble),
            notes,
        )

    @staticmethod
    def _is_statement(line: _Line, word: str) -> bool:
        """Take the word that begins a line of the graph, unless it is the name of a node."""
        followed = line.tokens[-2].text if len(line.tokens) > 1 else ""
        return line.at_kind("word") and followed not in ("(", "<") and line.skip(word)

    def _buffer(self, line: _Line) -> None:
        key = number = line.buffer()
        if line.skip("for"):
            number = line.buffer()
        line.expect(":")
        kind = line.name()
        if kind not in get_args(Kind):
            line.fail(f"expected one of {', '.join(get_args(Kind))}, got {kind!r}")
        line.expect(",")
        nbytes = line.integer()
        line.expect("bytes")
        name = line.name() if line.skip(",") else ""
        if key in self._buffers:
            line.fail(f"buffer @{key} is there twice")
        self._buffers[key] = GraphBuffer(number, nbytes, _kind(kind), name)

    def _operand(self, line: _Line) -> Operand:
        value = line.value()
        if not line.skip(":"):
            if value not in self._seen:
                line.fail(f"{value} has no type where it is first seen; write '{value}: float32[2, 3]'")
            return self._seen[value]
        dtype, shape = line.name(), line.integers()
        strides: Shape = contiguous_strides(shape)
        if line.skip("strides"):
            strides = line.integers()
        operand = Operand(value, shape, dtype, strides, line.integer() if line.skip("offset") else 0)
        self._seen.setdefault(value, operand)
        return operand

    def _node(self, line: _Line, depth: int) -> Node:
        self._position += 1
        result = None
        if line.at_kind("value"):
            result = self._operand(line)
            line.expect("=")
        name = op = line.name()
        if line.skip("<"):
            op = "" if line.at(">") else line.name()
            line.expect(">")
        operands, arguments = self._call(line)
        node = Node(name, op, operands, arguments, result)
        reads, writes = implied_reads(node), implied_writes(node)
        if line.skip("reads"):
            reads = () if line.skip("nothing") else line.listed(line.value)
        if line.skip("writes"):
            writes = () if line.skip("nothing") else line.listed(line.value)
        recomputation = int(line.take("number")) if line.skip("recomputation") else 0
        where = ""
        if line.at_kind("comment"):
            where = line.unquoted(line.take("comment")[1:].strip())
        line.end()
        commands, parts = list[Command](), list[Node]()
        while (below := self._next(depth + 1)) is not None:
            if below.skip("part"):
                parts.append(self._node(below, depth + 1))
            else:
                commands.append(self._command(below, depth + 1))
        return Node(
            name, op, operands, arguments, result, reads, writes, tuple(commands), tuple(parts), where,
            recomputation,
        )  # fmt: skip

    def _call(self, line: _Line) -> tuple[tuple[Argument, ...], tuple[tuple[str, Any], ...]]:
        """Operands and arguments, in brackets."""
        operands, arguments = list[Argument](), list[tuple[str, Any]]()
        line.expect("(")
        while not line.skip(")"):
            if len(line.tokens) > 1 and line.tokens[-2].text == "=":
                name = line.name()
                line.expect("=")
                arguments.append((name, self._argument(line)))
            else:
                operands.append(self._argument(line))
            if not line.at(")"):
                line.expect(",")
        return tuple(operands), tuple(arguments)

    def _argument(self, line: _Line) -> Any:
        def argument() -> Any:
            return self._argument(line)

        if line.at_kind("value"):
            return self._operand(line)
        if line.at_kind("string"):
            return line.name()
        if line.at_kind("number"):
            text = line.take("number")
            return int(text) if text.lstrip("-").isdigit() else float(text)
        if line.skip("["):
            return list(line.items("]", argument))
        if line.skip("("):
            return line.items(")", argument)
        if line.at("<"):
            line.fail(f"{line.text.strip()[:60]!r} has an argument that no text can stand for")
        name = line.take("word")
        if name in WORDS and not line.at("("):
            return WORDS[name]
        record = RECORDS.get(name)
        if record is None:
            line.fail(f"arguments of the class {name} cannot be read")
        values, fields = self._call(line)
        try:
            return record(*values, **dict(fields))
        except (TypeError, ValueError, OverflowError) as error:
            line.fail(f"{name}: {error}")

    # Commands

    def _command(self, line: _Line, depth: int) -> Command:
        self._position += 1
        if line.skip("fill"):
            binding = self._binding(line)
            line.expect("word")
            word = int.from_bytes(line.bytes(), "big")
            line.end()
            return BoundFill(binding, word)
        if line.skip("host"):
            line.fail("a call of the host is a Python function, which no text can stand for")
        multi_tensor = line.skip("multi_tensor")
        line.expect("launch")
        launch = self._launch(line, depth)
        if not multi_tensor:
            bindings, writes = self._bindings(line)
            return BoundLaunch(launch, bindings, writes, self._varying(line))
        line.expect("roles")
        roles = line.listed(functools.partial(self._role, line))
        jobs = list[tuple[Binding, ...]]()
        while line.skip("job"):
            jobs.append(self._bindings(line)[0])
        tail = line.bytes() if line.skip("tail") else b""
        before = self._bindings(line)[0] if line.skip("before") else ()
        after = self._bindings(line)[0] if line.skip("after") else ()
        per_group = line.integer() if line.skip("group_elements") else 0
        numbered = line.skip("numbered")
        varying = self._varying(line)
        written, widths = tuple(one for one, _ in roles), tuple(width for _, width in roles)
        return MultiTensorLaunch(
            launch, tuple(jobs), written, widths, tail, varying, before, after, per_group, numbered
        )

    def _launch(self, line: _Line, depth: int) -> Launch:
        path, defines = line.name(), list[tuple[str, str]]()
        while len(line.tokens) > 1 and line.tokens[-2].text == "=":
            define = line.name()
            line.expect("=")
            defines.append((define, line.name()))
        line.expect("groups")
        groups = self._grid(line)
        constants = line.integers() if line.skip("constants") else ()
        push = line.bytes() if line.skip("push") else b""
        flops = line.integer() if line.skip("flops") else 0
        source = list[str]()
        while (below := self._next(depth + 1)) is not None and below.text.startswith("|"):
            source.append(below.text[2:])
            self._position += 1
        more = {"source": "\n".join(source)} if source else {}
        try:
            shader = Shader(path, tuple(defines), **more)
        except TypeError:
            line.fail("a shader of this version has no source of its own")
        return Launch(shader, groups, push, constants, flops)

    @staticmethod
    def _role(line: _Line) -> tuple[bool, int]:
        """Whether a role is written, and its width."""
        writes = line.skip("write")
        if not writes:
            line.expect("read")
        return writes, line.integer()

    @staticmethod
    def _grid(line: _Line) -> Grid:
        groups = line.integers()
        if len(groups) != 3:
            line.fail(f"expected three numbers of workgroups, got {len(groups)}")
        return groups[0], groups[1], groups[2]

    def _bindings(self, line: _Line) -> tuple[tuple[Binding, ...], tuple[bool, ...]]:
        line.expect("(")
        pairs = line.items(")", lambda: (line.skip("write"), self._binding(line)))
        return tuple(binding for _, binding in pairs), tuple(writes for writes, _ in pairs)

    def _binding(self, line: _Line) -> Binding:
        number = line.buffer()
        if line.at("["):
            piece = line.integers()
            if len(piece) != 2:
                line.fail(f"expected an offset and a number of bytes, got {len(piece)} numbers")
            return Binding(number, *piece)
        if number not in self._buffers:
            line.fail(f"there is no buffer @{number}")
        return Binding(number, 0, bound_bytes(self._buffers[number].nbytes))

    def _varying(self, line: _Line) -> tuple[VaryingWord, ...]:
        words = list[VaryingWord]()
        while line.skip("varying"):
            offset = line.integer()
            line.expect("=")
            source = line.integer()
            numbers = line.integers()
            if len(numbers) != 1:
                line.fail("expected one number in brackets behind the source")
            half = next((number for number, name in HALVES.items() if line.skip(name)), -1)
            words.append(VaryingWord(offset, source, numbers[0], half))
        line.end()
        return tuple(words)


def _kind(text: str) -> Kind:
    kinds: dict[str, Kind] = {kind: kind for kind in get_args(Kind)}
    return kinds[text]
