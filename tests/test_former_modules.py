"""Modules can be imported under the names that they had before."""

from __future__ import annotations

from importlib import import_module

import pytest

from dl4all.former_modules import FORMER


@pytest.mark.parametrize("name", FORMER)
def test_it_is_the_module(name: str) -> None:
    module = import_module(FORMER[name])
    assert import_module(name) is module
    assert module.__name__ == FORMER[name]
    assert module.__spec__ is not None
    assert module.__spec__.name == FORMER[name]


def test_names_that_were_never_there() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'dl4all\.graph\.compilde'"):
        import_module("dl4all.graph.compilde")
