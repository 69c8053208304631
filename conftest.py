"""What holds for all tests of this repository: those in tests/ and the conformance suite that it ships."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dl4all.testing.conformance.targets import WAYS


def pytest_configure(config: pytest.Config) -> None:
    """Run the suite on the project's own backends in bounded memory, under the validation layers if asked.

    Not where somebody else's run meets this file, because dl4all is installed from this folder: there,
    ``tests`` would be theirs.
    """
    if config.rootpath != Path(__file__).parent:
        return
    from tests.conformance.targets import OWN
    from tests.support import folder_shares, left_on, process_memory, selection, validation

    config.pluginmanager.register(validation, "validation")
    config.pluginmanager.register(process_memory, "process memory")
    config.pluginmanager.register(selection, "selection")
    config.pluginmanager.register(left_on, "left on")
    config.pluginmanager.register(folder_shares, "folder shares")
    config.stash[WAYS] = OWN


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Run the examples that ``--doctest-modules`` collects in a folder for the files that they write."""
    if not isinstance(item, pytest.DoctestItem):
        yield
        return
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
