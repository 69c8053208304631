"""Machines that lack something: each in a process of its own, since what is found is kept."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dl4all.runtime import registry
from dl4all.runtime.device_info import Limits
from dl4all.runtime.vulkan import features
from tests.conftest import need
from tests.conftest import run_python as run_preloaded

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


def run_python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """In a process that has imported nothing: these tests take modules away."""
    return run_preloaded(code, (), **env)


FOLDERS = ("/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/usr/share/vulkan/icd.d")
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


def manifest(folder: Path, name: str, library: str) -> str:
    """A driver's manifest, as the loader reads it."""
    file = folder / f"{name}.json"
    driver = {"api_version": "1.3.0", "library_path": library}
    file.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": driver}))
    return str(file)


@pytest.mark.vulkan
@pytest.mark.parametrize("broken", ["no library", "no driver", "garbage", "empty"])
def test_a_broken_driver_leaves_the_cpu(broken: str, tmp_path: Path) -> None:
    """Whatever the loader prints about it."""
    need("vulkan:0")
    libraries = {"no library": "libnot_here_vulkan.so", "no driver": "libm.so.6"}
    if broken in libraries:
        file = manifest(tmp_path, "broken", libraries[broken])
    else:
        file = str(tmp_path / "broken.json")
        Path(file).write_text("{nonsense" if broken == "garbage" else "")
    found = report(VK_DRIVER_FILES=file, VK_ICD_FILENAMES=file)
    assert found["names"] == ["cpu"]
    assert found["auto"] == "cpu"
    assert found["sum"] == [2.0, 3.0]
    assert found["vulkan"][0] == "BackendMissingError"
    assert found["vulkan"][1].startswith("[vulkan] ")


@pytest.mark.vulkan
def test_a_broken_driver_leaves_the_others(tmp_path: Path) -> None:
    need("vulkan:0")
    broken = manifest(tmp_path, "broken", "libnot_here_vulkan.so")
    usual = report()
    own = os.environ.get("VK_DRIVER_FILES") or os.environ.get("VK_ICD_FILENAMES")
    files = own.split(os.pathsep) if own else [str(f) for d in FOLDERS for f in Path(d).glob("*.json")]
    listed = os.pathsep.join([broken, *files])
    assert report(VK_DRIVER_FILES=listed, VK_ICD_FILENAMES=listed) == usual


NO_DEVICES = """
from dl4all.runtime.vulkan import discovery, instance
real = instance.api()
class Lib:
    def __getattr__(self, name):
        return getattr(real.lib, name)
    def vkEnumeratePhysicalDevices(self, instance, count, into):
        count[0] = 0
        return RESULT
class Api:
    lib = Lib()
    def __getattr__(self, name):
        return getattr(real, name)
discovery.api = Api
"""


@pytest.mark.vulkan
@pytest.mark.parametrize("result", ["0", "real.VK_ERROR_INITIALIZATION_FAILED"])
def test_drivers_without_a_device_say_so(result: str) -> None:
    """Mesa brings all its drivers to every machine; loaders differ in what they say if none fits."""
    need("vulkan:0")
    found = report(NO_DEVICES.replace("RESULT", result))
    assert found["names"] == ["cpu"]
    error, message = found["vulkan"]
    assert error == "BackendMissingError"
    assert message.startswith("[vulkan] Vulkan drivers are installed, but none of them finds a device")
    assert "dl4all doctor" in message


@pytest.mark.vulkan
def test_every_fact_is_there() -> None:
    need("vulkan:0")
    info = registry.describe("vulkan:0")
    assert len(info.uuid) == 32
    assert info.driver_id
    assert info.driver_version
    assert info.memory == max(heap.nbytes for heap in info.heaps if heap.device_local)
    assert any("compute" in family.flags and family.count for family in info.queue_families)
    assert info.limits.storage_buffer_range >= Limits().storage_buffer_range
    known = {*features.CORE, *features.EXTENSIONS, "subgroup_shuffle", "subgroup_arithmetic"}
    assert info.features <= known.union(*(group.members for group in features.GROUPS))
    assert info.pci == "" or re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", info.pci)
    assert hash(info) == hash(dataclasses.replace(info))


# Every device answers with one PCI address.
SAME_ADDRESS = """
from dl4all.runtime.vulkan import discovery, instance, structs
real, made = instance.api(), {}
def struct(name, **fields):
    made[name] = structs.struct(name, **fields)
    return made[name]
class Lib:
    def __getattr__(self, name):
        return getattr(real.lib, name)
    def vkGetPhysicalDeviceProperties2(self, handle, properties):
        real.lib.vkGetPhysicalDeviceProperties2(handle, properties)
        pci = made["VkPhysicalDevicePCIBusInfoPropertiesEXT"]
        pci.pciDomain, pci.pciBus, pci.pciDevice, pci.pciFunction = 1, 0x41, 2, 3
class Api:
    lib = Lib()
    def __getattr__(self, name):
        return getattr(real, name)
discovery.api, discovery.struct = Api, struct
extensions = discovery._extensions
discovery._extensions = lambda handle: extensions(handle) | {"VK_EXT_pci_bus_info"}
"""


@pytest.mark.vulkan
def test_the_pci_address_is_the_drivers() -> None:
    need("vulkan:0")
    done = run_python(SAME_ADDRESS + "import dl4all as dl\nprint(dl.devices()[0].pci)")
    assert (done.returncode, done.stdout) == (0, "0001:41:02.3\n"), done.stderr


@pytest.mark.vulkan
def test_devices_are_enumerated_once() -> None:
    need("vulkan:0")
    done = run_python(
        "import dl4all as dl\n"
        "from dl4all.runtime.vulkan import discovery, instance\n"
        "calls = []\n"
        "real = discovery._describe\n"
        "discovery._describe = lambda *a: calls.append(a[1]) or real(*a)\n"
        "for _ in range(3):\n"
        "    dl.devices(); dl.device('vulkan:0'); dl.device('auto')\n"
        "assert len(calls) == len(set(calls)), calls\n"
        "print(len(calls))\n"
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 1


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
    assert "pip install kp==0.9.0" in message


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
        "def slow(opening):\n"
        "    made.append(opening); time.sleep(0.05); return real(opening)\n"
        "discovery.instance = slow\n"
        "threads = [threading.Thread(target=discovery.physical_devices) for _ in range(8)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "assert made == [0], made\n"
    )
    assert done.returncode == 0, done.stderr
