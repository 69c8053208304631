"""Machines that lack something: each in a process of its own, since what is found is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import need, run_python

REPORT = """
import json
import dl4all as dl
from dl4all.runtime import registry

def error(name):
    try:
        dl.device(name)
    except dl.Dl4allError as e:
        return [type(e).__name__, str(e)]

print(json.dumps({
    "names": [name for device in dl.devices() for name in device.names],
    "auto": registry.auto()[0],
    "sum": (dl.tensor([1.0, 2.0], device="cpu") + 1.0).tolist(),
    "vulkan": error("vulkan:0"), "kompute": error("kompute:0"), "gpu": error("gpu"),
}))
"""
# Fails as the package does where libvulkan.so.1 is missing.
NO_LOADER = """
import importlib.abc, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "vulkan":
            raise OSError("Cannot find Vulkan SDK version.")
sys.meta_path.insert(0, Missing())
"""
NO_PACKAGE = "import sys; sys.modules['vulkan'] = None\n"
NO_KP = "import sys; sys.modules['kp'] = None\n"
NO_ICD = {"VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent"}


def report(before: str = "", **env: str) -> Any:
    done = run_python(before + REPORT, **env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("before", "env", "cause", "remedy"),
    [
        ("", NO_ICD, "[vulkan] no Vulkan driver is installed", "apt install mesa-vulkan-drivers"),
        (NO_LOADER, {}, "[vulkan] the Vulkan loader (libvulkan.so.1) is missing", "apt install libvulkan1"),
        (NO_PACKAGE, {}, "[vulkan] the package is missing", "pip install vulkan"),
    ],
    ids=["no driver", "no loader", "no package"],
)
def test_without_vulkan_there_is_the_cpu(before: str, env: dict[str, str], cause: str, remedy: str) -> None:
    if env:
        need("vulkan:0")  # without a loader the message is another
    found = report(before, **env)
    assert found["names"] == ["cpu"]
    assert found["auto"] == "cpu"
    assert found["sum"] == [2.0, 3.0]
    assert found["gpu"] == ["UnknownDeviceError", "no GPU was found; use one of: cpu"]
    error, message = found["vulkan"]
    assert error == "BackendMissingError"
    assert message.startswith(cause)
    assert remedy in message
    assert found["kompute"][0] == "BackendMissingError"


@pytest.mark.vulkan
def test_without_kp_only_kompute_is_missing() -> None:
    need("vulkan:0")
    found = report(NO_KP)
    assert "vulkan:0" in found["names"]
    assert "kompute:0" not in found["names"]
    assert found["vulkan"] is None
    error, message = found["kompute"]
    assert error == "BackendMissingError"
    assert message.startswith("[kompute] cannot import kp (")
    assert "pip install 'dl4all[kompute]'" in message


@pytest.mark.vulkan
def test_opening_kompute_leaves_logging_alone() -> None:
    """Importing kp calls logging.basicConfig()."""
    need("kompute:0")
    done = run_python(
        "import logging\n"
        "own = logging.NullHandler(); root = logging.getLogger(); root.addHandler(own)\n"
        "level = root.level\n"
        "import dl4all as dl\n"
        "dl.tensor([1.0], device='kompute:0').tolist()\n"
        "import sys; assert 'kp' in sys.modules\n"
        "assert root.handlers == [own], root.handlers\n"
        "assert root.level == level\n"
        "root.removeHandler(own)\n"
        "logging.getLogger('somebody').info('quiet')\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.vulkan
def test_opening_kompute_leaves_an_empty_root_logger_empty() -> None:
    need("kompute:0")
    done = run_python(
        "import logging, dl4all as dl\n"
        "dl.tensor([1.0], device='kompute:0').tolist()\n"
        "assert logging.getLogger().handlers == []\n"
    )
    assert done.returncode == 0, done.stderr


def test_importing_opens_nothing() -> None:
    done = run_python(
        "import sys, dl4all\n"
        "from dl4all.runtime.vulkan import discovery, instance\n"
        "heavy = {'kp', 'torch', 'PIL', 'sklearn', 'vulkan', 'safetensors.torch'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert instance.api.cache_info().currsize == 0\n"
        "assert instance.instance.cache_info().currsize == 0\n"
        "assert 'libvulkan' not in open('/proc/self/maps').read()\n"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.vulkan
@pytest.mark.parametrize("names", [["vulkan:0"], ["kompute:0"], ["vulkan:0", "kompute:0", "cpu"]])
def test_a_process_ends_quietly_with_work_pending(names: list[str]) -> None:
    for name in names:
        need(name)
    done = run_python(
        "import dl4all as dl\n"
        f"kept = [dl.tensor([1.0] * 5000, device=name) for name in {names}]\n"
        "for _ in range(100):\n"
        "    kept = [dl.relu(x + 1.0) for x in kept]\n"
        "dl.kept = kept\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.vulkan
def test_threads_that_come_first_find_the_same_devices() -> None:
    need("vulkan:0")
    done = run_python(
        "import sys, threading\n"
        "from dl4all.runtime.vulkan import discovery, instance\n"
        "made = []\n"
        "real = instance.instance.__wrapped__\n"
        "import functools, time\n"
        "@functools.cache\n"
        "def slow():\n"
        "    made.append(1); time.sleep(0.05); return real()\n"
        "discovery.instance = slow\n"
        "threads = [threading.Thread(target=discovery.physical_devices) for _ in range(8)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "assert len(made) == 1, made\n"
    )
    assert done.returncode == 0, done.stderr
