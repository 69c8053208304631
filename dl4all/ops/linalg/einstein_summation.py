"""einsum: sums of products in Einstein notation, computed as matrix products."""

from __future__ import annotations

import math
import string
from collections.abc import Iterable, Sequence
from typing import Any

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, Shape
from dl4all.ops.elementwise.arithmetic import mul
from dl4all.ops.linalg.matrix_product import matmul
from dl4all.ops.memory.copy import unshared
from dl4all.ops.memory.parts import diagonal
from dl4all.ops.memory.views import permute, reshape
from dl4all.ops.reduce.sums import sum_to

LETTERS = string.ascii_uppercase + string.ascii_lowercase  # in the order of their codes, as results are

Labelled = tuple[Any, str]
"""A tensor, and a letter for each of its axes."""


@export("dl", autocast="lower")
def einsum(equation: Array | str, *operands: Array | Sequence[object]) -> Array:
    """Sums of products of the operands' elements in Einstein notation.

    Args:
        equation: for each operand, a letter for each axis; after ``->``, the axes of the result. All other
            axes are summed over. Without ``->`` the axes of the result are the letters that occur once, in
            alphabetical order. ``...`` stands for leading axes that broadcast. A letter that an operand has
            twice stands for its diagonal.
        operands: tensors, or a list of them; axes with the same letter have the same size, or 1. Without an
            equation, each operand is followed by a list of ints, one for each of its axes, and ``...``; the
            axes of the result may come last.

    Returns:
        A tensor with the axes that the equation names.

    Raises:
        ArgumentError: the equation is malformed.
        ShapeError: axes with the same letter differ in size, or an operand has not as many axes as letters.

    Example:
        >>> import dl4all as dl
        >>> a, b = dl.tensor([[1.0, 2.0], [3.0, 4.0]]), dl.tensor([10.0, 1.0])
        >>> dl.einsum("ij,j->i", a, b).tolist()
        [12.0, 34.0]
        >>> dl.einsum(a, [0, 1], b, [1], [0]).tolist()
        [12.0, 34.0]
    """
    if not isinstance(equation, str):
        equation, operands = _lettered((equation, *operands))
    if len(operands) == 1 and isinstance(operands[0], (tuple, list)):
        operands = tuple(operands[0])
    inputs, output = _parse(equation, operands)
    labelled = [_diagonals(*pair) for pair in zip(operands, inputs, strict=True)]
    inputs = [labels for _, labels in labelled]
    extents = _extents(inputs, [tensor for tensor, _ in labelled])
    remaining = [_without_broadcast_axes(*pair, extents) for pair in labelled]
    for first, second in _contraction_order(inputs, output, extents):
        # As opt_einsum counts: operands are removed from the list, and their product is appended.
        taken = [remaining.pop(index) for index in sorted({first, second}, reverse=True)]
        if len(taken) == 1:
            remaining.append(taken[0])
            continue
        needed = set(output).union(*(labels for _, labels in remaining))
        remaining.append(_contract(taken[1], taken[0], needed, extents))
    (result,) = remaining
    tensor, labels = _sum_unneeded_axes(result, set(output))
    shape = tuple(extents[label] for label in output)
    missing = [label for label in output if label not in labels]  # axes of size 1 in all operands
    tensor = reshape(tensor, *tensor.shape, *(1 for _ in missing)) if missing else tensor
    labels += "".join(missing)
    ordered = permute(tensor, *(labels.index(label) for label in output)) if labels != output else tensor
    result = ordered if ordered.shape == shape else reshape(ordered, *shape)
    # Of one operand it is a view where no axis is summed over, not even one of one element.
    if set("".join(inputs)) <= set(output):
        return result
    return unshared(result, *(operand for operand, _ in labelled))


def _parse(equation: str, operands: tuple[Any, ...]) -> tuple[list[str], str]:
    """The letters of each operand and of the result, with ``...`` replaced by letters.

    Raises:
        ArgumentError, ShapeError
    """
    # Imported here and below: at the top it would be a third of the time that dl4all takes to import.
    import opt_einsum  # type: ignore[import-untyped]

    try:
        left, output, _ = opt_einsum.parser.parse_einsum_input(
            (equation, *(operand.shape for operand in operands)), shapes=True
        )
    except (ValueError, TypeError, IndexError) as error:
        raise ArgumentError(f"[einsum] {equation!r} does not fit {len(operands)} operands: {error}") from None
    inputs = left.split(",")
    for labels, operand in zip(inputs, operands, strict=True):
        if len(labels) != len(operand.shape):
            raise ShapeError(f"[einsum] {labels!r} names {len(labels)} axes, {operand.shape} has others")
    return inputs, output


