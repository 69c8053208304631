"""The declarations of operators: names, the range of opsets, and the function that computes them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

Compute = Callable[..., Any]
"""Takes a :class:`~dl4all.onnx.call.Call` and the inputs; returns one result or a tuple of them."""


class Operator(NamedTuple):
    """An operator as it is in a range of opsets."""

    compute: Compute
    since: int
    until: int | None  # the last opset; None if it still holds
    on_host: Compute | None  # for inputs that are all on the host; takes and returns NumPy's arrays
    reads: tuple[int, ...]  # positions of inputs whose numbers are needed on the host


OPERATORS: defaultdict[tuple[str, str], list[Operator]] = defaultdict(list)
"""By domain and name; :mod:`dl4all.onnx.operators` fills it."""

SAME = object()
"""In the place of `on_host`: the function itself takes tensors and arrays."""


def operator(
    *names: str,
    since: int = 1,
    until: int | None = None,
    domain: str = "",
    on_host: Any = None,
    reads: tuple[int, ...] = (),
) -> Callable[[Compute], Compute]:
    """Declare a function as what computes the operators of these names from one opset to another."""

    def declare(compute: Compute) -> Compute:
        host = compute if on_host is SAME else on_host
        for name in names:
            declaration = Operator(compute, since, until, host, reads)
            OPERATORS[domain, name].append(declaration)
        return compute

    return declare


def find(domain: str, name: str, opset: int) -> Operator | None:
    """The declaration that holds in an opset."""
    for declaration in OPERATORS.get((domain, name), ()):
        if declaration.since <= opset and (declaration.until is None or opset <= declaration.until):
            return declaration
    return None
