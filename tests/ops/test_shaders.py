"""The shaders that ops declare are those that they launch: a wheel carries what is declared, compiled."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
import dl4all.graph.op_codes.interpreter  # adds its shaders to the optional ones
from dl4all.ops import REGISTRY, all_shaders
from dl4all.ops.core.kernels import autotune
from dl4all.ops.core.kernels.short_floats import FORMATS
from dl4all.ops.core.op import OPTIONAL_SHADERS, Example, Op
from dl4all.ops.elementwise.declare import Elementwise
from dl4all.ops.indexing.rows import SUMMED_DTYPES
from dl4all.ops.memory.conversion import CASTS, CONVERSIONS
from dl4all.ops.reduce import row_kernels
from dl4all.runtime import spirv
from dl4all.runtime.null.backend import NullBackend
from dl4all.runtime.vulkan.backend import VulkanBackend
from dl4all.shaders import ROOT
from tests.conftest import need
from tests.support.buffer_indices import compared
from tests.support.operands import (
    LAYOUTS,
    Layout,
    NDArray,
    arrays,
    compare,
    completed,
    contiguous,
    draw,
    generator,
    numbers,
    reference,
    transposed,
)
from tests.support.subcases import FULL

SHADERS = all_shaders()
SHORT_FLOATS = [pair for short in FORMATS for pair in ((short.name, "float32"), ("float32", short.name))]
SEVERAL_WRITTEN = (
    "optim/",
    "attention/flash_weights.comp",
    "conv/winograd_weight.comp",
    "indexing/check_indices.comp",
    "sorting/tile.comp",
)
"""Those that write more than a result: the state of an optimizer, scores, gradients of filters, what is noted
of indices that are out of range, and indices beside the keys that they belong to."""


@pytest.mark.parametrize("path", sorted({shader.path for shader in SHADERS}))
def test_every_shader_compiles(path: str) -> None:
    """In each of its variants."""
    for shader in SHADERS:
        if shader.path == path:
            _check_interface(shader)


def _check_interface(shader: spirv.Shader) -> None:
    interface = spirv.load(shader).interface
    name = shader.name
    assert [binding.index for binding in interface.bindings] == list(range(len(interface.bindings))), name
    written = [binding.index for binding in interface.bindings if not binding.readonly]
    # the result is bound last, and nothing else is written
    assert written[-1] == len(interface.bindings) - 1, name
    assert len(written) == 1 or shader.path.startswith(SEVERAL_WRITTEN), name
    assert 0 < interface.push_bytes <= 128, name  # what every Vulkan device takes
    assert len(interface.bindings) <= 4, name  # likewise
    assert np.prod(interface.local_size) <= 128, name


def test_no_shader_is_declared_twice_by_one_op() -> None:
    kernels = {op.name: op.kernel.shaders for op in REGISTRY.values() if op.kernel}
    assert [name for name, shaders in kernels.items() if len(set(shaders)) != len(shaders)] == []


def test_every_shader_file_serves_an_op() -> None:
    files = {path.relative_to(ROOT).as_posix() for path in Path(ROOT).rglob("*.comp")}
    assert files == {shader.path for shader in (*SHADERS, *OPTIONAL_SHADERS) if not shader.source}


@dataclasses.dataclass
class Hardware:
    """What a device says of itself, by which ops choose between their shaders, and what was tuned for it."""

    info: dict[str, Any] = dataclasses.field(default_factory=dict)
    without: frozenset[str] = frozenset()
    tuned: tuple[str, ...] = ()  # candidates, wherever they fit
    least_steps: int = row_kernels.LEAST_STEPS  # of a row for a subgroup


HARDWARE = {
    "as it is": Hardware(),
    "without features": Hardware(without=frozenset({"int64", "storage16"})),
    "a GPU": Hardware({"type": "discrete"}),
    "a GPU, for any row": Hardware({"type": "discrete"}, least_steps=1),
    "a GPU without subgroups": Hardware({"type": "discrete"}, without=frozenset({"subgroup_arithmetic"})),
    "tuned": Hardware(tuned=("words64 64x16", "workgroup", "fft")),
    "tuned, without features": Hardware(without=frozenset({"int64"}), tuned=("shuffle 64x16",)),
    "a tuned GPU": Hardware({"type": "discrete"}, tuned=("shared 64x64", "fft")),
    "tuned for few pixels": Hardware(tuned=("winograd2",)),
    "tuned for many": Hardware(tuned=("winograd4",)),
    "another": Hardware({"type": "discrete"}, tuned=("plain 64x64", "invocation", "im2col")),
}


@pytest.mark.vulkan
def test_ops_launch_the_shaders_that_they_declare(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, for some operands, on some hardware, and no others; and compute the same with each, within
    their operands.

    llvmpipe can imitate all hardware. What an op has launched on one need not be launched on others.
    """
    need("vulkan:0")
    if os.environ.get("DL4ALL_LIMITS"):
        pytest.skip("it imitates other hardware by itself")
    loaded = _record(monkeypatch)
    left = [op for op in REGISTRY.values() if op.kernel]
    for hardware in HARDWARE.values():
        _tune(monkeypatch, hardware.tuned)
        monkeypatch.setattr(row_kernels, "LEAST_STEPS", hardware.least_steps)
        with _opened(hardware) as place, compared(place):
            complete = place.info.driver == "llvmpipe" and (place.features or hardware.without)
            _launch(place, left, loaded)
        left = [op for op in left if op.kernel and not set(op.kernel.shaders) <= loaded]
    assert loaded <= set(SHADERS)
    if not complete:
        pytest.skip("vulkan:0 is not llvmpipe, so not all shaders have a use")
    missing = [
        shader.name for op in left if op.kernel for shader in op.kernel.shaders if shader not in loaded
    ]
    assert sorted(set(missing)) == []


