"""Parametrization within one test, for cases so short that pytest's own time per test would dominate."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Test = Callable[..., None]


def each(names: str, values: Iterable[Any]) -> Callable[[Test], Test]:
    """Like ``pytest.mark.parametrize``, but within one test; a failure names the values.

    The test counts as skipped if it is skipped for all values.
    """
    fields = [name.strip() for name in names.split(",")]
    cases = [dict(zip(fields, value if len(fields) > 1 else (value,), strict=True)) for value in values]

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            skipped: list[BaseException] = []
            for case in cases:
                try:
                    test(*args, **kwargs, **case)
                except pytest.skip.Exception as reason:
                    skipped.append(reason)
                except Exception as error:
                    raise AssertionError(f"with {case}: {type(error).__name__}: {error}") from error
            if skipped and len(skipped) == len(cases):
                raise skipped[0]

        signature = inspect.signature(test)
        parameters = [parameter for name, parameter in signature.parameters.items() if name not in fields]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return run

    return decorate
