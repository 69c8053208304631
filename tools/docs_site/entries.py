"""Entries of the reference, in reStructuredText: what a public name is, takes, gives and raises."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import textwrap
from collections.abc import Mapping
from types import UnionType
from typing import Any

from sphinx.ext.napoleon import Config
from sphinx.ext.napoleon.docstring import GoogleDocstring

from dl4all.ops.core.op import Op
from dl4all.ops.elementwise.declare import Elementwise
from tools.docs_site.documentation import documentation
from tools.docs_site.names import Name, Page, module_of, pages

NAPOLEON = Config(napoleon_use_rtype=False, napoleon_use_ivar=True, napoleon_use_param=False)
DRAWN = re.compile(r"[├└│]")
CODE = re.compile(r"(``.+?``|`[^`]+`)", re.S)
MARKUP = re.compile(r"(?<![\w*])\*(?=\w)|(?<=[a-z0-9])_(?![\w`])")
LONGEST_UNION = 40
SHORTER = (("'Array", "'Tensor"), ("TensorBase", "Tensor"), ("dl4all.tensor.tensor.", ""), ("typing.", ""))


def signature(thing: Any, *, method: bool = False) -> str:
    """Parameters with types and defaults, and the result's type."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return "()"
    spaces = vars(sys.modules.get(getattr(thing, "__module__", ""), object))
    parameters = [
        plain_default(p).replace(annotation=spelled_out(p.annotation, spaces))
        for p in list(found.parameters.values())[method:]
    ]
    text = str(found.replace(parameters=parameters))
    for long, short in SHORTER:
        text = text.replace(long, short)
    text = re.sub(r"'((?:[^'\\]|\\.)*)'(?=[,)=\s]|$)", unquoted, text)
    return text.removesuffix(" -> None") if inspect.isclass(thing) else text


def spelled_out(annotation: Any, names: Mapping[str, Any]) -> Any:
    """An annotation with public names of classes, and with what the short names of short unions stand for."""

    def meant(match: re.Match[str]) -> str:
        value = names.get(match[0])
        if isinstance(value, UnionType):
            text = re.sub(r"\b(?:\w+\.)+(?=\w)", "", str(value))
            return text if len(text) < LONGEST_UNION else match[0]
        return public_classes().get(id(value), match[0])

    return re.sub(r"\b[A-Z]\w+", meant, annotation) if isinstance(annotation, str) else annotation


@functools.cache
def public_classes() -> dict[int, str]:
    """The full name of each class that has an entry."""
    found: dict[int, str] = {}
    for page in pages():
        for name in page.names:
            if inspect.isclass(name.thing):
                found.setdefault(id(name.thing), name.full)
    return found


def plain_default(parameter: inspect.Parameter) -> inspect.Parameter:
    """Without an address, or the angle brackets that reStructuredText cannot parse."""
    if parameter.default is not parameter.empty and re.search(r"<.*>", repr(parameter.default)):
        name = getattr(parameter.default, "__name__", type(parameter.default).__name__)
        return parameter.replace(default=Text(name))
    return parameter


class Text(str):
    """A default that prints as it is written."""

    def __repr__(self) -> str:
        return str(self)


def unquoted(match: re.Match[str]) -> str:
    """An annotation without the quotes of a postponed one; a default that is a string keeps its own."""
    before = match.string[: match.start()]
    return match[1] if before.endswith((": ", "-> ")) else match[0]


def body(text: str, what: str) -> list[str]:
    """A docstring in Google's form as reStructuredText."""
    converted = GoogleDocstring(escaped(text), NAPOLEON, what=what)  # type: ignore[arg-type]  # a part does
    return str(converted).splitlines()


def escaped(text: str) -> str:
    """With backslashes where stars and underscores of the prose would be markup; drawings stay."""
    paragraphs = []
    for part in text.split("\n\n"):
        if DRAWN.search(part):
            paragraphs.append(".. code-block:: text\n\n" + textwrap.indent(part, "    "))
        elif ">>>" in part:
            prose, session = re.split(r"(?=^ *>>>)", part, maxsplit=1, flags=re.M)
            paragraphs.append(MARKUP.sub(r"\\\g<0>", prose) + session)
        else:
            paragraphs.append(
                "".join(
                    span if span.startswith("`") else MARKUP.sub(r"\\\g<0>", span)
                    for span in CODE.split(part)
                )
            )
    return "\n\n".join(paragraphs)


