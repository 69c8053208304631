"""Write the typed stubs of public functions and of tensors' methods from ``@export``.

python tools/exports.py [--check]

A function is declared in ``dl4all/ops`` or ``dl4all/functions`` with ``@export("dl", "Tensor", ...)``. From
that follow stubs in which an ``Array`` is a :class:`dl4all.Tensor`: of ``dl4all.ops``, of the functions of
``dl``, of ``dl.nn.functional`` and of tensors' methods. The sources are parsed, not imported.
"""

from __future__ import annotations

import ast
import copy
import functools
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1] / "dl4all"
OPS = ROOT / "ops"
FOLDERS = sorted(path.parent for part in ("ops", "functions") for path in (ROOT / part).glob("*/__init__.py"))
NOTE = """# Written by tools/exports.py from the @export declarations; run it after changing them.
# fmt: off
# isort: off
"""
WIDTH = 110
GLUE = "\0"  # in the place of a space

TENSOR_TYPES = {"Array", "T", "TensorBase"}
"""Annotations that stand for a tensor of the user's."""

OUT_TYPE = "Tensor | Sequence[Tensor] | None"
"""What may be `out`: a tensor for a result, several for as many."""

BUILTIN = {"int", "float", "bool", "str", "tuple", "list", "dict", "None", "object", "slice", "type"}


@dataclass(frozen=True)
class Function:
    """An exported function as it is declared."""

    name: str
    folder: Path
    module: str
    source: ast.Module
    node: ast.FunctionDef
    overloads: tuple[ast.FunctionDef, ...]
    spaces: tuple[str, ...]
    aliases: tuple[str, ...]
    out: bool

    @property
    def names(self) -> tuple[str, ...]:
        return self.name, *self.aliases

    def names_in(self, space: str) -> list[str]:
        """Under which names it appears in a space."""
        found = list(self.names) if space in self.spaces else []
        dotted = (s.partition(".") for s in self.spaces if "." in s)
        return found + [name for before, _, name in dotted if before == space]

    @property
    def has_numpy_names(self) -> bool:
        """Whether NumPy has other names for some of its parameters."""
        args = self.node.args
        return any(a.arg in ("dim", "keepdim") for a in (*args.posonlyargs, *args.args, *args.kwonlyargs))

    @property
    def takes_numbers(self) -> bool:
        """Whether a Python number may stand for an array: elementwise, and not the only one."""
        called = (d.func for d in self.node.decorator_list if isinstance(d, ast.Call))
        elementwise = any(isinstance(f, ast.Name) and f.id == "elementwise" for f in called)
        arrays = [a for a in self.node.args.args if a.annotation and ast.unparse(a.annotation) == "Array"]
        return elementwise and len(arrays) > 1


def functions() -> list[Function]:
    """All exported functions, by family and file."""
    found = []
    for path in sorted(path for folder in FOLDERS for path in folder.glob("*.py")):
        source = ast.parse(path.read_text("utf-8"))
        overloads: dict[str, list[ast.FunctionDef]] = {}
        for node in source.body:
            if isinstance(node, ast.FunctionDef) and "overload" in map(ast.unparse, node.decorator_list):
                overloads.setdefault(node.name, []).append(node)
            if isinstance(node, ast.FunctionDef) and (call := _export(node)):
                module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
                keywords = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
                found.append(
                    Function(
                        node.name,
                        path.parent,
                        module,
                        source,
                        node,
                        tuple(overloads.get(node.name, ())),
                        tuple(ast.literal_eval(a) for a in call.args),
                        keywords.get("aliases", ()),
                        keywords.get("out", False),
                    )
                )
    names = [name for f in found for name in f.names]
    assert len(set(names)) == len(names), (
        f"declared twice: {sorted({n for n in names if names.count(n) > 1})}"
    )
    return found


def _export(node: ast.FunctionDef) -> ast.Call | None:
    for d in node.decorator_list:
        if isinstance(d, ast.Call) and isinstance(d.func, ast.Name) and d.func.id == "export":
            return d
    return None


# The stubs


