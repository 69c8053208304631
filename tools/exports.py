"""Write the lists of public names, the methods of tensors and their typed stubs from ``@export``.

python tools/exports.py [--check]

A function is declared in ``dl4all/ops`` with ``@export("dl", "Tensor", ...)``. From that follow the lists of
each family's ``__init__.py``, ``dl4all/_functions.py``, ``dl4all/nn/functional.py``,
``dl4all/tensor/methods.py`` and the stubs beside them, in which an ``Array`` is a :class:`dl4all.Tensor`. The
sources are parsed, not imported, so the tool also works when a list names what is gone.
"""

from __future__ import annotations

import ast
import copy
import functools
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1] / "dl4all"
OPS = ROOT / "ops"
NOTE = (
    "# Written by tools/exports.py from the @export declarations in dl4all/ops; run it after changing them.\n"
)

TENSOR_TYPES = {"Array", "T", "TensorBase"}
"""Annotations that stand for a tensor of the user's."""

OUT_TYPE = "Tensor | Sequence[Tensor] | None"
"""What may be `out`: a tensor for a result, several for as many."""

BUILTIN = {"int", "float", "bool", "str", "tuple", "list", "dict", "None", "object", "slice", "type"}


@dataclass(frozen=True)
class Function:
    """An exported function as it is declared."""

    name: str
    family: str
    module: str
    source: ast.Module
    node: ast.FunctionDef
    overloads: tuple[ast.FunctionDef, ...]
    spaces: tuple[str, ...]
    aliases: tuple[str, ...]

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
    for path in sorted(OPS.glob("*/*.py")):
        source = ast.parse(path.read_text("utf-8"))
        overloads: dict[str, list[ast.FunctionDef]] = {}
        for node in source.body:
            if isinstance(node, ast.FunctionDef) and "overload" in map(ast.unparse, node.decorator_list):
                overloads.setdefault(node.name, []).append(node)
            if isinstance(node, ast.FunctionDef) and (call := _export(node)):
                module = f"dl4all.ops.{path.parent.name}.{path.stem}"
                aliases = next((k.value for k in call.keywords if k.arg == "aliases"), ast.Tuple([]))
                found.append(
                    Function(
                        node.name,
                        path.parent.name,
                        module,
                        source,
                        node,
                        tuple(overloads.get(node.name, ())),
                        tuple(ast.literal_eval(a) for a in call.args),
                        tuple(ast.literal_eval(aliases)),
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


# The lists of names


def family_list(path: Path, family: list[Function]) -> str:
    """``__init__.py`` of a family: its docstring, then its names."""
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8")), clean=False)
    lines = [f'"""{docstring}"""\n', NOTE]
    for function in family:
        lines.append(f"from {function.module} import {function.name} as {function.name}")
        lines += [f"from {function.module} import {function.name} as {a}" for a in function.aliases]
    return "\n".join([*lines, "", _all(name for f in family for name in f.names)])


def _all(names: Iterator[str]) -> str:
    return "__all__ = [" + ", ".join(f'"{name}"' for name in sorted(names)) + "]\n"


def top_level(found: list[Function]) -> str:
    """The functions of ``dl``."""
    names = [(f, name) for f in found for name in f.names_in("dl")]
    lines = [
        '"""Functions of tensors at the top level, as ``dl.NAME``."""\n',
        NOTE,
        "from dl4all import ops",
        "from dl4all.ops.core.numpy_names import with_numpy_names",
        "from dl4all.ops.indexing.out_argument import with_out",
    ]
    writing = out_functions()
    others = [(f, name) for f, name in names if name not in writing]
    lines += [f"from dl4all.ops import {name} as {name}" for f, name in others if not f.has_numpy_names]
    lines += [f"{name} = with_numpy_names(ops.{name})" for f, name in others if f.has_numpy_names]
    lines += [f"{name} = with_out(ops.{name})" for _, name in names if name in writing]
    return "\n".join([*lines, "", _all(name for _, name in names)])


def top_level_stub(found: list[Function]) -> str:
    """Types of the functions of ``dl``: those of ``dl4all.ops``, which know `out`."""
    names = [name for f in found for name in f.names_in("dl")]
    lines = [f"from dl4all.ops import {name} as {name}" for name in names]
    return "\n".join([NOTE, *lines, "", _all(iter(names))])


def out_functions() -> set[str]:
    """The names of the functions that take `out`, from the list beside the decorator."""
    for node in _source("dl4all.ops.indexing.out_argument").body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "OUT_FUNCTIONS":
            return set(ast.literal_eval(node.value).split())
    raise SystemExit("dl4all/ops/indexing/out_argument.py has no OUT_FUNCTIONS")


def functional(found: list[Function]) -> str:
    """``dl.nn.functional``."""
    names = [name for f in found for name in f.names_in("F")]
    changing = [(name, f.name) for f in found for name in f.names_in("F_")]
    lines = [
        '"""The functions behind the layers, where PyTorch has them."""\n',
        NOTE,
        "from dl4all import ops",
    ]
    lines += [f"from dl4all.ops import {name} as {name}" for name in names]
    lines += [f"{name}_ = ops.in_place(ops.{op})" for name, op in changing]
    return "\n".join([*lines, "", _all(iter(names + [f"{name}_" for name, _ in changing]))])


def methods(found: list[Function]) -> str:
    """The mixin with all methods of tensors that are functions of ``dl4all.ops``."""
    lines = ['"""Methods of tensors that are functions of ``dl4all.ops``, by family."""\n', NOTE]
    lines += [
        "from dl4all import ops",
        "from dl4all.ops.core.numpy_names import with_numpy_names",
        "from dl4all.ops.core.tensor_base import TensorBase",
        "",
    ]
    lines += ["class Methods(TensorBase):", '    """What is declared with ``@export("Tensor")``."""', ""]
    lines += ["    __slots__ = ()"]
    family = ""
    for f in found:
        function = f"with_numpy_names(ops.{f.name})" if f.has_numpy_names else f"ops.{f.name}"
        here = [f"    {name} = {function}" for name in f.names_in("Tensor")]
        here += [f"    {name}_ = ops.in_place(ops.{f.name})" for name in f.names_in("Tensor_")]
        if here and f.family != family:
            family = f.family
            lines += ["", f"    # {family}", ""]
        lines += here
    return "\n".join(lines)


# The stubs


def ops_stub(found: list[Function]) -> str:
    """Types of ``dl4all.ops``."""
    types = _Types()
    body = []
    for f in found:
        body.append(types.signature(f, f.name))
        body += [f"{alias} = {f.name}" for alias in f.aliases]
    extra = ("REGISTRY", "all_shaders")
    head = [f"from dl4all.ops.core.op import {name} as {name}" for name in extra]
    names = _all(iter([*extra, *(name for f in found for name in f.names)]))
    return "\n".join([NOTE, *types.imports(), *head, *types.classes(), *body, names])


def functional_stub(found: list[Function]) -> str:
    """Types of ``dl4all.nn.functional``."""
    types = _Types()
    lines = [f"from dl4all.ops import {name} as {name}" for f in found for name in f.names_in("F")]
    body = [types.signature(f, f"{name}_", "Tensor") for f in found for name in f.names_in("F_")]
    return "\n".join([NOTE, *types.imports(), *lines, *types.classes(), *body, ""])


def methods_stub(found: list[Function]) -> str:
    """Types of the mixin."""
    types = _Types()
    lines = []
    for f in found:
        for name in f.names_in("Tensor"):
            lines.append(textwrap.indent(types.signature(f, name, method=True), "    "))
        for name in f.names_in("Tensor_"):
            lines.append("    " + types.signature(f, f"{name}_", "Tensor", method=True))
    head = ["from dl4all.ops.core.tensor_base import TensorBase", *types.classes(imported=True)]
    return "\n".join([NOTE, *types.imports(), *head, "class Methods(TensorBase):", *lines, ""])


class _Types:
    """Signatures as users see them, and what their annotations need to be imported."""

    def __init__(self) -> None:
        self._imports: dict[str, str] = {}  # lines by the name that they bring
        self._classes: dict[str, list[str]] = {}  # named tuples: lines of their fields

    def signature(self, f: Function, name: str, returns: str = "", *, method: bool = False) -> str:
        """The lines of a stub for a function: one, or two for each of its overloads."""
        if not f.overloads:
            return self._signature(f, f.node, name, returns, method)
        self._imports["overload"] = "from typing import overload"
        return "\n".join(
            f"@overload\n{self._signature(f, node, name, returns, method)}" for node in f.overloads
        )

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
        if not method and not returns and name in out_functions():
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
        return f"def {name}({ast.unparse(args)}) -> {result}: ..."

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
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("dl4all.ops."):
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
        return [*self._imports.values(), "from dl4all.tensor.tensor import Tensor"]

    def classes(self, *, imported: bool = False) -> list[str]:
        """The named tuples that functions return, with tensors in them."""
        if imported:
            return [f"from dl4all.ops import {name} as {name}" for name in self._classes]
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
    written = {
        path: family_list(path, [f for f in found if f.family == path.parent.name])
        for path in sorted(OPS.glob("*/__init__.py"))
        if any(f.family == path.parent.name for f in found)
    }
    written |= {
        OPS / "__init__.pyi": ops_stub(found),
        ROOT / "_functions.py": top_level(found),
        ROOT / "_functions.pyi": top_level_stub(found),
        ROOT / "nn" / "functional.py": functional(found),
        ROOT / "nn" / "functional.pyi": functional_stub(found),
        ROOT / "tensor" / "methods.py": methods(found),
        ROOT / "tensor" / "methods.pyi": methods_stub(found),
    }
    return {path: _formatted(path, text) for path, text in written.items()}


def _formatted(path: Path, text: str) -> str:
    """As ruff sorts and formats it."""
    ruff = [sys.executable, "-m", "ruff"]
    name = ["--stdin-filename", str(path)]
    if "from __future__" not in text and path.suffix == ".py":
        text = (
            text.replace('"""\n', '"""\n\nfrom __future__ import annotations\n', 1)
            if text.count('"""\n')
            else text
        )
    for command in (["check", "--fix", "--quiet", "--exit-zero"], ["format"]):
        done = subprocess.run(
            [*ruff, *command, *name, "-"], input=text, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{path}: {done.stderr}\n{text}")
        text = done.stdout
    return text


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
