"""The programs that a device keeps, where there are more than it keeps."""

from __future__ import annotations

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import PipelineError
from dl4all.ops.conv.algorithms import forced
from dl4all.ops.conv.implicit_gemm import IMPLICIT_GEMM
from dl4all.runtime import spirv
from dl4all.runtime.null.backend import NullBackend
from dl4all.runtime.spirv import SpirvModule
from dl4all.scheduler.device.programs import Launch, Programs
from tests.conftest import need


def find(programs: Programs, constant: int) -> object:
    """The program for windows of a size."""
    interface = spirv.load(IMPLICIT_GEMM).interface
    push = bytes(interface.push_bytes)
    launch = Launch(IMPLICIT_GEMM, (1, 1, 1), push, (1, constant, constant))
    return programs.find(launch, len(interface.bindings))


def test_the_older_half_is_freed_when_there_are_too_many() -> None:
    backend = NullBackend()
    programs = Programs(backend, most=4)
    found = [find(programs, constant) for constant in range(4)]
    assert [find(programs, constant) for constant in range(4)] == found
    assert (len(backend.programs), backend.counts["free program"]) == (4, 0)
    find(programs, 4)
    assert (len(backend.programs), backend.counts["free program"]) == (3, 2)
    assert [find(programs, constant) for constant in (2, 3)] == found[2:]
    assert find(programs, 0) not in found
    for constant in range(100):
        find(programs, constant)
        assert len(backend.programs) <= 4


def test_the_device_gets_what_it_was_asked_for_before_a_shader_is_compiled() -> None:
    handed_over: list[int] = []
    programs = Programs(NullBackend(), before_compiling=lambda: handed_over.append(1))
    for constant in (0, 1, 0, 1):
        find(programs, constant)
    assert len(handed_over) == 2


def test_so_many_are_freed_as_are_new() -> None:
    """Where all are used in turn, each is built once more for each that is new, not at every use."""
    backend = NullBackend()
    programs = Programs(backend, most=8)
    for new in range(8, 200):
        for usual in range(3):
            find(programs, usual)
        find(programs, new)
    assert backend.counts["program"] < 2.1 * 200


def test_what_the_driver_refuses_is_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = NullBackend()
    asked: list[object] = []

    def refuse(module: SpirvModule, constants: object) -> None:
        asked.append(constants)
        raise PipelineError("[null] no")

    monkeypatch.setattr(backend, "program", refuse)
    programs = Programs(backend, most=4)
    for constant in (0, 0, 1, 2, 3, 0, 4, 0):
        with pytest.raises(PipelineError, match=r"implicit_gemm\.comp has no pipeline on "):
            find(programs, constant)
    assert [constants[1] for constants in asked] == [0, 1, 2, 3, 4, 0]  # type: ignore[index]
    assert len(programs._refused) == 4


@pytest.mark.vulkan
@pytest.mark.parametrize("name", ["vulkan:0", "kompute:0"])
def test_results_are_right_while_programs_come_and_go(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need(name)
    device = dl.device(name)
    seeded = np.random.default_rng(0)
    image = seeded.standard_normal((1, 2, 9, 9), np.float32)
    monkeypatch.setattr(device, "_programs", Programs(device._backend, most=3))
    for kernel in (1, 2, 3, 4, 5, 1, 3):
        weight = seeded.standard_normal((3, 2, kernel, kernel), np.float32)
        with forced("implicit_gemm"):
            got = dl.nn.functional.conv2d(dl.tensor(image, device=name), dl.tensor(weight, device=name))
        want = dl.nn.functional.conv2d(dl.tensor(image, device="cpu"), dl.tensor(weight, device="cpu"))
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-4)
        assert len(device._programs._compiled) <= 3
