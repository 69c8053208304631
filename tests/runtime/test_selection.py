"""The rule by which ``auto`` chooses, over machines that are not here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dl4all.runtime.device_info import DeviceInfo, DeviceType
from dl4all.runtime.records.measurements import Measurement
from dl4all.runtime.selection import (
    LAST,
    PREFERRED,
    Lookup,
    candidates,
    choose,
    driver_reason,
    explain,
    gather,
    same_hardware,
    unmeasured,
)


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
        backends=("cpu",) if cpu else backends,
    )


CPU = device(0, "cpu")


def measured(**gflops: float | str) -> Lookup:
    """Measurements that are GFLOP/s, or a problem, by name (``vulkan_0``)."""

    def lookup(name: str, info: DeviceInfo) -> Measurement | None:
        assert name in info.names
        found = gflops.get(name.replace(":", "_"))
        if found is None:
            return None
        return Measurement(problem=found) if isinstance(found, str) else Measurement(matmul_gflops=found)

    return lookup


NOTHING = measured()


def test_a_device_that_compiles_only_is_never_taken() -> None:
    """As a driver's null hardware is, which has no memory."""
    null = replace(device(0, "discrete"), memory=0)
    assert null.compiles_only
    assert not device(0, "discrete").compiles_only
    assert choose([null, CPU], NOTHING).name == "cpu"
    assert "vulkan:0 is left out: it compiles only" in choose([null, CPU], NOTHING).reason
    assert unmeasured([null, CPU], NOTHING) == []
    assert candidates([null, CPU], NOTHING)[0].usable is False
    assert choose([null, CPU], measured(vulkan_0=9000, cpu=1)).name == "cpu"  # a record of a real one's


def test_a_device_that_compiles_only_is_nobody_elses_driver() -> None:
    real = replace(device(1, "discrete"), pci="0000:03:00.0", driver="another")
    null = replace(real, index=0, driver="radv", memory=0)
    assert [info.others for info in gather([null, real], NOTHING)] == [(), ()]


def taken(devices: list[DeviceInfo], **gflops: float | str) -> str:
    """What auto takes, given GFLOP/s or a problem by name (``vulkan_0``)."""
    return choose(devices, measured(**gflops)).name


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
    machine = [device(0, "discrete", ("vulkan",)), CPU]
    choice = choose(machine, measured(cpu=40, vulkan_0="off by 0.3"))
    assert choice.name == "cpu"
    assert "cpu measured 40 GFLOP/s" in choice.reason
    assert "vulkan:0 is left out: off by 0.3" in choice.reason
    assert "preferred to the CPU" in choose(machine, NOTHING).reason
    assert choose([CPU], NOTHING).reason == "no GPU was found"
    software = choose([device(0, "software"), CPU], NOTHING).reason
    assert "software Vulkan driver" in software


def test_a_backend_that_is_wrong_is_named_though_the_device_is_taken() -> None:
    machine = [device(0, "discrete"), CPU]
    choice = choose(machine, measured(cpu=40, vulkan_0="off by 0.3", kompute_0=50))
    assert choice.name == "kompute:0"
    assert "vulkan:0 is left out: off by 0.3" in choice.reason


def test_a_reason_does_not_speak_of_speed_where_the_kind_decided() -> None:
    both = [device(0, "discrete"), device(1, "integrated"), CPU]
    assert choose(both, measured(vulkan_0=5, vulkan_1=100)).reason == (
        "the discrete GPU is preferred to the CPU"
    )


def test_every_device_is_a_candidate_once() -> None:
    machine = [device(0, "discrete"), device(1, "software"), CPU]
    assert [c.info.hardware for c in candidates(machine, NOTHING)] == [
        "discrete 0",
        CPU.hardware,
        "software 1",
    ]


def test_the_explanation_has_the_rule_and_every_device() -> None:
    machine = [device(0, "discrete"), device(1, "software"), CPU]
    assert explain(machine, NOTHING) == [
        "Not measured: vulkan:0, cpu. So the kind decides: "
        "discrete, integrated, virtual, other, cpu, software.",
        "1. vulkan:0: discrete 0, discrete; not measured",
        "2. cpu: cpu 0, cpu; not measured",
        "3. vulkan:1: software 1, software; not measured",
    ]
    rule, *lines = explain(machine, measured(cpu=300, vulkan_0=100, kompute_0="off by 3", vulkan_1="bad"))
    assert rule.startswith("Everything that could win was measured. So the fastest matrix product decides")
    assert lines == [
        "1. cpu: cpu 0, cpu; cpu measured 300 GFLOP/s",
        "2. vulkan:0: discrete 0, discrete; vulkan:0 measured 100 GFLOP/s; kompute:0 is left out: off by 3",
        "3. kompute:1: software 1, software; vulkan:1 is left out: bad",
    ]


