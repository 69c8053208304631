"""Backends that other packages bring, as distributions in a folder on the path; some of them are broken."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import dl4all as dl
from dl4all.errors import BackendMissingError, UnknownDeviceError
from dl4all.runtime import plugins, registry
from dl4all.runtime.plugins import BUILT_IN, DeviceSource
from dl4all.runtime.records import measurements
from tests.conftest import REPOSITORY, run_python

GOOD = """
import dataclasses
from dl4all.runtime.null.backend import NullBackend, describe

def find():
    return [dataclasses.replace(describe(), index=i, type="discrete", hardware=f"board {i}") for i in (0, 3)]

def open(index):
    return NullBackend(find()[(0, 3).index(index)])
"""
OBJECT = f"import types\nparts = {{}}\nexec({GOOD!r}, parts)\nbackend = types.SimpleNamespace(**parts)\n"
TAIL = "\ndef open(index):\n    raise AssertionError\n"
DESCRIBED = "from dl4all.runtime.null.backend import describe\nimport dataclasses\n"
MISSING = (
    "from dl4all.errors import BackendMissingError\ndef find():\n"
    "    raise BackendMissingError('[mine] no board is plugged in; plug one in')\n" + TAIL
)

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a distribution with one backend on the path; nothing is left of it afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("DL4ALL_DEVICE", raising=False)
    modules = set(sys.modules)

    def add(name: str, source: str, distribution: str = "Fake-Board", value: str = "") -> None:
        write_distribution(tmp_path, name, source, distribution, value)
        plugins.load.cache_clear()
        registry.find.cache_clear()

    yield add
    plugins.load.cache_clear()
    registry.find.cache_clear()
    for module in set(sys.modules) - modules:
        if module.startswith("plugin_"):
            del sys.modules[module]


def write_distribution(folder: Path, name: str, source: str, distribution: str, value: str = "") -> None:
    """What pip leaves of a package that was installed."""
    module = f"plugin_{distribution}".replace("-", "_").lower()
    folder.mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[dl4all.backends]\n{name} = {module}{value}\n")


def listed() -> list[str]:
    return [name for info in dl.devices() for name in info.names]


@pytest.fixture
def usual() -> list[str]:
    """The names on this machine without any plug-in."""
    return listed()


@pytest.mark.parametrize("entry", BUILT_IN, ids=lambda entry: entry.name)
def test_dl4alls_own_backends_come_the_same_way(entry: EntryPoint) -> None:
    source: DeviceSource = import_module(entry.value)
    assert plugins.load().sources[entry.name] is source
    assert not plugins.load().refused


@pytest.mark.parametrize(("source", "value"), [(GOOD, ""), (OBJECT, ":backend")], ids=["module", "object"])
def test_a_backend_of_another_package(source: str, value: str, install: Install, usual: list[str]) -> None:
    install("mine", source, value=value)
    assert listed() == [*usual[:-1], "mine:0", "mine:3", "cpu"]
    assert registry.resolve("mine") == "mine:0"
    assert registry.resolve("mine:3") == "mine:3"
    with pytest.raises(UnknownDeviceError, match=r"^no device 'mine:1' here; .*mine:0, mine:3, cpu$"):
        registry.resolve("mine:1")
    backend = registry.open_device("mine:3")
    try:
        assert backend.info.hardware == "board 3"
        place = dl.Device.of_backend("mine:3", backend)
        assert (dl.tensor([1.0, 2.0], device=place) + 1.0).tolist() == [0.0, 0.0]
    finally:
        registry._opened.pop("mine:3").close()


def test_its_gpu_counts_as_one(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurements, "lookup", lambda *_: None)
    if any(info.type == "discrete" for info in dl.devices()):
        pytest.skip("this machine has a discrete GPU, which comes first")
    install("mine", GOOD)
    assert registry.auto() == ("mine:0", "the discrete GPU is preferred to the CPU")
    assert registry.resolve("gpu") == "mine:0"


def test_the_same_device_of_two_backends_is_one(install: Install) -> None:
    install("mine", GOOD)
    install("other", GOOD, distribution="Other")
    assert [info.names for info in dl.devices()][-3:-1] == [("mine:0", "other:0"), ("mine:3", "other:3")]


BROKEN = [
    ("raise ImportError('no module named board')", "", r"left out: ImportError: no module named board$"),
    ("1 / 0", "", r"left out: ZeroDivisionError: division by zero$"),
    (
        "def find(): return []",
        "",
        r"left out: TypeError: plugin_fake_board of Fake-Board has no function open",
    ),
    (
        "find = 3" + TAIL,
        "",
        r"left out: TypeError: plugin_fake_board of Fake-Board has no function find\(\)$",
    ),
    ("", ":absent", r"left out: AttributeError: .*absent"),
    ("def find(): return ['board']" + TAIL, "", r"failed: TypeError: find\(\) gave 'board', which is no Dev"),
    ("def find(): return None" + TAIL, "", r"looking for devices failed: TypeError: .*not iterable$"),
    ("def find(): 1 / 0" + TAIL, "", r"looking for devices failed: ZeroDivisionError: division by zero$"),
    (
        DESCRIBED + "def find(): return [describe()] * 2" + TAIL,
        "",
        r"ValueError: .* two devices of one index$",
    ),
    (
        DESCRIBED + "def find(): return [dataclasses.replace(describe(), type='cpu')]" + TAIL,
        "",
        r"ValueError: find\(\) gave a device of type 'cpu', which only the CPU is",
    ),
]


@pytest.mark.parametrize(("source", "value", "message"), BROKEN)
def test_a_broken_one_is_logged_once_and_takes_nothing_away(
    source: str,
    value: str,
    message: str,
    install: Install,
    usual: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    install("mine", source, value=value)
    with caplog.at_level(logging.WARNING, logger="dl4all"):
        assert listed() == usual
        for name in ("mine", "mine:0", "mine"):
            with pytest.raises(BackendMissingError, match=message) as caught:
                registry.resolve(name)
    assert [(r.name, r.getMessage()) for r in caplog.records] == [("dl4all", str(caught.value))]
    assert str(caught.value).startswith("[mine] ")
    assert registry.resolve("cpu") == "cpu"


def test_one_that_misses_its_hardware_says_so_when_asked(
    install: Install, usual: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    install("mine", MISSING)
    assert listed() == usual
    with pytest.raises(BackendMissingError, match=r"^\[mine\] no board is plugged in; plug one in$"):
        registry.resolve("mine")
    assert not caplog.records  # most machines do not have it


def test_two_packages_with_one_name_are_both_refused(
    install: Install, usual: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    install("mine", GOOD)
    install("mine", GOOD, distribution="Other")
    assert listed() == usual
    with pytest.raises(BackendMissingError) as caught:
        registry.resolve("mine")
    for part in ("plugin_fake_board of Fake-Board", "plugin_other of Other", "uninstall all but one"):
        assert part in str(caught.value)
    assert [record.levelname for record in caplog.records] == ["ERROR"]


@pytest.mark.parametrize("name", [entry.name for entry in BUILT_IN])
def test_dl4alls_own_names_are_its_own(
    name: str, install: Install, usual: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    install(name, "raise AssertionError('never imported')")
    assert listed() == usual
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", f"[{name}] is dl4all's own name; left out: plugin_fake_board of Fake-Board")
    ]
    assert plugins.load().sources[name] is import_module(f"dl4all.runtime.{name}.backend")


@pytest.mark.parametrize("name", ["auto", "gpu", "Mine", "mine.0", "0mine", "my-ne"])
def test_names_that_could_not_be_asked_for(name: str, install: Install, usual: list[str]) -> None:
    install(name, GOOD)
    assert listed() == usual
    assert list(plugins.load().refused) == [name]
    assert "needs another name: small letters, digits and underscores" in plugins.load().refused[name]


def test_in_a_process_of_its_own(tmp_path: Path) -> None:
    """Without a word about it, a computation goes to the device; the log shows where nobody set it up."""
    write_distribution(tmp_path, "mine", GOOD, "Good")
    write_distribution(tmp_path, "bad", "1 / 0", "Bad")
    code = "import dl4all as dl\nprint(dl.tensor([1.0, 2.0], device='mine:3').relu().device)"
    done = run_python(code, PYTHONPATH=f"{REPOSITORY}:{tmp_path}")
    assert (done.returncode, done.stdout) == (0, "mine:3\n"), done.stderr
    assert done.stderr == "[bad] the backend is left out: ZeroDivisionError: division by zero\n"


# Proving one

TOY = """
import dataclasses
from dl4all.runtime.cpu.backend import CpuBackend, describe
from dl4all.runtime.cpu.stream import CpuStream

