"""Signatures of the public functions and methods without Any; mypy reads ``public_types.py`` beside."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "dl4all"

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
