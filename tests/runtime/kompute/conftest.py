"""A device of its own for each test, and the conformance suite's kernels on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dl4all.runtime.kompute.backend import KomputeBackend
from dl4all.testing.conformance.support.kernels import Kernels, write_shaders
from tests.conftest import need


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shaders folder."""
    made = tmp_path_factory.mktemp("shaders")
    write_shaders(made)
    return made


@pytest.fixture
def backend() -> Iterator[KomputeBackend]:
    """The first device."""
    need("kompute:0")
    opened = KomputeBackend(0)
    yield opened
    opened.close()


@pytest.fixture
def kernels(backend: KomputeBackend, folder: Path) -> Kernels:
    """Programs on it."""
    return Kernels(backend, folder)
