"""The backends that the suite runs on, and what a test may ask of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dl4all.errors import Dl4allError
from dl4all.runtime.protocols import Backend
from dl4all.testing.conformance.harness import Bench, Open
from dl4all.testing.conformance.support.kernels import Kernels, write_shaders
from dl4all.testing.conformance.targets import Way, ways_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test in each way."""
    if "way" in metafunc.fixturenames:
        cases = [pytest.param(way, id=way.name, marks=way.marks) for way in ways_of(metafunc.config)]
        metafunc.parametrize("way", cases, indirect=True, scope="session")


@pytest.fixture(scope="session")
def way(request: pytest.FixtureRequest) -> Way:
    """The way in which the backend is opened, each in turn."""
    chosen: Way = request.param
    return chosen


@pytest.fixture(scope="session")
def shaders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shaders folder with the suite's kernels."""
    folder = tmp_path_factory.mktemp("shaders")
    write_shaders(folder)
    return folder


def opened(way: Way) -> Backend:
    """The backend; one that cannot be opened ends the run, since every test would say the same."""
    try:
        return way.open()
    except Dl4allError as error:
        return pytest.exit(f"{way.name}: {error}", returncode=pytest.ExitCode.USAGE_ERROR)


@pytest.fixture(scope="session")
def backend(way: Way) -> Iterator[Backend]:
    """A device, open as long as the tests run."""
    backend = opened(way)
    yield backend
    backend.close()


@pytest.fixture(scope="session")
def kernels(backend: Backend, shaders: Path) -> Kernels:
    """The suite's kernels on that device."""
    return Kernels(backend, shaders)


@pytest.fixture
def bench(backend: Backend, kernels: Kernels) -> Iterator[Bench]:
    """That device, and what the test makes on it."""
    bench = Bench(backend, kernels)
    yield bench
    bench.clear()


@pytest.fixture
def another(way: Way, shaders: Path) -> Iterator[Open]:
    """Opens the device once more, for tests that close it or want several."""
    made: list[Backend] = []

    def open_another() -> Bench:
        backend = opened(way)
        made.append(backend)
        return Bench(backend, Kernels(backend, shaders))

    yield open_another
    for backend in made:
        backend.close()


# What a test needs


@pytest.fixture
def programs(backend: Backend, way: Way) -> None:
    """Skip where no programs run."""
    if not backend.capabilities.programs:
        pytest.skip(f"{way.name} runs no programs")


@pytest.fixture
def data(backend: Backend, way: Way) -> None:
    """Skip where nothing is kept."""
    if not backend.capabilities.data:
        pytest.skip(f"{way.name} keeps no data")


@pytest.fixture
def offsets(programs: None, backend: Backend, way: Way) -> None:
    """Skip where dispatches bind whole buffers only."""
    if not backend.capabilities.offset_alignment:
        pytest.skip(f"{way.name} binds whole buffers only")
