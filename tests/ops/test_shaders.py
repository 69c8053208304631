"""The shaders that ops declare are those that they launch: a wheel carries what is declared, compiled."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops import REGISTRY, all_shaders
from dl4all.runtime import registry, spirv
from dl4all.shaders import ROOT
from tests.ops.cases import CASES, LAYOUTS, arrays, compare, operands_of, reference, transposed

SHADERS = all_shaders()
BINARY = [op for op in REGISTRY.values() if op.elementwise and len(op.arrays) == 2]


@pytest.mark.parametrize("shader", SHADERS, ids=lambda shader: shader.name)
def test_every_shader_compiles(shader: spirv.Shader) -> None:
    interface = spirv.load(shader).interface
    assert [binding.index for binding in interface.bindings] == list(range(len(interface.bindings)))
    written = [binding.index for binding in interface.bindings if not binding.readonly]
    assert written == [len(interface.bindings) - 1]  # the result is bound last, and nothing else is written
    assert 0 < interface.push_bytes <= 128  # what every Vulkan device takes
    assert len(interface.bindings) <= 4  # likewise
    assert np.prod(interface.local_size) <= 128


def test_no_shader_is_declared_twice_by_one_op() -> None:
    kernels = {op.name: op.kernel.shaders for op in REGISTRY.values() if op.kernel}
    assert [name for name, shaders in kernels.items() if len(set(shaders)) != len(shaders)] == []


def test_every_shader_file_serves_an_op() -> None:
    files = {path.relative_to(ROOT).as_posix() for path in Path(ROOT).rglob("*.comp")}
    assert files == {shader.path for shader in SHADERS}


@dataclasses.dataclass
class Hardware:
    """What a device says of itself, by which ops choose between their shaders."""

    info: dict[str, Any] = dataclasses.field(default_factory=dict)
    without: frozenset[str] = frozenset()


HARDWARE = {
    "as it is": Hardware(),
    "without features": Hardware(without=frozenset({"int64"})),
    "a GPU": Hardware({"type": "discrete"}),
}


@pytest.mark.parametrize("layout", ["contiguous", "strided", "offset"])
@pytest.mark.parametrize("hardware", HARDWARE)
def test_ops_launch_only_declared_shaders(
    hardware: str, layout: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And compute the same with each of their shaders."""
    loaded = _record(monkeypatch)
    place = _open(device, HARDWARE[hardware])
    for op, case in CASES:
        tensors, elements = operands_of(op, case, LAYOUTS[layout], place)
        result = op(*tensors, **dict(case.arguments))
        compare(result, reference(op, list(elements), **dict(case.arguments)))
    assert loaded <= set(SHADERS)
    assert bool(loaded) == (device != "cpu")


@pytest.mark.vulkan
def test_every_declared_shader_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """By some op, for some operands, on some hardware; llvmpipe can imitate all of it."""
    if not {"vulkan:0"} & {name for found in dl.devices() for name in found.names}:
        pytest.skip("no Vulkan device")
    loaded = _record(monkeypatch)
    for hardware in HARDWARE.values():
        place = _open("vulkan:0", hardware)
        if hardware == HARDWARE["as it is"] and not (place.info.driver == "llvmpipe" and place.features):
            pytest.skip("vulkan:0 is not llvmpipe")
        for (op, case), layouts in itertools.product(CASES, itertools.product(LAYOUTS.values(), repeat=2)):
            given = zip(arrays(op, case), itertools.cycle(layouts))
            tensors = [None if array is None else layout(array, place)[0] for array, layout in given]
            op(*tensors, **dict(case.arguments))
        x, _ = transposed(np.ones((3, 5), np.float32), place)
        for op in BINARY:
            for y in (x, x.contiguous()):
                op(y, 2.0)
                op(2.0, y)
    of_ops = {code for op in REGISTRY.values() if op.kernel for code in op.kernel.shaders}
    assert [shader.name for shader in of_ops if shader not in loaded] == []


def _record(monkeypatch: pytest.MonkeyPatch) -> set[spirv.Shader]:
    """The shaders that are loaded from now on; a device keeps what it has loaded before."""
    loaded: set[spirv.Shader] = set()
    load = spirv.load

    def recording(shader: spirv.Shader, *rest: Any) -> spirv.Module:
        loaded.add(shader)
        return load(shader, *rest)

    monkeypatch.setattr("dl4all.scheduler.device.spirv.load", recording)
    return loaded


def _open(name: str, hardware: Hardware) -> dl.Device:
    """The device anew, with no programs, as if it were other hardware."""
    place = dl.Device(name, registry.open_device(name))
    place.info = dataclasses.replace(place.info, **hardware.info)
    place.features -= hardware.without
    return place
