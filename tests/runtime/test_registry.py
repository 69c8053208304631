"""Names of devices, and which one ``auto`` is."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from dl4all.errors import BackendMissingError, ConfigError, DeviceError, UnknownDeviceError
from dl4all.runtime import registry
from dl4all.runtime.cpu.backend import CpuBackend, describe
from dl4all.runtime.device_info import DeviceInfo, DeviceType
from dl4all.runtime.kompute import backend as kompute_backend
from dl4all.runtime.plugins import BUILT_IN
from dl4all.runtime.profiler import recorder
from dl4all.runtime.records import measurements
from dl4all.runtime.records.measurements import Measurement
from dl4all.runtime.registry import Found, auto, devices, find, open_device, resolve
from dl4all.runtime.vulkan import backend as vulkan_backend

CPU = describe()
PROBLEM = "[vulkan] no driver; install one"


def vulkan_device(index: int, kind: DeviceType, *backends: str) -> DeviceInfo:
    """A Vulkan device that is not there."""
    return dataclasses.replace(
        CPU,
        index=index,
        type=kind,
        hardware=f"{kind} {index}",
        uuid=f"{index + 1:032x}",
        backends=backends or ("vulkan", "kompute"),
    )


@pytest.fixture(autouse=True)
def no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, in which a test may write a dl4all.toml."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("DL4ALL_DEVICE", raising=False)
    monkeypatch.delenv("DL4ALL_CALIBRATE", raising=False)
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "dl4all.toml"


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """As a process that is new: which devices ``auto`` has measured in it. Measuring finds nothing."""
    names: list[str] = []
    monkeypatch.setattr(registry, "calibrator", names.append)
    for flag in ("_measured", "_begun"):
        monkeypatch.setattr(registry, flag, False)
    monkeypatch.setattr(registry, "_settled", None)
    return names


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the machine have these devices and the CPU, none of them measured."""

    def has(*found: DeviceInfo, problem: str = "") -> None:
        problems = {"vulkan": problem, "kompute": problem} if problem else {}
        machine = Found((*found, CPU), problems)
        monkeypatch.setattr(registry, "find", lambda: machine)

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


def test_gpu_where_the_only_one_is_wrong(pretend: Any) -> None:
    gpu = vulkan_device(0, "discrete", "vulkan")
    pretend(gpu)
    measurements.store("vulkan:0", gpu, Measurement(problem="off by 3"))
    with pytest.raises(
        UnknownDeviceError, match=r"^vulkan:0 is left out: off by 3; use one of: vulkan:0, cpu$"
    ):
        resolve("gpu")
    assert resolve("vulkan:0") == "vulkan:0"  # whoever names it gets it


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


@pytest.mark.parametrize(
    ("types", "setting", "expected"),
    [
        (["integrated", "discrete", "software"], "", ["vulkan:1", "vulkan:0"]),
        (["integrated", "discrete"], "vulkan:0", ["vulkan:0", "vulkan:1"]),
        (["discrete"], "kompute:0", ["kompute:0"]),  # the same card through another backend
        (["software"], "vulkan:0", ["vulkan:0"]),
        (["software", "discrete"], "cpu", []),
        (["software"], "", []),
    ],
)
def test_the_accelerators(
    pretend: Any, monkeypatch: pytest.MonkeyPatch, types: list[DeviceType], setting: str, expected: list[str]
) -> None:
    pretend(*(vulkan_device(i, kind, "vulkan", "kompute") for i, kind in enumerate(types)))
    monkeypatch.setenv("DL4ALL_DEVICE", setting)
    found = registry.accelerators()
    assert found == expected


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


