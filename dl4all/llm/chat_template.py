"""Templates of talks, in Jinja: they come from files, and what they may do is bounded."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from dl4all.errors import ArgumentError

LONGEST = 1_000_000
"""Characters of a talk, and characters and elements of whatever a template makes."""
MOST_STEPS = 1_000_000
"""Rounds of loops, elements of ranges, calls, and hundreds of characters that are made, together."""
MOST_WORK = 100 * LONGEST
"""The product of the sizes of what an operation is given, beyond which it is not begun."""
ROUNDS, JOINED, MADE = "rounds", "joined", "made"
"""Filters of what loops go through, of texts with ``~`` between them, and of lists and dicts."""
WIDE = re.compile(r"\d{7,}")
"""The width of a text that is filled up, as formats have it."""


def rendered(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    add_generation_prompt: bool,
    special: Mapping[str, str],
) -> str:
    """The text of a talk.

    Raises:
        ArgumentError: the template is damaged, refuses the messages, or does more than it may.
    """
    pieces, length = [], 0
    try:
        for piece in (
            _BoundedEnvironment()
            .from_string(template)
            .generate(messages=list(messages), add_generation_prompt=add_generation_prompt, **special)
        ):
            pieces.append(piece)
            length += len(piece)
            if length > LONGEST:
                raise ArgumentError(f"[llm] the template makes more than {LONGEST} characters of the talk")
    except (
        jinja2.TemplateError,
        TypeError,
        ValueError,
        ArithmeticError,
        LookupError,
        RecursionError,
    ) as error:
        raise ArgumentError(f"[llm] the template refuses the talk: {error}") from error
    return "".join(pieces)


class _BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, which reaches no attribute of Python's, with a count of steps and limits of sizes."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols"],
            finalize=self._made,
        )
        self._steps = 0
        self.filters["tojson"] = lambda value, **named: json.dumps(value, ensure_ascii=False, **named)
        self.filters = {name: self._bounded(function) for name, function in self.filters.items()}
        self.filters |= {ROUNDS: self._rounds, JOINED: self.concat, MADE: self._made}
        self.globals |= {
            "raise_exception": _refuse, "strftime_now": datetime.now().strftime, "range": self._range
        }  # fmt: skip

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return _through_filters(super()._parse(source, name, filename))

    def concat(self, pieces: Iterable[Any]) -> str:  # what blocks and macros make
        texts, left = [], LONGEST
        for piece in pieces:
            texts.append(str(self._made(piece)))
            left -= len(texts[-1])
            if left < 0:
                raise _too_large()
        return str(self._made("".join(texts)))

    def call(self, context: Any, function: Any, /, *given: Any, **named: Any) -> Any:
        self._count(1)
        method = getattr(function, "__wrapped__", function)  # as Jinja has those of formats
        owner, operands = getattr(method, "__self__", None), (*given, *named.values())
        _check_numbers(operands)
        if isinstance(owner, str):
            _check_work((owner, *operands), wide="format" in method.__name__)
        return self._made(super().call(context, function, *given, **named))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        self._count(1)
        if operator == "**":
            _check_numbers([left, right * 1000])
        elif operator == "*" and isinstance(left, int) != isinstance(right, int):
            _check_numbers(
                [one * _size(other) for one, other in ((left, right), (right, left)) if _is_int(one)]
            )
        elif operator == "%":
            _check_work((left, right), wide=True)
        return self._made(super().call_binop(context, operator, left, right))

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MOST_STEPS:
            raise jinja2.TemplateRuntimeError(f"it takes more than {MOST_STEPS} steps")

    def _made(self, value: Any) -> Any:
        """A value that the template has made, which counts by its size."""
        size = _size(value)
        self._count(size // 100)
        if size > LONGEST:
            raise _too_large()
        return value

    def _rounds(self, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            self._count(1)
            yield value

    def _range(self, *given: int) -> range:
        made = range(*given)
        self._count(len(made))
        return made

    def _bounded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter whose operands and result are bounded."""

        @functools.wraps(function)
        def bounded(*given: Any, **named: Any) -> Any:
            self._count(1)
            operands = [
                one for one in (*given, *named.values()) if not isinstance(one, (jinja2.Environment, Context))
            ]
            _check_numbers(operands[1:])
            _check_work(operands)
            return self._made(function(*given, **named))

        return bounded


def _through_filters(tree: nodes.Template) -> nodes.Template:
    """The tree, in which filters count what loops go through, and what literals and ``~`` make."""
    for loop in tree.find_all(nodes.For):
        loop.iter = _filtered(loop.iter, ROUNDS)
    for parent in [tree, *tree.find_all(nodes.Node)]:
        for field, value in list(parent.iter_fields()):
            if isinstance(value, list):
                value[:] = map(_counted, value)
            else:
                setattr(parent, field, _counted(value))
    return tree


def _counted(node: Any) -> Any:
    if isinstance(node, nodes.Concat):
        return _filtered(nodes.List(node.nodes), JOINED)
    if isinstance(node, (nodes.List, nodes.Dict)) or (isinstance(node, nodes.Tuple) and node.ctx == "load"):
        return _filtered(node, MADE)
    return node


def _filtered(node: Any, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None)


def _size(value: Any) -> int:
    """Characters and elements of a value and of what it contains, counted up to :data:`LONGEST`."""
    size, left = 0, [value]
    while left and size <= LONGEST:
        one = left.pop()
        if isinstance(one, (str, bytes, range)):
            size += len(one)
        elif isinstance(one, Mapping):
            size += len(one)
            left += [*one.keys(), *one.values()]
        elif isinstance(one, (list, tuple, set, frozenset)):
            size += len(one)
            left += one
    return size


def _check_numbers(values: Iterable[Any]) -> None:
    """
    Raises:
        jinja2.TemplateRuntimeError: a number would make something too large.
    """
    if any(_is_int(value) and abs(value) > LONGEST for value in values):
        raise _too_large()


def _check_work(values: Iterable[Any], *, wide: bool = False) -> None:
    """
    Raises:
        jinja2.TemplateRuntimeError: what comes of texts may be too large, or, with `wide`, a format is.
    """
    work = 1
    for value in values:
        size = _size(value)
        work *= max(1, size)
        if size > LONGEST or work > MOST_WORK or (wide and isinstance(value, str) and WIDE.search(value)):
            raise _too_large()


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _too_large() -> jinja2.TemplateRuntimeError:
    return jinja2.TemplateRuntimeError(f"it makes something of more than {LONGEST} characters or elements")


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)