PATIENCE = 5, 16  # how many times all examples, and how many calls more, load nothing new at most


def _launch(place: dl.Device, ops: list[Any], loaded: set[spirv.Shader]) -> None:
    """Ops with operands of all dtypes in all layouts, until all shaders that they declare are loaded.

    A device that computes nothing tells in advance which calls load a shader that was not there yet; of every
    fourth op those are compiled and computed. In a full run, all are.
    """
    imitation = dl.Device.of_backend("null:0", NullBackend(place.info, place.features))
    for op in ops:
        idle = 0  # calls of examples since one loaded a shader
        for call in itertools.chain(_by_dtype(op), _by_example(op)):
            before = len(loaded)
            if not FULL:
                if set(op.kernel.shaders) <= loaded or idle > PATIENCE[0] * len(op.examples) + PATIENCE[1]:
                    break
                call(place=imitation)
                idle = 0 if len(loaded) > before else idle + (call.func is _example)
            if FULL or (len(loaded) > before and zlib.crc32(op.name.encode()) % 4 == 0):
                expected = set(loaded)
                result, right = call(place=place)
                assert FULL or loaded == expected
                if right is not None:
                    compare(result, right)


Call = functools.partial[tuple[dl.Tensor, "NDArray | None"]]
"""Computes on a device, ``place``; the result, and what it must be where that is to be compared."""


def _by_dtype(op: Op[...]) -> Iterator[Call]:
    """Elementwise ops, casts and copies, contiguous and not, in steps of one and of four elements."""
    for layout, shape in itertools.product((contiguous, transposed), ((3, 5), (3, 4))):
        if isinstance(op, Elementwise):
            for dtype in op.by_dtype:
                drawn = [draw(op, name, generator(dtype), shape, dtype) for name in op.arrays]
                yield functools.partial(_uncompared, op, layout, drawn, **completed(op, {}, dtype))
        elif op.name == "cast":
            for source, target in (*CASTS, *CONVERSIONS, *SHORT_FLOATS):
                array = numbers(generator(source), shape, source)
                yield functools.partial(_uncompared, op, layout, [array], target)
    if op.name == "clone":
        dtypes = ("int32", "int64", "uint8")
        for any_layout, case, dtype in itertools.product(LAYOUTS.values(), op.examples, dtypes):
            yield functools.partial(_uncompared, op, any_layout, arrays(op, case, dtype))
    if op.name == "take_rows_backward":
        for case, dtype in itertools.product(op.examples, SUMMED_DTYPES):
            yield functools.partial(_example, op, case, (contiguous,), dtype=dtype)


def _uncompared(
    op: Op[...], layout: Layout, given: list[Any], *arguments: str, place: dl.Device, **named: Any
) -> tuple[dl.Tensor, NDArray | None]:
    return op(*(layout(array, place)[0] for array in given), *arguments, **named), None


def _by_example(op: Op[...]) -> Iterator[Call]:
    """Every example with its operands in two layouts, or in one if elementwise, and what is right.

    In a full run in every two; else the first is contiguous or transposed, or the second transposed.
    """
    pairs = [
        (a, b)
        for a, b in itertools.product(LAYOUTS.values(), repeat=2)
        if a is b or (not op.elementwise and (FULL or a in (contiguous, transposed) or b is transposed))
    ]
    for pair, case in itertools.product(pairs, op.examples):
        yield functools.partial(_example, op, case, pair)


def _example(
    op: Op[...], case: Example, pair: tuple[Layout, ...], *, place: dl.Device, dtype: str = "float32"
) -> tuple[dl.Tensor, NDArray | None]:
    given = zip(arrays(op, case, dtype), itertools.cycle(pair))
    made = [(None, None) if array is None else layout(array, place) for array, layout in given]
    result = op(*(tensor for tensor, _ in made), **dict(case.arguments))
    if place.name.startswith("null"):
        return result, None
    right = reference(op, [elements for _, elements in made], **dict(case.arguments))
    return result, right if dtype == "float32" else right.astype(dtype)


def _tune(monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]) -> None:
    """As if these had won wherever a device can run them."""

    def choose(space: autotune.TuningSpace[Any, Any], device: dl.Device, problem: Any) -> Any:
        key = space.key(problem)
        fitting = [c for n, c in space.candidates.items() if n in names and space.fits(device, c, key)]
        return fitting[0] if fitting else space.candidates[space.usual(device, key)]

    monkeypatch.setattr(autotune, "choose", choose)


def _record(monkeypatch: pytest.MonkeyPatch) -> set[spirv.Shader]:
    """The shaders that any device loads from now on; it keeps what it has loaded before."""
    loaded: set[spirv.Shader] = set()
    load = spirv.load

    def recording(shader: spirv.Shader, *rest: Any) -> spirv.SpirvModule:
        loaded.add(shader.plain)
        return load(shader, *rest)

    monkeypatch.setattr("dl4all.scheduler.device.programs.spirv.load", recording)
    return loaded


@contextlib.contextmanager
def _opened(hardware: Hardware) -> Iterator[dl.Device]:
    """vulkan:0 anew, without programs, as if it were other hardware; closed again, for it holds many."""
    backend = VulkanBackend(0)
    place = dl.Device.of_backend("vulkan:0", backend)
    features = place.info.features - hardware.without
    place.info = dataclasses.replace(place.info, features=features, **hardware.info)
    place.features -= hardware.without
    try:
        yield place
    finally:
        backend.close()