def test_what_compiles_only_is_listed_and_never_meant(pretend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(dataclasses.replace(vulkan_device(0, "discrete"), memory=0), vulkan_device(1, "software"))
    assert [info.compiles_only for info in devices()] == [True, False, False]
    assert [info.names for info in registry.usable()] == [("vulkan:1", "kompute:1"), ("cpu",)]
    assert resolve("auto") == "cpu"
    with pytest.raises(
        UnknownDeviceError, match=r"^vulkan:0 is left out: it compiles only; use one of: vulkan:1"
    ):
        resolve("gpu")
    assert resolve("vulkan:0") == "vulkan:0"  # whose opening says why it fails
    monkeypatch.setenv("DL4ALL_DEVICE", "vulkan:0")
    with pytest.raises(ConfigError, match=r"^DL4ALL_DEVICE: vulkan:0 compiles only, .* one of: vulkan:1, "):
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


# One GPU, two drivers


@pytest.fixture
def two_drivers(pretend: Any) -> tuple[DeviceInfo, DeviceInfo]:
    """A machine with one card, through AMDVLK as device 0 and RADV as device 1."""
    amdvlk, radv = (
        dataclasses.replace(vulkan_device(index, "discrete"), driver=name, driver_id=name, pci="0000:03:00.0")
        for index, name in enumerate(("amd_open_source", "mesa_radv"))
    )
    pretend(amdvlk, radv)
    return amdvlk, radv


def test_one_gpu_of_two_drivers_is_one_device(two_drivers: tuple[DeviceInfo, DeviceInfo]) -> None:
    amdvlk, radv = two_drivers
    one, cpu = devices()
    assert one == dataclasses.replace(radv, others=(amdvlk,))
    assert cpu.names == ("cpu",)
    assert resolve("gpu") == "vulkan:1"
    assert resolve("auto") == "vulkan:1"


def test_both_drivers_can_be_named(two_drivers: tuple[DeviceInfo, DeviceInfo]) -> None:
    for info in two_drivers:
        for name in info.names:
            assert resolve(name) == name
            assert registry.describe(name) == info
    with pytest.raises(UnknownDeviceError, match="use auto or one of: vulkan:1, kompute:1, cpu"):
        resolve("vulkan:2")


def test_what_was_measured_moves_the_gpu_to_the_other_driver(
    two_drivers: tuple[DeviceInfo, DeviceInfo],
) -> None:
    for info, gflops in zip(two_drivers, (900.0, 700.0), strict=True):
        for name in info.names:
            measurements.store(name, info, Measurement(matmul_gflops=gflops))
    assert devices()[0].driver == "amd_open_source"
    assert resolve("gpu") == "kompute:0"


@pytest.mark.parametrize("copies", [1, 2])
def test_find_keeps_every_driver(monkeypatch: pytest.MonkeyPatch, copies: int) -> None:
    """Each with a name for each backend; two drivers that only differ by their index, too."""
    views = [
        dataclasses.replace(vulkan_device(index, "discrete", "vulkan"), pci="0000:03:00.0", hardware="one")
        for index in range(copies)
    ]
    physical = [type("Physical", (), {"info": view}) for view in views]
    monkeypatch.setattr(vulkan_backend, "physical_devices", lambda: physical)
    monkeypatch.setattr(kompute_backend, "installed", lambda: True)
    found = find.__wrapped__().devices
    assert [info.names for info in found[:-1]] == [(f"vulkan:{i}", f"kompute:{i}") for i in range(copies)]
    monkeypatch.setattr(registry, "find", find.__wrapped__)
    assert len(devices()) == 2
    assert len(devices()[0].drivers) == copies


# Measuring at first use


def test_auto_measures_once_what_it_chooses_from(pretend: Any, measured: list[str]) -> None:
    pretend(vulkan_device(0, "software"), vulkan_device(1, "integrated"))
    assert measured == []
    assert resolve("auto") == "vulkan:1"
    assert measured == ["vulkan:1", "kompute:1", "cpu"]
    for name in ("auto", "gpu"):
        resolve(name)
    assert len(measured) == 3


def test_gpu_measures_too(pretend: Any, measured: list[str]) -> None:
    pretend(vulkan_device(0, "discrete", "vulkan"))
    resolve("gpu")
    assert measured == ["vulkan:0", "cpu"]


@pytest.mark.parametrize("kinds", [[], ["software"], ["software", "software"]])
def test_without_a_gpu_nothing_is_measured(
    pretend: Any, measured: list[str], kinds: list[DeviceType], tmp_path: Path
) -> None:
    pretend(*(vulkan_device(i, kind) for i, kind in enumerate(kinds)))
    assert resolve("auto") == "cpu"
    assert measured == []
    assert not (tmp_path / "cache").exists()


def test_what_was_measured_earlier_is_not_measured_again(pretend: Any, measured: list[str]) -> None:
    gpu = vulkan_device(0, "discrete")
    pretend(gpu)
    measurements.store("vulkan:0", gpu, Measurement(matmul_gflops=3))
    measurements.store("cpu", CPU, Measurement(matmul_gflops=300))
    resolve("auto")
    assert measured == ["kompute:0"]


def test_what_is_measured_decides_at_once(pretend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(vulkan_device(0, "discrete", "vulkan"))
    gflops = {"vulkan:0": 3.0, "cpu": 300.0}
    monkeypatch.setattr(
        registry,
        "calibrator",
        lambda name: measurements.store(name, registry.describe(name), Measurement(gflops[name])),
    )
    assert resolve("auto") == "cpu"


@pytest.mark.parametrize(
    "way",
    ["DL4ALL_DEVICE", "DL4ALL_CALIBRATE", "file", "a name", "a profile", "a folder that cannot be written"],
)
def test_ways_not_to_measure(
    pretend: Any, measured: list[str], monkeypatch: pytest.MonkeyPatch, no_settings: Path, way: str
) -> None:
    pretend(vulkan_device(0, "discrete"))
    if way == "file":
        no_settings.write_text("calibrate = false\n")
    elif way == "DL4ALL_DEVICE":
        monkeypatch.setenv(way, "vulkan:0")
    elif way == "DL4ALL_CALIBRATE":
        monkeypatch.setenv(way, "0")
    elif way == "a profile":  # it would show the measuring
        monkeypatch.setattr(recorder, "active", recorder.Recorder())
    elif way == "a folder that cannot be written":  # every process would measure again
        no_settings.touch()
        monkeypatch.setenv("DL4ALL_CACHE_DIR", str(no_settings))
    assert resolve("vulkan:0" if way == "a name" else "auto") == "vulkan:0"
    assert measured == []


@pytest.mark.parametrize("error", [DeviceError("[vulkan] gone"), ValueError("odd"), MemoryError()])
def test_measuring_that_fails_breaks_nothing(
    pretend: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    pretend(vulkan_device(0, "discrete"))

    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr(registry, "calibrator", fail)
    assert resolve("auto") == "vulkan:0"
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    what = f"{type(error).__name__}: {error}"
    assert said == [f"{name} was not measured: {what}" for name in ("vulkan:0", "kompute:0", "cpu")]


def test_ctrl_c_while_measuring_is_ctrl_c(pretend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(vulkan_device(0, "discrete"))

    def interrupt(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(registry, "calibrator", interrupt)
    with pytest.raises(KeyboardInterrupt):
        resolve("auto")
    assert resolve("auto") == "vulkan:0"


def test_measuring_says_so_once(pretend: Any, caplog: pytest.LogCaptureFixture) -> None:
    pretend(vulkan_device(0, "discrete"))
    with caplog.at_level(logging.INFO, logger="dl4all"):
        resolve("auto")
        resolve("auto")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "measuring once, for later runs too: vulkan:0, kompute:0, cpu (DL4ALL_CALIBRATE=0: never)")
    ]


def test_measuring_may_itself_ask_for_auto(
    pretend: Any, measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(vulkan_device(0, "discrete", "vulkan"))

    def asks(name: str) -> None:
        measured.append(name)
        assert resolve("auto") == "vulkan:0"

    monkeypatch.setattr(registry, "calibrator", asks)
    assert resolve("auto") == "vulkan:0"
    assert measured == ["vulkan:0", "cpu"]


def test_threads_that_come_first_wait_and_agree(pretend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(vulkan_device(0, "discrete", "vulkan"))
    measured = []

    def slow(name: str) -> None:
        measured.append(name)
        time.sleep(0.05)
        measurements.store(name, registry.describe(name), Measurement(300.0 if name == "cpu" else 3.0))

    monkeypatch.setattr(registry, "calibrator", slow)
    results: list[str] = []
    threads = [threading.Thread(target=lambda: results.append(resolve("auto"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["cpu"] * 8
    assert measured == ["vulkan:0", "cpu"]


def test_another_process_that_measures_is_waited_for(pretend: Any, measured: list[str]) -> None:
    gpu = vulkan_device(0, "discrete", "vulkan")
    pretend(gpu)
    started = threading.Event()

    def other() -> None:  # a lock is the open file's: another thread stands for another process
        with measurements.alone(1) as may:
            assert may
            started.set()
            time.sleep(0.2)
            measurements.store("vulkan:0", gpu, Measurement(3.0))
            measurements.store("cpu", CPU, Measurement(300.0))

    thread = threading.Thread(target=other)
    thread.start()
    assert started.wait(10)
    assert resolve("auto") == "cpu"
    assert measured == []
    thread.join()


def test_another_process_that_hangs_is_not_waited_for(
    pretend: Any, measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(vulkan_device(0, "discrete"))
    monkeypatch.setattr(registry, "CALIBRATION_SECONDS", 0.1)
    with measurements.alone(1):
        assert resolve("auto") == "vulkan:0"
    assert measured == []


def test_auto_stays_what_it_was_unless_this_process_changes_something(
    pretend: Any, monkeypatch: pytest.MonkeyPatch, no_settings: Path
) -> None:
    pretend(vulkan_device(0, "discrete", "vulkan"))
    assert resolve("auto") == "vulkan:0"
    no_settings.write_text('device = "cpu"\n')
    assert resolve("auto") == "vulkan:0"
    measurements.store("cpu", CPU, Measurement(300.0))
    assert resolve("auto") == "cpu"
    monkeypatch.setenv("DL4ALL_DEVICE", "vulkan:0")
    assert resolve("auto") == "vulkan:0"


def test_every_backend_has_its_folder() -> None:
    folders = {path.parent.name for path in Path(registry.__file__).parent.glob("*/backend.py")}
    folders.remove("simulated")  # its devices are made from descriptions, and are found nowhere
    assert {entry.name for entry in BUILT_IN} == folders