# What there is to measure


def test_without_a_real_gpu_nothing_needs_to_be_measured() -> None:
    assert unmeasured([CPU], NOTHING) == []
    assert unmeasured([device(0, "software"), CPU], NOTHING) == []


def test_with_a_real_gpu_everything_but_software_has_to_be() -> None:
    machine = [device(0, "integrated"), device(1, "software"), CPU]
    assert unmeasured(machine, NOTHING) == ["vulkan:0", "kompute:0", "cpu"]
    assert unmeasured(machine, measured(vulkan_0="wrong", cpu=3)) == ["kompute:0"]
    assert unmeasured(machine, measured(vulkan_0="wrong", kompute_0=1, cpu=3)) == []
    assert unmeasured(gather([RADV, AMDVLK, CPU], NOTHING), measured(vulkan_0=1)) == [
        "kompute:0",
        "vulkan:1",
        "kompute:1",
        "cpu",
    ]


# One GPU, several drivers


def driver(index: int, name: str, *, pci: str = "0000:03:00.0", uuid: str = "") -> DeviceInfo:
    """A discrete card as one driver describes it."""
    return replace(
        device(index, "discrete"), driver=name, driver_id=name, pci=pci, uuid=uuid or f"{index + 1:032x}"
    )


RADV, AMDVLK = driver(0, "mesa_radv"), driver(1, "amd_open_source")
UUID, OTHER = "ab" * 16, "cd" * 16


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (RADV, AMDVLK, True),
        (RADV, driver(1, "mesa_radv", pci="0000:04:00.0"), False),  # two cards of one model
        (RADV, driver(1, "amd_open_source", pci="0001:03:00.0"), False),
        (driver(0, "a", pci="", uuid=UUID), driver(1, "b", pci="", uuid=UUID), True),
        (driver(0, "a", pci="", uuid=UUID), driver(1, "b", pci="", uuid=OTHER), False),
        (driver(0, "a", uuid=UUID), driver(1, "b", pci="", uuid=UUID), True),  # one does not say
        (driver(0, "a", uuid=UUID), driver(1, "b", pci="0000:04:00.0", uuid=UUID), False),
        (driver(0, "a", pci="", uuid="0" * 32), driver(1, "b", pci="", uuid="0" * 32), False),
        (
            replace(device(0, "software"), uuid=UUID, driver="a"),
            replace(device(1, "software"), uuid=UUID, driver="b"),
            False,
        ),
        (replace(CPU, uuid=UUID), driver(0, "a", pci="", uuid=UUID), False),
        (driver(0, "a", pci="", uuid=UUID), driver(1, "a", pci="", uuid=UUID), False),
        (RADV, replace(RADV, index=1), True),  # a manifest that the loader finds twice
        (device(0, "discrete"), device(1, "discrete"), False),  # neither says anything
    ],
)
def test_which_two_are_one_device(a: DeviceInfo, b: DeviceInfo, same: bool) -> None:
    assert same_hardware(a, b) == same_hardware(b, a) == same


def test_a_gpu_of_two_drivers_is_listed_once_under_the_better() -> None:
    for found in ([RADV, AMDVLK, CPU], [AMDVLK, RADV, CPU]):
        one, cpu = gather(found, NOTHING)
        assert cpu == CPU
        assert one == replace(RADV, others=(AMDVLK,))
        assert one.names == ("vulkan:0", "kompute:0")
        assert [view.index for view in one.drivers] == [0, 1]
    assert taken(list(gather([AMDVLK, RADV, CPU], NOTHING))) == "vulkan:0"


