"""Names of devices, and which one ``auto`` is."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from dl4all.errors import BackendMissingError, ConfigError, DeviceError, UnknownDeviceError
from dl4all.runtime import measurements, registry
from dl4all.runtime.cpu.backend import CpuBackend, describe
from dl4all.runtime.info import DeviceInfo, DeviceType
from dl4all.runtime.kompute import backend as kompute_backend
from dl4all.runtime.plugins import BUILT_IN
from dl4all.runtime.registry import Found, auto, devices, find, open_device, resolve
from dl4all.runtime.vulkan import backend as vulkan_backend

CPU = describe()
PROBLEM = "[vulkan] no driver; install one"


def vulkan_device(index: int, kind: DeviceType, *backends: str) -> DeviceInfo:
    """A Vulkan device that is not there."""
    return dataclasses.replace(
        CPU, index=index, type=kind, hardware=f"{kind} {index}", backends=backends or ("vulkan", "kompute")
    )


@pytest.fixture(autouse=True)
def no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, in which a test may write a dl4all.toml."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("DL4ALL_DEVICE", raising=False)
    return tmp_path / "dl4all.toml"


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the machine have these devices and the CPU, none of them measured."""
    monkeypatch.setattr(measurements, "lookup", lambda *_: None)

    def has(*found: DeviceInfo, problem: str = "") -> None:
        problems = {"vulkan": problem, "kompute": problem} if problem else {}
        monkeypatch.setattr(registry, "find", lambda: Found((*found, CPU), problems))

    return has


def test_every_form_of_a_name(pretend: Any) -> None:
    pretend(vulkan_device(0, "software"), vulkan_device(2, "discrete"))
    assert resolve("cpu") == "cpu"
    assert resolve("cpu:0") == "cpu"
    assert resolve("vulkan") == "vulkan:0"
    assert resolve("kompute") == "kompute:0"
    assert resolve("vulkan:2") == "vulkan:2"
    assert resolve("kompute:2") == "kompute:2"
    assert resolve("vulkan:002") == "vulkan:2"
    assert resolve("gpu") == "vulkan:2"
    assert resolve("auto") == "vulkan:2"


@pytest.mark.parametrize(
    "name",
    ["", "cuda", "cuda:0", "vulkan:", "vulkan:x", "vulkan:-1", "vulkan:²", "vulkan:0:0", " cpu", "CPU", ":0"],
)
def test_a_name_of_no_known_form(pretend: Any, name: str) -> None:
    pretend(vulkan_device(0, "discrete"))
    with pytest.raises(UnknownDeviceError) as caught:
        resolve(name)
    assert str(caught.value) == (
        f"unknown device {name!r}; use auto, gpu, or one of: vulkan:0, kompute:0, cpu"
    )


@pytest.mark.parametrize("name", ["vulkan:1", "kompute:1", "cpu:1"])
def test_a_device_that_is_not_here(pretend: Any, name: str) -> None:
    pretend(vulkan_device(0, "discrete"))
    with pytest.raises(UnknownDeviceError) as caught:
        resolve(name)
    assert str(caught.value) == f"no device {name!r} here; use auto or one of: vulkan:0, kompute:0, cpu"


@pytest.mark.parametrize("found", [[], [vulkan_device(0, "software")]])
def test_gpu_where_there_is_none(pretend: Any, found: list[DeviceInfo]) -> None:
    pretend(*found)
    with pytest.raises(UnknownDeviceError, match=r"^no GPU was found; use one of: .*cpu$"):
        resolve("gpu")


@pytest.mark.parametrize("name", ["vulkan", "vulkan:0", "kompute:0"])
def test_without_vulkan_the_message_is_the_remedy(pretend: Any, name: str) -> None:
    pretend(problem=PROBLEM)
    with pytest.raises(BackendMissingError) as caught:
        resolve(name)
    assert str(caught.value) == PROBLEM
    assert resolve("auto") == "cpu"


