"""The shaders that ops declare are those that they launch: a wheel carries what is declared, compiled."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops import REGISTRY, all_shaders
from dl4all.ops.core import autotune
from dl4all.ops.elementwise.declare import Elementwise
from dl4all.ops.memory.conversion import CASTS
from dl4all.runtime import spirv
from dl4all.runtime.vulkan.backend import VulkanBackend
from dl4all.shaders import ROOT
from tests.conftest import need
from tests.support.operands import (
    CASES,
    LAYOUTS,
    arrays,
    compare,
    contiguous,
    draw,
    generator,
    numbers,
    reference,
    transposed,
)

SHADERS = all_shaders()
IN_PLACE = ("optim/", "attention/flash_weights.comp", "conv/winograd_weight.comp")
"""Those that change more than their result: the state of an optimizer, scores, gradients of filters."""

ELEMENTWISE = [op for op in REGISTRY.values() if isinstance(op, Elementwise)]


@pytest.mark.parametrize("shader", SHADERS, ids=lambda shader: shader.name)
def test_every_shader_compiles(shader: spirv.Shader) -> None:
    interface = spirv.load(shader).interface
    assert [binding.index for binding in interface.bindings] == list(range(len(interface.bindings)))
    written = [binding.index for binding in interface.bindings if not binding.readonly]
    assert written[-1] == len(interface.bindings) - 1  # the result is bound last, and nothing else is written
    assert len(written) == 1 or shader.path.startswith(IN_PLACE)
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
    """What a device says of itself, by which ops choose between their shaders, and what was tuned for it."""

    info: dict[str, Any] = dataclasses.field(default_factory=dict)
    without: frozenset[str] = frozenset()
    tuned: tuple[str, ...] = ()  # candidates, wherever they fit


HARDWARE = {
    "as it is": Hardware(),
    "without features": Hardware(without=frozenset({"int64"})),
    "a GPU": Hardware({"type": "discrete"}),
    "tuned": Hardware(tuned=("words64 64x16", "workgroup", "fft")),
    "tuned, without features": Hardware(without=frozenset({"int64"}), tuned=("shuffle 64x16",)),
    "a tuned GPU": Hardware({"type": "discrete"}, tuned=("shared 64x64", "fft")),
    "tuned for few pixels": Hardware(tuned=("winograd2",)),
    "tuned for many": Hardware(tuned=("winograd4",)),
    "another": Hardware({"type": "discrete"}, tuned=("plain 64x64", "invocation", "im2col")),
}


@pytest.mark.vulkan
def test_ops_launch_the_shaders_that_they_declare(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, for some operands, on some hardware, and no others; and compute the same with each.

    llvmpipe can imitate all hardware. What an op has launched on one need not be launched on others.
    """
    need("vulkan:0")
    if os.environ.get("DL4ALL_LIMITS"):
        pytest.skip("it imitates other hardware by itself")
    loaded = _record(monkeypatch)
    left = [op for op in REGISTRY.values() if op.kernel]
    for hardware in HARDWARE.values():
        _tune(monkeypatch, hardware.tuned)
        with _opened(hardware) as place:
            complete = place.info.driver == "llvmpipe" and (place.features or hardware.without)
            _launch(place, left)
        left = [op for op in left if op.kernel and not set(op.kernel.shaders) <= loaded]
    assert loaded <= set(SHADERS)
    if not complete:
        pytest.skip("vulkan:0 is not llvmpipe, so not all shaders have a use")
    missing = [
        shader.name for op in left if op.kernel for shader in op.kernel.shaders if shader not in loaded
    ]
    assert missing == []


def _launch(place: dl.Device, ops: list[Any]) -> None:
    """Every example with its operands in every two layouts, or in one if elementwise, with all dtypes."""
    for (op, case), pair in itertools.product(CASES, itertools.product(LAYOUTS.values(), repeat=2)):
        if op in ops and (not op.elementwise or pair[0] is pair[1]):
            given = zip(arrays(op, case), itertools.cycle(pair))
            made = [(None, None) if array is None else layout(array, place) for array, layout in given]
            result = op(*(tensor for tensor, _ in made), **dict(case.arguments))
            compare(result, reference(op, [elements for _, elements in made], **dict(case.arguments)))
    sizes = ((3, 5), (3, 4))
    for op, layout, shape in itertools.product(ELEMENTWISE, (contiguous, transposed), sizes):
        if op in ops:
            for dtype in op.by_dtype:
                op(*(layout(draw(op, name, generator(dtype), shape, dtype), place)[0] for name in op.arrays))
    if REGISTRY["cast"] in ops:
        halves = (("float16", "float32"), ("float32", "float16"))
        pairs = (*CASTS, *halves)
        for (source, target), layout, shape in itertools.product(pairs, (contiguous, transposed), sizes):
            REGISTRY["cast"](layout(numbers(generator(source), shape, source), place)[0], target)


def _tune(monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]) -> None:
    """As if these had won wherever a device can run them."""

    def choose(space: autotune.Space[Any, Any], device: dl.Device, problem: Any) -> Any:
        key = space.key(problem)
        fitting = [c for n, c in space.candidates.items() if n in names and space.fits(device, c, key)]
        return fitting[0] if fitting else space.candidates[space.usual(device, key)]

    monkeypatch.setattr(autotune, "choose", choose)


def _record(monkeypatch: pytest.MonkeyPatch) -> set[spirv.Shader]:
    """The shaders that are loaded from now on; a device keeps what it has loaded before."""
    loaded: set[spirv.Shader] = set()
    load = spirv.load

    def recording(shader: spirv.Shader, *rest: Any) -> spirv.Module:
        loaded.add(shader)
        return load(shader, *rest)

    monkeypatch.setattr("dl4all.scheduler.programs.spirv.load", recording)
    return loaded


@contextlib.contextmanager
def _opened(hardware: Hardware) -> Iterator[dl.Device]:
    """vulkan:0 anew, without programs, as if it were other hardware; closed again, for it holds many."""
    backend = VulkanBackend(0)
    place = dl.Device("vulkan:0", backend)
    place.info = dataclasses.replace(place.info, **hardware.info)
    place.features -= hardware.without
    try:
        yield place
    finally:
        backend.close()
