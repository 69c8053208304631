"""Parametrization within one test, for cases so short that pytest's own time per test would dominate.

A full run (``DL4ALL_TEST_FULL=1``, which ``tools/test.sh --all`` sets) tests products: each example of an op
with each layout, say. The usual run deals the layouts out to the examples, so that each op still meets every
example, every layout and every device, but not every combination of them.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from dl4all.ops.core.op import REGISTRY, Example, Op

FULL = os.environ.get("DL4ALL_TEST_FULL", "0") == "1"
Test = Callable[..., None]


def each(names: str, values: Iterable[Any]) -> Callable[[Test], Test]:
    """Like ``pytest.mark.parametrize``, but within one test; a failure names the values.

    The test counts as skipped if it is skipped for all values.
    """
    fields = _fields(names)
    cases = [dict(zip(fields, value if len(fields) > 1 else (value,), strict=True)) for value in values]

    def decorate(test: Test) -> Test:
        def run(*args: Any, **kwargs: Any) -> None:
            _run_all(test, args, kwargs, cases)

        return _without(test, run, fields)

    return decorate


def each_example(
    names: str = "",
    values: Iterable[Any] = (),
    *,
    ops: Iterable[Op[...]] = REGISTRY.values(),
    fits: Callable[[Op[...], Example], bool] = lambda op, example: True,
    most: int | None = None,
    all_through_kompute: bool = False,
) -> Callable[[Test], Test]:
    """One test for each op (parameter ``op``), with each of its examples that fits (``case``) within it.

    Where ``names`` and ``values`` are given, also for these, by :func:`deal`. Where what is tested hardly
    depends on the example, the usual run takes ``most`` of them, from all over the list. Kompute runs the
    shaders of the vulkan backend, so that one example goes through it, in a full run all of them if
    ``all_through_kompute``.
    """
    fields, choices, ops = _fields(names), list(values) or [()], list(ops)
    examples = {op.name: [example for example in op.examples if fits(op, example)] for op in ops}
    chosen = [op for op in ops if examples[op.name]]
    assert chosen, "no op has an example that fits"

    def decorate(test: Test) -> Test:
        def run(*args: Any, op: Op[...], **kwargs: Any) -> None:
            kompute = str(kwargs.get("device", "")).startswith("kompute")
            own = examples[op.name] if FULL or most is None else spread(examples[op.name], most)
            few = kompute and not (FULL and all_through_kompute and "attention" not in op.name)
            pairs = deal(op.name, own[:1] if few else own, choices)
            cases = [
                {"case": example, **dict(zip(fields, value if len(fields) > 1 else (value,), strict=False))}
                for example, value in (pairs[:1] if kompute and not FULL else pairs)
            ]
            _run_all(test, args, {**kwargs, "op": op}, cases)

        return pytest.mark.parametrize("op", chosen, ids=lambda op: op.name)(
            _without(test, run, ["case", *fields])
        )

    return decorate


def is_usual(op: Op[...]) -> bool:
    """Whether an op is each fourth elementwise one, as their kernels differ by an expression, or another."""
    return FULL or not op.elementwise or zlib.crc32(op.name.encode()) % 4 == 0


def spread(values: Sequence[Any], most: int) -> Sequence[Any]:
    """That many of the values, at equal distances, the first one among them."""
    count = min(most, len(values))
    return [values[i * len(values) // count] for i in range(count)]


def some(values: Sequence[Any], most: int) -> Sequence[Any]:
    """As :func:`spread`; in a full run all of them."""
    return values if FULL else spread(values, most)


def deal(name: str, examples: Sequence[Any], values: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Pairs in which each example and each value occurs; in a full run, all pairs.

    ``name`` decides which value comes first, so that the first examples of different ops meet different ones.
    """
    if FULL:
        return list(itertools.product(examples, values))
    first = zlib.crc32(name.encode())
    count = max(len(examples), len(values))
    return [(examples[i % len(examples)], values[(first + i) % len(values)]) for i in range(count)]


def dealt(name: str, values: Sequence[Any], count: int) -> Sequence[Any]:
    """That many of the values, in a full run all; ``name`` decides which comes first, as in :func:`deal`."""
    first = zlib.crc32(name.encode())
    return values if FULL else [values[(first + i) % len(values)] for i in range(count)]


def _fields(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _run_all(test: Test, args: tuple[Any, ...], kwargs: dict[str, Any], cases: list[dict[str, Any]]) -> None:
    skipped: list[BaseException] = []
    for case in cases:
        try:
            test(*args, **kwargs, **case)
        except pytest.skip.Exception as reason:
            skipped.append(reason)
        except Exception as error:
            shown = ", ".join(f"{name}={value}" for name, value in case.items())
            raise AssertionError(f"with {shown}: {type(error).__name__}: {error}") from error
    if skipped and len(skipped) == len(cases):
        raise skipped[0]


def _without(test: Test, run: Test, fields: Sequence[str]) -> Test:
    """``run`` in the name of ``test``, which pytest need not give these parameters."""
    functools.update_wrapper(run, test)
    signature = inspect.signature(test)
    parameters = [parameter for name, parameter in signature.parameters.items() if name not in fields]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run
