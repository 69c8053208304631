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
from jinja2.sandbox import ImmutableSandboxedEnvironment

from dl4all.errors import ArgumentError

LONGEST = 1_000_000
"""Characters of a talk, and elements of what a template makes at once."""
MOST_STEPS = 1_000_000
"""Rounds of loops, elements of ranges and calls, together."""
ROUNDS = "rounds"
"""The filter that every loop goes through."""
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

    intercepted_binops = frozenset(("*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        self._steps = 0
        self.filters = {name: self._counted(function) for name, function in self.filters.items()}
        self.filters[ROUNDS] = self._rounds
        self.filters["tojson"] = lambda value, **named: json.dumps(value, ensure_ascii=False, **named)
        self.globals |= {
            "raise_exception": _refuse, "strftime_now": datetime.now().strftime, "range": self._range
        }  # fmt: skip

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            loop.iter = nodes.Filter(loop.iter, ROUNDS, [], [], None, None)
        return tree

    def call(self, context: Any, function: Any, /, *given: Any, **named: Any) -> Any:
        self._count(1)
        method = getattr(function, "__wrapped__", function)  # as Jinja has those of formats
        formats = getattr(method, "__name__", "") in ("format", "format_map")
        _check_sizes((getattr(method, "__self__", None), *given, *named.values()), wide=formats)
        return super().call(context, function, *given, **named)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        self._count(1)
        if operator == "**":
            _check_sizes([int(abs(left) ** 0.5), right * 100])
        elif operator == "*":
            sizes = [len(one) if isinstance(one, (str, Sequence)) else 1 for one in (left, right)]
            counts = [one for one in (left, right) if isinstance(one, int)]
            if max(sizes) > 1 or not all(isinstance(one, (int, float)) for one in (left, right)):
                _check_sizes([max(sizes) * max([1, *counts])])
        else:
            _check_sizes([left], wide=True)
        return super().call_binop(context, operator, left, right)

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MOST_STEPS:
            raise jinja2.TemplateRuntimeError(f"it takes more than {MOST_STEPS} steps")

    def _rounds(self, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            self._count(1)
            yield value

    def _range(self, *given: int) -> range:
        made = range(*given)
        self._count(len(made))
        return made

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter that counts as a step, with what it is given."""

        @functools.wraps(function)
        def counted(*given: Any, **named: Any) -> Any:
            self._count(
                1 + max((len(one) for one in given if isinstance(one, (str, Sequence))), default=0) // 100
            )
            _check_sizes((*given, *named.values()))
            return function(*given, **named)

        return counted


def _check_sizes(values: Iterable[Any], *, wide: bool = False) -> None:
    """
    Raises:
        jinja2.TemplateRuntimeError: a number would make something too large, or, with `wide`, a format.
    """
    for value in values:
        large = isinstance(value, int) and not isinstance(value, bool) and abs(value) > LONGEST
        if large or (wide and isinstance(value, str) and WIDE.search(value)):
            raise jinja2.TemplateRuntimeError(f"it makes something of more than {LONGEST} elements")


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)
