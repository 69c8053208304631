"""The reference of the site has every public name once, each with a text and an example that runs."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from tests.test_public_api import public
from tools.docs_site.documentation import documentation, has_example
from tools.docs_site.names import Name, pages

NAMES = [name for page in pages() for name in page.names]


def test_every_public_name_is_on_one_page() -> None:
    expected = [
        name
        for name, thing in public()
        if not name.startswith("dl4all.ops.") and not isinstance(thing, ModuleType)
    ]
    found = [name.full for name in NAMES]
    assert len(found) == len(set(found))
    assert set(expected) <= set(found)


def test_pages_have_files_of_their_own() -> None:
    files = [page.file for page in pages()]
    assert len(files) == len(set(files))


def test_every_name_has_a_text() -> None:
    assert [name.full for name in NAMES if not documentation(name)] == []


def test_every_name_has_an_example() -> None:
    assert [name.full for name in NAMES if not has_example(name)] == []


GENERATED = [name for name in NAMES if not callable(name.thing) and ">>>" in documentation(name)]
"""Constants: no docstring has their examples."""


@pytest.mark.parametrize("name", GENERATED, ids=lambda name: name.full)
def test_examples_of_constants_run(name: Name) -> None:
    text = doctest.DocTestParser().get_doctest(documentation(name), {}, name.full, None, None)
    output: list[str] = []
    assert doctest.DocTestRunner().run(text, out=output.append).failed == 0, "".join(output)