@pytest.mark.parametrize(
    ("types", "taken"),
    [
        (["integrated", "discrete"], "vulkan:1"),
        (["discrete", "integrated"], "vulkan:0"),
        (["virtual", "integrated"], "vulkan:1"),
        (["other", "virtual"], "vulkan:1"),
        (["other"], "vulkan:0"),
        (["software", "other"], "vulkan:1"),
        (["software"], "cpu"),
        ([], "cpu"),
        (["discrete", "discrete"], "vulkan:0"),
    ],
)
def test_the_preferred_device(pretend: Any, types: list[DeviceType], taken: str) -> None:
    pretend(*(vulkan_device(i, kind) for i, kind in enumerate(types)))
    choice = auto()
    assert choice.name == taken
    if taken != "cpu":
        assert choice.reason == f"the {types[int(taken[-1])]} GPU is preferred to the CPU"
        assert resolve("gpu") == taken
    else:
        assert choice.reason.startswith("no GPU was found")
        assert ("software" in choice.reason) == ("software" in types)


def test_a_backend_of_ones_own_is_named_by_the_device(pretend: Any) -> None:
    pretend(vulkan_device(0, "discrete", "kompute"))
    assert auto().name == "kompute:0"
    with pytest.raises(UnknownDeviceError):
        resolve("vulkan:0")


@pytest.mark.parametrize("way", ["environment", "file"])
def test_a_setting_decides(
    pretend: Any, no_settings: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    pretend(vulkan_device(0, "discrete"))

    def say(name: str) -> str:
        if way == "file":
            no_settings.write_text(f'device = "{name}"\n')
            return str(no_settings)
        monkeypatch.setenv("DL4ALL_DEVICE", name)
        return "DL4ALL_DEVICE"

    source = say("cpu")
    assert auto() == ("cpu", f"{source} says so")
    assert resolve("auto") == "cpu"
    assert resolve("vulkan:0") == "vulkan:0"  # what the program names is not touched
    say("gpu")
    assert auto().name == "vulkan:0"
    say("auto")
    assert auto() == ("vulkan:0", "the discrete GPU is preferred to the CPU")
    for name in ("vulkan:7", "cuda"):
        say(name)
        with pytest.raises(ConfigError, match=f"device '{name}'") as caught:
            auto()
        assert str(caught.value).startswith(f"{source}: ")


def test_a_setting_that_needs_what_is_missing(pretend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(problem=PROBLEM)
    monkeypatch.setenv("DL4ALL_DEVICE", "gpu")
    with pytest.raises(ConfigError, match=r"^DL4ALL_DEVICE: no GPU was found"):
        auto()
    monkeypatch.setenv("DL4ALL_DEVICE", "vulkan:0")
    with pytest.raises(ConfigError, match=r"^DL4ALL_DEVICE: \[vulkan\] no driver; install one$"):
        auto()


def test_the_cpu_is_always_there() -> None:
    assert devices()[-1].names == ("cpu",)
    assert resolve("cpu") == "cpu"
    assert find() is find()


@pytest.mark.parametrize("error", [BackendMissingError, DeviceError])
def test_a_broken_driver_leaves_the_cpu(monkeypatch: pytest.MonkeyPatch, error: type[DeviceError]) -> None:
    def broken() -> None:
        raise error("[vulkan] vkCreateInstance failed: VK_ERROR_INITIALIZATION_FAILED")

    monkeypatch.setattr(vulkan_backend, "physical_devices", broken)
    found = find.__wrapped__()
    assert [device.type for device in found.devices] == ["cpu"]
    assert found.vulkan_problem == "[vulkan] vkCreateInstance failed: VK_ERROR_INITIALIZATION_FAILED"


def test_devices_offer_kompute_only_where_kp_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise BackendMissingError("[kompute] cannot import kp")

    for there, names in ((True, ("vulkan:0", "kompute:0")), (False, ("vulkan:0",))):
        physical = type("Physical", (), {"info": vulkan_device(0, "discrete", "vulkan")})
        monkeypatch.setattr(vulkan_backend, "physical_devices", lambda physical=physical: [physical])
        monkeypatch.setattr(kompute_backend, "installed", lambda there=there: there)
        monkeypatch.setattr(kompute_backend, "kp", missing)
        assert find.__wrapped__().devices[0].names == names


def test_a_device_is_opened_once_until_all_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[CpuBackend] = []
    monkeypatch.setattr(CpuBackend, "close", lambda self: closed.append(self))
    monkeypatch.setattr(registry, "_opened", {})
    first = open_device("cpu")
    assert open_device("cpu:0") is first
    registry.close_all()
    assert closed == [first]
    registry.close_all()
    assert closed == [first]
    assert open_device("cpu") is not first


def test_every_backend_has_its_folder() -> None:
    folders = {path.parent.name for path in Path(registry.__file__).parent.glob("*/backend.py")}
    assert {entry.name for entry in BUILT_IN} == folders
