"""The stubs are what the declarations say, and list what is there."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import dl4all as dl
from dl4all.functions import names
from dl4all.tensor.mixins.methods import Methods

ROOT = Path(__file__).parents[1]


def test_stubs_are_written_from_the_declarations() -> None:
    tool = ROOT / "tools" / "exports.py"
    done = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("module", [dl.ops, names, dl.nn.functional], ids=lambda module: str(module.__name__))
def test_stubs_list_what_a_module_has(module: ModuleType) -> None:
    source = ast.parse(Path(str(module.__file__)).with_suffix(".pyi").read_text("utf-8"))
    lists = (node.value for node in source.body if isinstance(node, ast.Assign))
    (stub,) = (ast.literal_eval(value) for value in lists if isinstance(value, ast.List))
    assert sorted(stub) == sorted(module.__all__)
    assert [name for name in stub if not hasattr(module, name)] == []


def test_stubs_list_the_methods_of_tensors() -> None:
    stub = ROOT / "dl4all" / "tensor" / "mixins" / "methods.pyi"
    (body,) = (
        node.body for node in ast.parse(stub.read_text("utf-8")).body if isinstance(node, ast.ClassDef)
    )
    methods = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    assert methods == {name for name in vars(Methods) if not name.startswith("__")}
