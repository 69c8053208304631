"""Type checkers know the types of the public functions and methods, and refuse wrong arguments."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "dl4all"

TENSOR = "dl4all.tensor.tensor.Tensor"

REVEALED = {
    "dl.relu(x)": TENSOR,
    "dl.nn.functional.softmax(x)": TENSOR,
    "dl.zeros(2)": TENSOR,
    "dl.tensor([[1, 2]])": TENSOR,
    "dl.arange(3)": TENSOR,
    "dl.randn(2, 3)": TENSOR,
    "x + x": TENSOR,
    "1 - x": TENSOR,
    "x @ x": TENSOR,
    "x[0]": TENSOR,
    "x.relu()": TENSOR,
    "x.relu_()": TENSOR,
    "x.sum()": TENSOR,
    "x.T": TENSOR,
    "dl.topk(x, 1).values": TENSOR,
    "dl.topk(x, 1).indices": TENSOR,
    "x.max()": TENSOR,
    "x.max(0).indices": TENSOR,
    "dl.median(x)": TENSOR,
    "x.sort().values": TENSOR,
    "x.half()": TENSOR,
    "x.to('cpu')": TENSOR,
    "x.type('int8')": TENSOR,
    "x.type()": "str",
    "x.new_zeros(2)": TENSOR,
    "x.squeeze_(0)": TENSOR,
    "x.cauchy_()": TENSOR,
    "x.size()": "dl4all.ops.core.tensor_base.Size",
    "x.size(0)": "int",
    "x.item()": "int | float",
    "dl.nn.Linear(2, 3).weight": "dl4all.nn.parameter.Parameter",
    "dl.nn.Linear(2, 3).forward(x)": TENSOR,
}
"""Expressions with a tensor x, and what ``reveal_type`` shows."""

REFUSED = (
    "x.relu('nonsense')",
    "dl.relu([1.0])",
    "dl.elu(x, alpha='much')",
    "dl.zeros('2')",
    "x.new_full((2,), 'one')",
    "x.half(3)",
    "x + 'text'",
)
"""Expressions that a type checker must not accept."""


@pytest.mark.slow
def test_mypy_knows_the_public_types(tmp_path: Path) -> None:
    """One run of mypy for all expressions: it reads the whole package."""
    pytest.importorskip("mypy")
    lines = ["import dl4all as dl", "x = dl.ones(2, 2)"]
    lines += [f"reveal_type({expression})" for expression in REVEALED]
    lines += REFUSED
    sample = tmp_path / "sample.py"
    sample.write_text("\n".join(lines), "utf-8")
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--no-pretty", str(sample)]
    run = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    messages: dict[int, str] = {}
    for match in re.finditer(r"sample\.py:(\d+): (.*)", run.stdout):
        messages.setdefault(int(match[1]), match[2])
    first = 3
    revealed = {
        expression: re.sub(
            r'note: Revealed type is "(.*)"', r"\1", messages.get(number, run.stdout + run.stderr)
        ).replace("builtins.", "")
        for number, expression in enumerate(REVEALED, first)
    }
    assert revealed == REVEALED
    first += len(REVEALED)
    accepted = [expression for number, expression in enumerate(REFUSED, first) if number not in messages]
    assert not accepted
    assert all(messages[number].startswith("error:") for number in range(first, first + len(REFUSED)))


# Signatures without Any

STUBS = ("ops/__init__.pyi", "tensor/mixins/methods.pyi", "nn/functional.pyi")

TENSOR_FILES = (
    "tensor/creation.py",
    "tensor/dtypes.py",
    "tensor/mixins/gradients.py",
    "tensor/mixins/inplace.py",
    "tensor/mixins/properties.py",
    "tensor/random.py",
    "tensor/mixins/random_fills.py",
    "tensor/ranges.py",
    "tensor/tensor.py",
)

MAY_HAVE_ANY = {
    "tolist": "a number, or lists nested as deeply as there are axes",
    "from_dlpack": "takes any object with the protocol's methods",
    "grad": "a tensor, or None before backward; nearly every use comes after it",
}
"""Functions and methods of tensors with a reason for Any."""


@pytest.mark.parametrize("file", STUBS)
def test_generated_signatures_have_precise_types(file: str) -> None:
    assert not list(_functions_with_any(PACKAGE / file))


@pytest.mark.parametrize("file", TENSOR_FILES)
def test_functions_and_methods_of_tensors_have_precise_types(file: str) -> None:
    assert set(_functions_with_any(PACKAGE / file)) <= set(MAY_HAVE_ANY)


def test_every_exception_is_needed() -> None:
    used = {name for file in TENSOR_FILES for name in _functions_with_any(PACKAGE / file)}
    assert set(MAY_HAVE_ANY) <= used


def _functions_with_any(path: Path) -> Iterator[str]:
    """The public functions of a file, and public methods of its classes, with Any in their signatures."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and (not node.name.startswith("_") or node.name.endswith("__")):
            a = node.args
            arguments = [*a.posonlyargs, *a.args, a.vararg, *a.kwonlyargs, a.kwarg]
            annotations = [argument.annotation for argument in arguments if argument] + [node.returns]
            if any(annotation and _has_any(annotation) for annotation in annotations):
                yield node.name


def _has_any(annotation: ast.expr) -> bool:
    """Whether an argument or a result may be anything; ``NDArray[Any]`` only leaves the dtype open."""
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) in ("npt.NDArray", "np.dtype"):
        return False
    if isinstance(annotation, ast.Name):
        return annotation.id == "Any"
    return any(_has_any(child) for child in ast.iter_child_nodes(annotation) if isinstance(child, ast.expr))


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [("Any", True), ("Tensor | Any", True), ("tuple[Tensor, Any]", True), ("npt.NDArray[Any]", False)],
)
def test_any_is_found_within_annotations(annotation: str, expected: bool) -> None:
    assert _has_any(ast.parse(annotation, mode="eval").body) is expected