class Toy(CpuBackend):
    def __init__(self):
        super().__init__()
        self.info = dataclasses.replace(describe(), index=3, type="other", hardware="a toy")

def find():
    return [Toy().info]

def open(index):
    if index != 3:
        from dl4all.errors import UnknownDeviceError
        raise UnknownDeviceError(f"[mine] no board {index}; there is board 3")
    return Toy()
"""
# Forgets where the target of a copy begins.
WRONG = (
    TOY
    + """
from dl4all.runtime.protocols import Copy

class WrongStream(CpuStream):
    def copy(self, command):
        source, target = command
        super().copy(Copy(source, target._replace(offset=0)))

Toy.stream = property(lambda self: WrongStream(), lambda self, stream: None)
"""
)
SUITE = "dl4all.testing.conformance"


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest where nothing of this repository's own settings counts."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{folder}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (TOY, "mine:3"),
        pytest.param(GOOD, "mine", marks=pytest.mark.full),
        pytest.param(GOOD, "mine:3", marks=pytest.mark.full),
    ],
)
def test_the_conformance_suite_runs_on_it(source: str, name: str, tmp_path: Path) -> None:
    """With the documented command."""
    write_distribution(tmp_path, "mine", source, "Fake-Board")
    done = run_pytest(tmp_path, "--pyargs", SUITE, f"--backend={name}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.rpartition("\n")[0].rpartition("\n")[2].split()[0]) > 100  # passed
    assert "warning" not in done.stdout


def test_several_backends_at_once(tmp_path: Path) -> None:
    write_distribution(tmp_path, "mine", TOY, "Fake-Board")
    arguments = (f"{SUITE}.test_memory", "-vv", "--backend=mine:3", "--backend=null", "--backend=mine:3")
    done = run_pytest(tmp_path, "--pyargs", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = [line for line in done.stdout.splitlines() if " PASSED" in line]
    for name in ("mine:3", "null:0"):
        assert sum(f"test_spans_that_fit[{name}]" in line for line in passed) == 1


def test_a_wrong_one_fails(tmp_path: Path) -> None:
    write_distribution(tmp_path, "mine", WRONG, "Fake-Board")
    done = run_pytest(tmp_path, "--pyargs", f"{SUITE}.test_transfers", "--backend=mine:3")
    assert done.returncode == 1, done.stdout + done.stderr
    failed = [line.split("[")[0] for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert {line.rpartition("::")[2] for line in failed} == {
        "test_copies_between_buffers",
        "test_a_large_copy",
        "test_copies_within_a_buffer",
        "test_nothing_and_little",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say which backend to test: --backend=NAME, one of vulkan, kompute, cpu, null, mine"),
        (
            ["--backend=yours"],
            "--backend=yours: there is no such backend; there are vulkan, kompute, cpu",
        ),
        (["--backend=mine:x"], "--backend=mine:x: write NAME or NAME:INDEX"),
        (
            ["--backend=bad"],
            "--backend=bad: [bad] the backend is left out: ZeroDivisionError: division by zero",
        ),
        (["--backend=mine:4"], "mine:4: [mine] no board 4; there is board 3"),
    ],
)
@pytest.mark.sampled(2)
def test_what_cannot_be_tested_ends_the_run(arguments: list[str], message: str, tmp_path: Path) -> None:
    write_distribution(tmp_path, "mine", TOY, "Fake-Board")
    write_distribution(tmp_path, "bad", "1 / 0", "Bad")
    done = run_pytest(tmp_path, "--pyargs", SUITE, *arguments)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout + done.stderr
    assert message in done.stdout + done.stderr


def test_other_projects_keep_their_options(tmp_path: Path) -> None:
    """dl4all's plugin is loaded by every pytest of the environment, and others have a --backend too."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--backend', default='theirs')\n"
    )
    (folder / "test_it.py").write_text(
        "import sys\n\ndef test_it(pytestconfig):\n"
        "    assert pytestconfig.getoption('backend') == 'ours'\n"
        "    assert 'pytest_dl4all' in sys.modules and 'dl4all' not in sys.modules\n"
    )
    done = run_pytest(tmp_path, "--backend=ours")
    assert done.returncode == 0, done.stdout + done.stderr
