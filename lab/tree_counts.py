"""Count what tells how the source hangs together: copies of a decision, circles of files, sizes of folders.

python lab/tree_counts.py [checkout]
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import networkx

PARTS = ("runtime", "allocator", "scheduler", "host_kernels")
"""Parts of the library beside ``dl4all``, which has links to them."""
LISTENERS = re.compile(r"\b(capture|launch_log|recorder|op_regions)\b")
LISTENING = ("scheduler/", "runtime/", "dl4all/graph/", "dl4all/pytorch/names/profiler")
Trees = dict[str, ast.Module]
VAGUE = re.compile(r"\s*(What|Where|How|Whom|Those)\b")


def sources(root: Path) -> dict[str, str]:
    """The Python files of the library by their paths; those of earlier versions, too."""
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout
    paths = [path for path in listed.split() if path.startswith(("dl4all/", *(f"{part}/" for part in PARTS)))]
    return {path: (root / path).read_text("utf-8") for path in paths if path.endswith(".py")}


def module_of(path: str) -> str:
    words = Path(path).with_suffix("").parts
    words = words if words[0] == "dl4all" else ("dl4all", *words)
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


def imported(tree: ast.AST, modules: set[str]) -> Iterator[str]:
    """The modules that a file imports anywhere but for annotations only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in modules else str(node.module) for name in names)
        else:
            yield from imported(node, modules)


def circles(trees: Trees) -> list[list[str]]:
    """The modules that import each other, directly or not."""
    modules = {module_of(path) for path in trees}
    graph = networkx.DiGraph(
        (module_of(path), other)
        for path, tree in trees.items()
        for other in imported(tree, modules)
        if other in modules and other != module_of(path)
    )
    return [sorted(circle) for circle in networkx.strongly_connected_components(graph) if len(circle) > 1]


def vague_definitions(trees: Trees) -> list[str]:
    """The definitions that name no thing: a noun for a value, a verb for an action."""
    return [
        f"{path}:{node.lineno}: {node.value.value.strip().splitlines()[0]}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and VAGUE.match(node.value.value)
    ]


def repeated_classes(trees: Trees) -> set[str]:
    """The names of classes that stand in several files."""
    places = {
        (node.name, path)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    return {name for name, number in Counter(name for name, _ in places).items() if number > 1}


def parsed(files: dict[str, str]) -> Trees:
    return {path: ast.parse(text) for path, text in files.items()}


class Source(NamedTuple):
    """A checkout: its folder, the texts of the library's files, and their syntax trees."""

    root: Path
    files: dict[str, str]
    trees: Trees


def source(root: Path) -> Source:
    files = sources(root)
    return Source(root, files, parsed(files))


def _methods_of_device(source: Source) -> int:
    device = next(
        node
        for path, tree in source.trees.items()
        if path.startswith("scheduler/")
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == "Device"
    )
    return sum(isinstance(node, ast.FunctionDef) for node in device.body)


def _generated_lines(source: Source) -> int:
    return sum(
        text.count("\n")
        for path in (source.root / "dl4all").rglob("*.py*")
        if path.suffix in (".py", ".pyi")
        if "Written by tools/exports.py" in (text := path.read_text("utf-8"))[:500]
    )


def _entries(source: Source) -> int:
    entries = {path.split("/")[1] for path in source.files if path.startswith("dl4all/")}
    return len(entries - {*PARTS, "shaders"})


COUNTS: dict[str, Callable[[Source], int]] = {
    "`is_host` in dl4all/": lambda source: sum(
        text.count("is_host") for path, text in source.files.items() if path.startswith("dl4all/")
    ),
    "files graph/host_*": lambda source: sum(path.startswith("dl4all/graph/host_") for path in source.files),
    "files that name a listener outside scheduler, runtime, graph, profiler": lambda source: sum(
        bool(LISTENERS.search(text)) for path, text in source.files.items() if not path.startswith(LISTENING)
    ),
    "files of graph that import struct": lambda source: sum(
        "import struct" in text for path, text in source.files.items() if path.startswith("dl4all/graph/")
    ),
    "entries in dl4all/, links aside": _entries,
    "files of the largest folder": lambda source: max(
        Counter(Path(path).parent for path in source.files).values()
    ),
    "methods of Device": _methods_of_device,
    "lines of Python in the library": lambda source: sum(text.count("\n") for text in source.files.values()),
    "circles of files": lambda source: len(circles(source.trees)),
    "generated lines": _generated_lines,
    "definitions that begin with What, Where, How, Whom, Those": lambda source: len(
        vague_definitions(source.trees)
    ),
    "class names that stand in several files": lambda source: len(repeated_classes(source.trees)),
}
"""The counts by what is counted."""


if __name__ == "__main__":
    counted = source(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1])
    for what, count in COUNTS.items():
        print(f"{count(counted):8,}  {what}")