def test_two_cards_with_two_drivers_each_are_two_devices() -> None:
    found = [
        driver(0, "amd_open_source", pci="0000:03:00.0"),
        driver(1, "amd_open_source", pci="0000:04:00.0"),
        driver(2, "mesa_radv", pci="0000:03:00.0"),
        driver(3, "mesa_radv", pci="0000:04:00.0"),
    ]
    devices = gather([*found, CPU], NOTHING)
    assert [info.names for info in devices] == [
        ("vulkan:2", "kompute:2"),
        ("vulkan:3", "kompute:3"),
        ("cpu",),
    ]
    assert [info.others[0].index for info in devices[:2]] == [0, 1]


@pytest.mark.parametrize("better", sorted(PREFERRED))
@pytest.mark.parametrize("worse", ["amd_open_source", "mesa_nvk", "", *sorted(LAST)])
def test_unmeasured_drivers_go_by_the_tables(better: str, worse: str) -> None:
    one, _ = gather([driver(0, worse), driver(1, better), CPU], NOTHING)
    assert (one.driver_id, one.others[0].driver_id) == (better, worse)
    assert driver_reason(one, NOTHING) == f"{better} rather than {worse}: {PREFERRED[better]}"


def test_a_driver_on_top_of_another_comes_last() -> None:
    one, _ = gather([driver(0, "mesa_dozen"), driver(1, "made today"), CPU], NOTHING)
    assert one.driver_id == "made today"
    assert driver_reason(one, NOTHING) == "made today rather than mesa_dozen: it translates to Direct3D 12"


def test_drivers_nobody_knows_keep_the_loaders_order() -> None:
    one, _ = gather([driver(0, "b"), driver(1, "a"), CPU], NOTHING)
    assert one.driver_id == "b"
    assert driver_reason(one, NOTHING) == "b rather than a: the first that the loader gives"


def test_measured_drivers_go_by_speed() -> None:
    lookup = measured(vulkan_0=500, kompute_0=400, vulkan_1=300, kompute_1=900)
    one, _ = gather([RADV, AMDVLK, CPU], lookup)
    assert one.driver_id == "amd_open_source"
    assert driver_reason(one, lookup) == (
        "amd_open_source rather than mesa_radv: the faster, 900 against 500 GFLOP/s"
    )
    assert taken(list(gather([RADV, AMDVLK, CPU], lookup)), vulkan_1=300, kompute_1=900, cpu=1) == "kompute:1"


def test_a_tie_of_drivers_goes_by_the_tables() -> None:
    lookup = measured(vulkan_0=500, vulkan_1=510)
    one, _ = gather([RADV, AMDVLK, CPU], lookup)
    assert one.driver_id == "mesa_radv"
    assert PREFERRED["mesa_radv"] in driver_reason(one, lookup)
    slow = driver(2, "nvidia_proprietary")
    lookup = measured(vulkan_0=510, vulkan_1=500, vulkan_2=90)
    one, _ = gather([driver(0, "a"), driver(1, "b"), slow, CPU], lookup)
    assert [view.driver_id for view in one.drivers] == ["a", "b", "nvidia_proprietary"]


def test_a_driver_that_was_not_measured_has_not_lost() -> None:
    assert gather([RADV, AMDVLK, CPU], measured(vulkan_1=900))[0].driver_id == "mesa_radv"


def test_a_driver_whose_results_are_wrong_loses_even_unmeasured_ones() -> None:
    lookup = measured(vulkan_0="off by 1", kompute_0="off by 2")
    one, _ = gather([RADV, AMDVLK, CPU], lookup)
    assert one.driver_id == "amd_open_source"
    assert driver_reason(one, lookup) == (
        "amd_open_source rather than mesa_radv: what that computes is wrong"
    )
    assert choose([one, CPU], measured()).name == "vulkan:1"
    lookup = measured(vulkan_0="off by 1")  # Kompute's results may be right
    assert gather([RADV, AMDVLK, CPU], lookup)[0].driver_id == "mesa_radv"


def test_a_gpu_that_every_driver_gets_wrong_leaves_the_cpu() -> None:
    lookup = measured(vulkan_0="off", kompute_0="off", vulkan_1="off", kompute_1="off", cpu=1)
    devices = gather([RADV, AMDVLK, CPU], lookup)
    assert len(devices) == 2
    assert choose(devices, lookup).name == "cpu"
    assert driver_reason(devices[0], lookup) == "discrete 0: what every driver computes is wrong"


def test_one_driver_needs_no_reason() -> None:
    assert driver_reason(RADV, NOTHING) == ""
    assert gather([RADV, CPU], NOTHING) == (RADV, CPU)