def _lettered(arguments: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """An equation, and its operands, of operands that each have a list of their axes behind them.

    Raises:
        ArgumentError: an axis is no int from 0 to 51.
    """
    operands = arguments[: len(arguments) // 2 * 2 : 2]
    sublists = (*arguments[1::2], *arguments[len(operands) * 2 :])
    terms = []
    for sublist in sublists:
        axes = list(sublist) if isinstance(sublist, (tuple, list)) else [sublist]
        if not all(axis is ... or (isinstance(axis, int) and 0 <= axis < len(LETTERS)) for axis in axes):
            raise ArgumentError(f"[einsum] expected a list of ints from 0 to 51 or ..., got {sublist!r}")
        terms.append("".join("..." if axis is ... else LETTERS[axis] for axis in axes))
    equation = ",".join(terms[: len(operands)])
    return equation + "".join(f"->{term}" for term in terms[len(operands) :]), operands


def _diagonals(tensor: Any, labels: str) -> Labelled:
    """The tensor with one axis, the last one, for each letter that it had several times.

    Raises:
        ShapeError: axes with the same letter differ in size.
    """
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first, second = labels.index(label), labels.rindex(label)
            if tensor.shape[first] != tensor.shape[second]:
                raise ShapeError(f"[einsum] {labels!r} takes a diagonal of axes that differ: {tensor.shape}")
            tensor = diagonal(tensor, 0, first, second)
            labels = labels[:first] + labels[first + 1 : second] + labels[second + 1 :] + label
    return tensor, labels


def _extents(inputs: Iterable[str], operands: Iterable[Any]) -> dict[str, int]:
    extents: dict[str, int] = {}
    for labels, operand in zip(inputs, operands, strict=True):
        for label, size in zip(labels, operand.shape, strict=True):
            if extents.setdefault(label, size) == 1:
                extents[label] = size
            if size not in (1, extents[label]):
                raise ShapeError(f"[einsum] axis {label!r} has sizes {extents[label]} and {size}")
    return extents


def _contraction_order(inputs: list[str], output: str, extents: dict[str, int]) -> list[tuple[int, int]]:
    """The cheapest order that opt_einsum finds: pairs of indices into the remaining operands."""
    if len(inputs) == 1:
        return []
    import opt_einsum

    shapes = [tuple(extents[label] for label in labels) for labels in inputs]
    path, _ = opt_einsum.contract_path(
        ",".join(inputs) + "->" + output, *shapes, shapes=True, optimize="auto", memory_limit=None
    )
    # "auto" takes two at a time, but the last step may be a single operand.
    return [(step[0], step[-1]) for step in path]


def _without_broadcast_axes(tensor: Any, labels: str, extents: dict[str, int]) -> Labelled:
    """The tensor without its axes of size 1."""
    kept = [i for i, label in enumerate(labels) if tensor.shape[i] == extents[label] != 1]
    if len(kept) == len(labels):
        return tensor, labels
    return reshape(tensor, *(tensor.shape[i] for i in kept)), "".join(labels[i] for i in kept)


def _sum_unneeded_axes(operand: Labelled, needed: set[str]) -> Labelled:
    """Sum over the axes that neither the result nor a remaining operand has."""
    tensor, labels = operand
    kept = "".join(label for label in labels if label in needed)
    if kept == labels:
        return operand
    shape = tuple(size if label in needed else 1 for label, size in zip(labels, tensor.shape, strict=True))
    total = sum_to(tensor, shape)
    return reshape(total, *(size for label, size in zip(labels, shape, strict=True) if label in needed)), kept


def _contract(a: Labelled, b: Labelled, needed: set[str], extents: dict[str, int]) -> Labelled:
    """Multiply two tensors as a batch of matrices, after summing the axes that only one of them has."""
    (left, left_labels) = _sum_unneeded_axes(a, needed | set(b[1]))
    (right, right_labels) = _sum_unneeded_axes(b, needed | set(a[1]))
    shared = [label for label in left_labels if label in right_labels]
    batch = [label for label in shared if label in needed]
    inner = [label for label in shared if label not in needed]
    rows = [label for label in left_labels if label not in right_labels]
    columns = [label for label in right_labels if label not in left_labels]
    sizes = [math.prod(extents[label] for label in part) for part in (batch, rows, inner, columns)]
    count, m, k, n = sizes
    shape = tuple(extents[label] for label in (*batch, *rows, *columns))
    if not inner:
        first = _arrange(left, left_labels, (*batch, *rows), (count, m, 1))
        result = mul(first, _arrange(right, right_labels, (*batch, *columns), (count, 1, n)))
    else:
        first = _arrange(left, left_labels, (*batch, *rows, *inner), (count, m, k) if batch else (m, k))
        second = _arrange(right, right_labels, (*batch, *inner, *columns), (count, k, n) if batch else (k, n))
        result = matmul(first, second)
    return reshape(result, *shape), "".join((*batch, *rows, *columns))


def _arrange(tensor: Any, labels: str, order: Iterable[str], shape: Shape) -> Any:
    """Permute the axes into the given order, and reshape."""
    permuted = permute(tensor, *(labels.index(label) for label in order))
    return permuted if permuted.shape == shape else reshape(permuted, *shape)