def facts(thing: Any) -> list[str]:
    """What the declaration of an op says of it."""
    if not isinstance(thing, Op):
        return []
    dtypes = kernel_dtypes(thing)
    kernels = (
        f"{', '.join(dtypes)}; other dtypes are computed on the CPU."
        if dtypes
        else "none; views or other ops."
    )
    gradient = "yes, of every order." if thing.grad is not None else "no."
    return ["", f":Kernels on devices for: {kernels}", f":Gradient: {gradient}"]


def kernel_dtypes(op: Op[...]) -> tuple[str, ...]:
    if isinstance(op, Elementwise):
        return tuple(op.by_dtype)
    return () if op.kernel is None else op.kernel.dtypes


def directive(kind: str, head: str, lines: list[str], options: tuple[str, ...] = ()) -> list[str]:
    inside = [*options, "", *lines, ""]
    return [f".. py:{kind}:: {head}", *(textwrap.indent(line, "   ") for line in inside), ""]


def entry(name: Name, elsewhere: dict[int, Name]) -> list[str]:
    """The entry of one name. What is the same as another name, or its method, refers to that one."""
    thing, text = name.thing, documentation(name)
    first = elsewhere.get(id(thing))
    if first is not None and first.full != name.full:
        text = f"{paragraph(text)}\n\nThe same as :py:obj:`{first.full}`, which has the whole text."
    if inspect.isclass(thing):
        kind = "exception" if issubclass(thing, BaseException) else "class"
        inner = [] if first is not None and first.full != name.full else members(name)
        head = name.name if kind == "exception" else name.name + signature(thing)
        return directive(kind, head, [*body(text, "class"), "", *inner])
    if name.space == "dl4all.Tensor":
        if callable(thing):
            return directive(
                "method", f"Tensor.{name.name}" + signature(thing, method=True), body(text, "method")
            )
        return directive("attribute", f"Tensor.{name.name}", body(text, "attribute"))
    if callable(thing):
        return directive("function", name.name + signature(thing), body(text, "function") + facts(thing))
    return directive("data", name.name, body(text, "data"))


def members(name: Name) -> list[str]:
    """Methods and properties that a class defines itself, or inherits from what has no entry of its own."""
    if name.full == "dl4all.Tensor":
        return ["Attributes, methods and operators: :doc:`dl4all.Tensor`."]
    lines: list[str] = []
    for member, thing in sorted(vars(name.thing).items()):
        if member.startswith("_") or not (inspect.getdoc(thing) or ""):
            continue
        raw = thing.__func__ if isinstance(thing, (classmethod, staticmethod)) else thing
        if not getattr(raw, "__doc__", None):
            continue  # inherited
        if isinstance(thing, (property, functools.cached_property)):
            lines += directive("property", member, body(inspect.getdoc(thing) or "", "attribute"))
        elif inspect.isfunction(raw):
            option = {classmethod: (":classmethod:",), staticmethod: (":staticmethod:",)}.get(type(thing), ())
            head = member + signature(raw, method=not isinstance(thing, staticmethod))
            lines += directive("method", head, body(inspect.getdoc(raw) or "", "method"), option)
    return lines


def paragraph(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())


def title(text: str) -> list[str]:
    return [text, "=" * len(text), ""]


def page(page: Page, elsewhere: dict[int, Name]) -> str:
    """A page: a table of its names, then their entries."""
    about = inspect.getdoc(module_of(page.space)) if page.title == page.space else ""
    lines = [*title(page.title), f".. py:currentmodule:: {page.space.removesuffix('.Tensor')}", ""]
    lines += [*body(about or "", "module"), "", ".. list-table::", "   :widths: 30 70", ""]
    for name in page.names:
        summary = " ".join(body(paragraph(documentation(name)), "data")).strip()
        lines += [f"   * - :py:obj:`~{name.full}`", f"     - {first_sentence(summary)}"]
    lines.append("")
    for name in page.names:
        lines += entry(name, elsewhere)
    return "\n".join(lines) + "\n"


def first_sentence(text: str) -> str:
    """Up to the first full stop that ends a sentence."""
    return re.split(r"(?<=[^.\s][.])\s+(?=[A-Z`:])", text)[0]
