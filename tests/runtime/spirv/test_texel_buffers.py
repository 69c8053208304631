"""Shaders that read texel buffers in place of storage buffers: the same results, and what stays as it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from dl4all.runtime.protocols import Buffer, Dispatch, Fill, Span, span
from dl4all.runtime.spirv import Shader, SpirvModule, load
from dl4all.runtime.spirv.texel_buffers import Descriptor, TexelFormat, read_as_texels
from dl4all.runtime.vulkan import buffer as vulkan_buffer
from dl4all.runtime.vulkan.backend import VulkanBackend
from dl4all.runtime.vulkan.program import VulkanProgram
from tests.conftest import need

HEADER = """#version 450
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 1) in;
layout(push_constant) uniform P { uint i; uint component; } p;
"""
FLOAT, FLOAT2, FLOAT4 = (TexelFormat(n, "float") for n in (1, 2, 4))
UINT, UINT2, UINT4, INT4 = (
    TexelFormat(1, "uint"),
    TexelFormat(2, "uint"),
    TexelFormat(4, "uint"),
    TexelFormat(4, "int"),
)
WORDS = 64  # of the buffer that is read
AT, COMPONENT = 3, 1  # what READS have for p.i and p.component

# What a shader reads, the format, and the words of the buffer that it then has.
READS = {
    "float": ("float x[];", "floatBitsToUint(x[p.i])", FLOAT, [AT]),
    "uint": ("uint x[];", "x[p.i]", UINT, [AT]),
    "int4": ("ivec4 x[];", "uint(x[p.i].z)", INT4, [4 * AT + 2]),
    "signed index": ("uint x[];", "x[int(p.i) + 1]", UINT, [AT + 1]),
    "vec2": ("vec2 x[];", "floatBitsToUint(x[p.i])", FLOAT2, [2 * AT, 2 * AT + 1]),
    "vec4": (
        "vec4 x[];",
        "floatBitsToUint(x[p.i])",
        FLOAT4,
        [4 * AT, 4 * AT + 1, 4 * AT + 2, 4 * AT + 3],
    ),
    "a component": ("vec4 x[];", "floatBitsToUint(x[p.i].w)", FLOAT4, [4 * AT + 3]),
    "any component": ("vec4 x[];", "floatBitsToUint(x[p.i][p.component])", FLOAT4, [4 * AT + COMPONENT]),
    "64 bits": ("uint64_t x[];", "unpack32(x[p.i])", UINT2, [2 * AT, 2 * AT + 1]),
    "two of 64 bits": ("u64vec2 x[];", "unpack32(x[p.i].y)", UINT4, [4 * AT + 2, 4 * AT + 3]),
    "any of 64 bits": (
        "u64vec2 x[];",
        "unpack32(x[p.i][p.component])",
        UINT4,
        [4 * AT + 2, 4 * AT + 3],
    ),
}
# Why a buffer stays a storage buffer.
STAYS = {
    "its length is asked": ("readonly buffer X { uint x[]; };", "x[0] + uint(x.length())"),
    "it is written": ("buffer X { uint x[]; };", "x[1]++"),
    "it is coherent": ("coherent readonly buffer X { uint x[]; };", "x[0]"),
    "it is volatile": ("volatile readonly buffer X { uint x[]; };", "x[0]"),
    "no texel has three components": ("readonly buffer X { vec3 x[]; };", "uint(x[0].x)"),
    "there is more before the array": ("readonly buffer X { uint n; uint x[]; };", "n + x[0]"),
    "the array's length is fixed": ("readonly buffer X { uint x[8]; };", "x[0]"),
    "it holds structures": ("readonly buffer X { S x[]; };", "x[0].a"),
    "it holds matrices": ("readonly buffer X { mat4 x[]; };", "uint(x[0][0].x)"),
}


def module(folder: Path, declarations: str, value: str, components: int = 1) -> SpirvModule:
    """A shader that writes a value of uints to binding 1."""
    (folder / "include").mkdir(exist_ok=True)
    kind = "uint" if components == 1 else f"uvec{components}"
    (folder / "read.comp").write_text(
        f"{HEADER}struct S {{ uint a; uint b; }};\n{declarations}\n"
        f"layout(binding = 1) writeonly buffer Y {{ {kind} y[]; }};\nvoid main() {{ y[0] = {value}; }}\n"
    )
    return load(Shader("read.comp"), folder)


@pytest.fixture
def backend() -> Iterator[VulkanBackend]:
    need("vulkan:0")
    backend = VulkanBackend(0)
    yield backend
    backend.close()


def words(count: int) -> npt.NDArray[np.uint32]:
    """Floats, so that no bit is lost where they are loaded as such."""
    return np.random.default_rng(count).standard_normal(count, np.float32).view(np.uint32)


def filled(backend: VulkanBackend, data: npt.NDArray[np.uint32]) -> Buffer:
    buffer = backend.allocate(data.nbytes)
    backend.stream.upload(span(buffer), data.view(np.uint8))
    return buffer


def results(backend: VulkanBackend, program: VulkanProgram, x: Span, count: int) -> list[int]:
    """The words that a program writes."""
    y, found = backend.allocate(16), np.full(4, 0xDEADBEEF, np.uint32)
    backend.stream.upload(span(y), found.view(np.uint8))
    push = np.array([AT, COMPONENT], np.uint32)[: program.module.interface.push_bytes // 4].tobytes()
    backend.stream.dispatch(Dispatch(program, [x, span(y)], (1, 1, 1), push))
    backend.stream.download(span(y), found.view(np.uint8))
    assert (found[count:] == 0xDEADBEEF).all()
    return [int(word) for word in found[:count]]


@pytest.mark.vulkan
@pytest.mark.parametrize("read", READS)
def test_what_is_read(read: str, backend: VulkanBackend, tmp_path: Path) -> None:
    buffer, value, format, positions = READS[read]
    declaration = f"layout(binding = 0) readonly buffer X {{ {buffer} }};"
    code = module(tmp_path, declaration, value, len(positions))
    rewritten = read_as_texels(code.code, code.interface)
    assert rewritten is not None
    assert rewritten.descriptors == (Descriptor(0, 0, format), Descriptor(1, 1, None))
    data = words(WORDS)
    program = VulkanProgram(backend, code, (), texels=True)
    x = span(filled(backend, data))
    assert program.fitting([x, x]) is program
    assert results(backend, program, x, len(positions)) == data[positions].tolist()


@pytest.mark.vulkan
def test_two_views_of_one_buffer(backend: VulkanBackend, tmp_path: Path) -> None:
    """Each gets a binding of its own; one that nothing reads gets none."""
    code = module(
        tmp_path,
        "layout(binding = 0) readonly buffer X { float x[]; };\n"
        "layout(binding = 0) readonly buffer X4 { vec4 x4[]; };\n"
        "layout(binding = 0) readonly buffer X2 { vec2 x2[]; };",
        "floatBitsToUint(vec2(x[p.i], x4[p.i].y))",
        2,
    )
    rewritten = read_as_texels(code.code, code.interface)
    assert rewritten is not None
    assert rewritten.descriptors == (
        Descriptor(0, 0, FLOAT), Descriptor(1, 1, None), Descriptor(2, 0, FLOAT4)
    )  # fmt: skip
    data = words(WORDS)
    program = VulkanProgram(backend, code, (), texels=True)
    assert results(backend, program, span(filled(backend, data)), 2) == data[[AT, 4 * AT + 1]].tolist()


@pytest.mark.parametrize("why", STAYS)
def test_what_stays(why: str, tmp_path: Path) -> None:
    buffer, value = STAYS[why]
    code = module(tmp_path, f"layout(binding = 0) {buffer}", value)
    assert read_as_texels(code.code, code.interface) is None


@pytest.mark.vulkan
def test_one_view_of_two_stays(backend: VulkanBackend, tmp_path: Path) -> None:
    code = module(
        tmp_path,
        "layout(binding = 0) readonly buffer X { float x[]; };\n"
        "layout(binding = 0) readonly buffer M { mat2 m[]; };",
        "floatBitsToUint(vec2(x[p.i], m[p.i][1][0]))",
        2,
    )
    rewritten = read_as_texels(code.code, code.interface)
    assert rewritten is not None
    assert rewritten.descriptors == (
        Descriptor(0, 0, None), Descriptor(1, 1, None), Descriptor(2, 0, FLOAT)
    )  # fmt: skip
    data = words(WORDS)
    program = VulkanProgram(backend, code, (), texels=True)
    assert results(backend, program, span(filled(backend, data)), 2) == data[[AT, 4 * AT + 2]].tolist()


@pytest.mark.vulkan
@pytest.mark.parametrize("nbytes", [4, 12, 4 * WORDS])
def test_spans_that_no_texel_buffer_takes(
    nbytes: int, backend: VulkanBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Less than a texel, or more than the device allows: storage buffers, alone and in a recording."""
    limits = dataclasses.replace(backend.info.limits, texel_elements=WORDS // 4 - 1)
    monkeypatch.setattr(backend, "info", dataclasses.replace(backend.info, limits=limits))
    code = module(tmp_path, "layout(binding = 0) readonly buffer X { vec4 x[]; };", "floatBitsToUint(x[0].x)")
    program = VulkanProgram(backend, code, (), texels=True)
    data = words(WORDS)
    x, y = span(filled(backend, data), 0, nbytes), span(backend.allocate(4))
    twin = program.fitting([x, y])
    assert twin is not program
    assert twin is program.fitting([x, y])
    assert [bound.format for bound in twin.bound] == [0, 0]
    if nbytes == 4 * WORDS:  # less than one element is nothing that a shader may read
        assert results(backend, program, x, 1) == data[:1].tolist()
        recording = backend.record([Dispatch(program, [x, y], (1, 1, 1), b"\0" * code.interface.push_bytes)])
        backend.stream.replay(recording)
        found = np.empty(1, np.uint32)
        backend.stream.download(y, found.view(np.uint8))
        assert found[0] == data[0]
        recording.free()
    program.free()
    assert not backend.programs


@pytest.mark.vulkan
def test_a_recorded_dispatch_changes_between_both(
    backend: VulkanBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a span that is read as texels and one that is too large for it, in each version, and back."""
    step = backend.capabilities.offset_alignment
    elements = (step + vulkan_buffer.TAIL) // 16
    limits = dataclasses.replace(backend.info.limits, texel_elements=elements)
    monkeypatch.setattr(backend, "info", dataclasses.replace(backend.info, limits=limits))
    code = module(tmp_path, "layout(binding = 0) readonly buffer X { vec4 x[]; };", "floatBitsToUint(x[0].x)")
    program = VulkanProgram(backend, code, (), texels=True)
    data = words(16 * step // 4)
    x, outs = filled(backend, data), [span(backend.allocate(4)) for _ in range(16)]

    def command(i: int) -> Dispatch:
        part = span(x, i * step, (1 + i // 2 % 2) * step)
        return Dispatch(program, [part, outs[i]], (1, 1, 1), b"\0" * code.interface.push_bytes)

    assert program.fitting(command(0).spans) is program
    assert program.fitting(command(2).spans) is not program
    recording = backend.record([command(0)], changing=[0])
    for i in (*range(12), 3, 0, 1, 2, 7, 0, 13, 14):
        backend.stream.fill(Fill(outs[i], 0))
        backend.stream.replay(recording, {0: command(i)})
        found = np.empty(1, np.uint32)
        backend.stream.download(outs[i], found.view(np.uint8))
        assert found[0] == data[i * step // 4], i


@pytest.mark.vulkan
def test_views_are_kept_up_to_a_number(
    backend: VulkanBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vulkan_buffer, "VIEWS", 3)
    code = module(tmp_path, "layout(binding = 0) readonly buffer X { uint x[]; };", "x[p.i]")
    program = VulkanProgram(backend, code, (), texels=True)
    step = backend.capabilities.offset_alignment
    data = words(8 * step // 4)
    x = filled(backend, data)
    for _ in range(2):
        for i in range(7):
            expected = data[i * step // 4 + AT].item()
            assert results(backend, program, span(x, i * step), 1) == [expected]
    assert isinstance(x, vulkan_buffer.VulkanBuffer)
    assert len(x._views) == 3
    y = span(backend.allocate(4))
    push = np.array([AT, COMPONENT], np.uint32).tobytes()[: code.interface.push_bytes]
    recording = backend.record([Dispatch(program, [span(x, 6 * step), y], (1, 1, 1), push)])
    backend.stream.replay(recording)
    found = np.empty(1, np.uint32)
    backend.stream.download(y, found.view(np.uint8))
    assert found[0] == data[6 * step // 4 + AT]
    recording = backend.record([Dispatch(program, [span(x, 6 * step), y], (1, 1, 1), push)], changing=[0])
    for i in (0, 3, 4, 5, 6, 7, 3, 4, 0, 5):
        backend.stream.replay(recording, {0: Dispatch(program, [span(x, i % 7 * step), y], (1, 1, 1), push)})
        backend.stream.download(y, found.view(np.uint8))
        assert found[0] == data[i % 7 * step // 4 + AT]
    assert len(x._views) == 3