def _filled(text: str, indent: str = "    ") -> str:
    """A statement in lines that are as long as they may be."""
    return textwrap.fill(
        text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _glued(signature: str) -> str:
    """A signature whose lines may only be broken between parameters."""
    depth, glued = 0, ""
    for character in signature:
        depth += (character in "([{") - (character in ")]}")
        between = depth == 1 and glued.endswith(",")
        glued += GLUE if character == " " and not between else character
    return glued


def _all(names: Iterable[str]) -> str:
    return _filled("__all__ = [" + ", ".join(f'"{name}"' for name in sorted(names)) + "]")


def _from_ops(names: list[str]) -> str:
    return _filled(f"from dl4all.ops import ({', '.join(sorted(names))})")


def top_level_stub(found: list[Function]) -> str:
    """Types of the functions of ``dl``: those of ``dl4all.ops``, which know `out`."""
    names = [name for f in found for name in f.names_in("dl")]
    return "\n".join([NOTE, _from_ops(names), "", _all(names), ""])


def ops_stub(found: list[Function]) -> str:
    """Types of ``dl4all.ops``."""
    types = _Types()
    body = []
    for f in found:
        body.append(types.signature(f, f.name))
        body += [f"{alias} = {f.name}" for alias in f.aliases]
    extra = ["REGISTRY", "all_shaders"]
    head = f"from dl4all.ops.core.op import {', '.join(extra)}"
    names = _all([*extra, *(name for f in found for name in f.names)])
    return "\n".join([NOTE, *types.imports(), head, *types.classes(), *body, names, ""])


def functional_stub(found: list[Function]) -> str:
    """Types of ``dl4all.nn.functional``."""
    types = _Types()
    names = [name for f in found for name in f.names_in("F")]
    body = [types.signature(f, f"{name}_", "Tensor") for f in found for name in f.names_in("F_")]
    every = _all([*names, *(f"{name}_" for f in found for name in f.names_in("F_"))])
    return "\n".join([NOTE, *types.imports(), _from_ops(names), *types.classes(), *body, every, ""])


def methods_stub(found: list[Function]) -> str:
    """Types of the mixin."""
    types = _Types()
    lines = []
    for f in found:
        for name in f.names_in("Tensor"):
            lines.append(types.signature(f, name, method=True))
        for name in f.names_in("Tensor_"):
            lines.append(types.signature(f, f"{name}_", "Tensor", method=True))
    head = ["from dl4all.ops.core.tensor_base import TensorBase", *types.classes(imported=True)]
    return "\n".join([NOTE, *types.imports(), *head, "class Methods(TensorBase):", *lines, ""])


class _Types:
    """Signatures as users see them, and what their annotations need to be imported."""

    def __init__(self) -> None:
        self._imports: dict[str, str] = {}  # lines by the name that they bring
        self._classes: dict[str, list[str]] = {}  # named tuples: lines of their fields

    def signature(self, f: Function, name: str, returns: str = "", *, method: bool = False) -> str:
        """The lines of a stub for a function: its definition, or each of its overloads."""
        indent = " " * (4 * method)
        nodes = f.overloads or (f.node,)
        text = [self._signature(f, node, name, returns, method) for node in nodes]
        text = [_filled(indent + line, f"{indent}    ").replace(GLUE, " ") for line in text]
        if not f.overloads:
            return text[0]
        self._imports["overload"] = "from typing import overload"
        return "\n".join(f"{indent}@overload\n{lines}" for lines in text)

    def _signature(self, f: Function, node: ast.FunctionDef, name: str, returns: str, method: bool) -> str:
        args = copy.deepcopy(node.args)
        if returns:
            _drop_inplace(args)
        every = [*args.posonlyargs, *args.args, args.vararg, *args.kwonlyargs, args.kwarg]
        for a in every:
            if a is not None:
                assert a.annotation, f"{f.module}: {f.name}({a.arg}) has no type"
                text = self._type(f, a.annotation)
                if f.takes_numbers and ast.unparse(a.annotation) == "Array":
                    text += " | float"
                a.annotation = ast.parse(text, mode="eval").body
        if not method and not returns and f.out:
            self._imports["Sequence"] = "from collections.abc import Sequence"
            args.kwonlyargs.append(ast.arg("out", ast.parse(OUT_TYPE, mode="eval").body))
            args.kw_defaults.append(ast.Constant(None))
        if method:
            (args.posonlyargs or args.args)[0].arg = "self"
            (args.posonlyargs or args.args)[0].annotation = None
        for defaults in (args.defaults, args.kw_defaults):
            for i, default in enumerate(defaults):
                if default is not None and not isinstance(default, (ast.Constant, ast.UnaryOp)):
                    defaults[i] = ast.Constant(...)
        assert node.returns, f"{f.module}: {f.name} has no type"
        result = "Tensor" if returns else self._type(f, node.returns)
        return _glued(f"def {name}({ast.unparse(args)}) -> {result}: ...")

    def _type(self, f: Function, annotation: ast.expr) -> str:
        tree = ast.parse(ast.unparse(annotation), mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                if node.id in TENSOR_TYPES:
                    node.id = "Tensor"
                elif node.id == "Number":
                    node.id = "float"
                elif node.id not in BUILTIN:
                    self._need(f, node.id)
        return ast.unparse(tree)

    def _need(self, f: Function, name: str) -> None:
        """Take a named tuple with its fields, and import anything else from where the module has it."""
        node, module = _definition(f.source, name), f.module
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(
            ("dl4all.ops.", "dl4all.functions.")
        ):
            module = str(node.module)
            node = _definition(_source(module), name) or node
        if isinstance(node, ast.ClassDef) and "NamedTuple" in map(ast.unparse, node.bases):
            fields = [field for field in node.body if isinstance(field, ast.AnnAssign)]
            self._classes[name] = [
                f"    {ast.unparse(field.target)}: {self._type(f, field.annotation)}" for field in fields
            ]
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            alias = next(alias for alias in node.names if (alias.asname or alias.name) == name)
            start = f"from {node.module} " if isinstance(node, ast.ImportFrom) else ""
            self._imports[name] = f"{start}import {alias.name}" + (f" as {name}" if alias.asname else "")
        else:  # an alias or a class that is made there
            self._imports[name] = f"from {module} import {name}"

    def imports(self) -> list[str]:
        plain = {line for line in self._imports.values() if line.startswith("import ")}
        by_module: dict[str, set[str]] = {"from dl4all.tensor.tensor": {"Tensor"}}
        for line in {*self._imports.values()} - plain:
            module, _, name = line.partition(" import ")
            by_module.setdefault(module, set()).add(name)
        return [*sorted(plain), *(f"{m} import {', '.join(sorted(by_module[m]))}" for m in sorted(by_module))]

    def classes(self, *, imported: bool = False) -> list[str]:
        """The named tuples that functions return, with tensors in them."""
        if imported:
            return [_from_ops(list(self._classes))]
        lines = [
            line for name, fields in self._classes.items() for line in (f"class {name}(NamedTuple):", *fields)
        ]
        return ["from typing import NamedTuple", *lines] if lines else []


def _drop_inplace(args: ast.arguments) -> None:
    """Leave out the parameter `inplace`: a method that changes its tensor does not take it."""
    position = next((i for i, a in enumerate(args.args) if a.arg == "inplace"), None)
    if position is not None:
        del args.defaults[position - len(args.args)], args.args[position]


def _definition(source: ast.Module, name: str) -> ast.stmt | None:
    """The class or import statement that gives a module a name."""
    for node in source.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
        if isinstance(node, (ast.Import, ast.ImportFrom)) and any(
            (alias.asname or alias.name) == name for alias in node.names
        ):
            return node
    return None


@functools.cache
def _source(module: str) -> ast.Module:
    return ast.parse((ROOT.parent / f"{module.replace('.', '/')}.py").read_text("utf-8"))


def pages() -> dict[Path, str]:
    """What each written file should hold, formatted."""
    found = functions()
    return {
        OPS / "__init__.pyi": ops_stub(found),
        ROOT / "functions" / "names.pyi": top_level_stub(found),
        ROOT / "nn" / "functional.pyi": functional_stub(found),
        ROOT / "tensor" / "mixins" / "methods.pyi": methods_stub(found),
    }


def main() -> None:
    stale = []
    for path, text in pages().items():
        if not path.exists() or path.read_text("utf-8") != text:
            stale.append(path)
            if "--check" not in sys.argv:
                path.write_text(text, "utf-8")
    for path in stale:
        print(path.relative_to(ROOT.parent))
    if stale and "--check" in sys.argv:
        sys.exit("are not what the declarations say; run python tools/exports.py")


if __name__ == "__main__":
    main()
