"""The rule by which ``auto`` chooses, over machines that are not here."""

from __future__ import annotations

import pytest

from dl4all.runtime.info import DeviceInfo, DeviceType
from dl4all.runtime.measurements import Measurement
from dl4all.runtime.selection import candidates, choose


def device(index: int, kind: DeviceType, backends: tuple[str, ...] = ("vulkan", "kompute")) -> DeviceInfo:
    cpu = kind == "cpu"
    return DeviceInfo(
        index=0 if cpu else index,
        hardware=f"{kind} {index}",
        type=kind,
        vendor="",
        driver="",
        driver_version="",
        api_version="",
        memory=1,
        subgroup_size=0,
        subgroup_shuffle=False,
        float16=False,
        int8=False,
        backends=("cpu",) if cpu else backends,
    )


CPU = device(0, "cpu")


def taken(devices: list[DeviceInfo], **gflops: float | str) -> str:
    """What auto takes, given GFLOP/s or a problem by name (``vulkan_0``)."""

    def lookup(name: str, info: DeviceInfo) -> Measurement | None:
        assert name in info.names
        found = gflops.get(name.replace(":", "_"))
        if found is None:
            return None
        return Measurement(problem=found) if isinstance(found, str) else Measurement(matmul_gflops=found)

    return choose(devices, lookup).name


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (["software", "integrated", "discrete"], "vulkan:2"),
        (["software", "virtual", "integrated"], "vulkan:2"),
        (["software", "other"], "vulkan:1"),
        (["software"], "cpu"),
        ([], "cpu"),
    ],
)
def test_unmeasured_devices_go_by_kind(kinds: list[DeviceType], expected: str) -> None:
    assert taken([*(device(i, kind) for i, kind in enumerate(kinds)), CPU]) == expected


def test_one_unmeasured_gpu_leaves_the_choice_to_the_kind() -> None:
    both = [device(0, "discrete"), device(1, "integrated"), CPU]
    assert taken(both, cpu=50, vulkan_0=100) == "vulkan:0"
    assert taken(both, cpu=50, vulkan_1=100) == "vulkan:0"
    assert taken(both, vulkan_0=5, vulkan_1=100) == "vulkan:0"


def test_measured_devices_go_by_speed() -> None:
    both = [device(0, "discrete"), device(1, "integrated"), CPU]
    assert taken(both, cpu=50, vulkan_0=100, vulkan_1=200) == "vulkan:1"
    assert taken(both, cpu=50, vulkan_0=300, vulkan_1=200) == "vulkan:0"


def test_a_gpu_is_preferred_unless_the_cpu_is_more_than_twice_as_fast() -> None:
    one = [device(0, "integrated"), CPU]
    assert taken(one, cpu=190, vulkan_0=100) == "vulkan:0"
    assert taken(one, cpu=210, vulkan_0=100) == "cpu"


def test_a_software_driver_must_have_measured_faster_than_the_cpu() -> None:
    one = [device(0, "software"), CPU]
    assert taken(one, cpu=100) == "cpu"
    assert taken(one, vulkan_0=100) == "cpu"
    assert taken(one, cpu=100, vulkan_0=99) == "cpu"
    assert taken(one, cpu=100, vulkan_0=110) == "vulkan:0"


def test_the_faster_backend_drives_a_device_and_kompute_on_a_tie() -> None:
    one = [device(0, "discrete"), CPU]
    assert taken(one, cpu=1, vulkan_0=100, kompute_0=90) == "vulkan:0"
    assert taken(one, cpu=1, vulkan_0=100, kompute_0=96) == "kompute:0"
    assert taken(one, cpu=1, vulkan_0=90, kompute_0=100) == "kompute:0"


def test_what_computes_wrongly_is_never_taken() -> None:
    one = [device(0, "discrete"), CPU]
    assert taken(one, cpu=1, vulkan_0="wrong", kompute_0=50) == "kompute:0"
    assert taken(one, vulkan_0="wrong") == "kompute:0"
    assert taken(one, vulkan_0="wrong", kompute_0="wrong") == "cpu"
    assert (
        taken([device(0, "discrete", ("vulkan",)), device(1, "integrated"), CPU], vulkan_0="bad")
        == "vulkan:1"
    )


def test_a_cpu_that_fails_its_own_check_is_still_there() -> None:
    assert taken([CPU], cpu="odd") == "cpu"


def test_reasons_name_what_decided() -> None:
    def lookup(name: str, _: DeviceInfo) -> Measurement | None:
        return {"cpu": Measurement(matmul_gflops=40), "vulkan:0": Measurement(problem="off by 0.3")}.get(name)

    machine = [device(0, "discrete", ("vulkan",)), CPU]
    choice = choose(machine, lookup)
    assert choice.name == "cpu"
    assert "cpu measured 40 GFLOP/s" in choice.reason
    assert "vulkan:0 is left out: off by 0.3" in choice.reason
    assert "preferred to the CPU" in choose(machine, lambda *_: None).reason
    assert choose([CPU], lambda *_: None).reason == "no GPU was found"
    software = choose([device(0, "software"), CPU], lambda *_: None).reason
    assert "software Vulkan driver" in software


def test_every_device_is_a_candidate_once() -> None:
    machine = [device(0, "discrete"), device(1, "software"), CPU]
    assert [c.info.hardware for c in candidates(machine, lambda *_: None)] == [
        "discrete 0",
        CPU.hardware,
        "software 1",
    ]
