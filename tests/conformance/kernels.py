"""Small kernels that the conformance suite compiles itself, and what they do in NumPy."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.runtime.backend import Backend, Program
from dl4all.runtime.spirv import Shader, load

Words = npt.NDArray[np.uint32]
LOCAL = 64  # invocations of a workgroup in the one-dimensional kernels

_HEAD = "#version 450\nlayout(local_size_x = 64) in;\n"
_PUSH = "layout(push_constant) uniform P { uint n; uint k; } p;\n"
_MAIN = "void main() { uint i = gl_GlobalInvocationID.x; if (i < p.n) { %s; } }\n"

SOURCES = {
    # y = x * 3 + k: no two orders of a chain of these give the same
    "step": _HEAD
    + "layout(binding = 0) readonly buffer X { uint x[]; };\n"
    + "layout(binding = 1) writeonly buffer Y { uint y[]; };\n"
    + _PUSH
    + _MAIN % "y[i] = x[i] * 3u + p.k",
    "step_in_place": _HEAD
    + "layout(binding = 0) buffer X { uint x[]; };\n"
    + _PUSH
    + _MAIN % "x[i] = x[i] * 3u + p.k",
    # Writes to its neighbour's place, so that a missing barrier cannot hide within one invocation.
    "rotate": _HEAD
    + "layout(binding = 0) readonly buffer X { uint x[]; };\n"
    + "layout(binding = 1) writeonly buffer Y { uint y[]; };\n"
    + _PUSH
    + _MAIN % "y[(i + p.k) % p.n] = x[i]",
    "add": _HEAD
    + "layout(binding = 0) readonly buffer X { uint x[]; };\n"
    + "layout(binding = 1) readonly buffer Y { uint y[]; };\n"
    + "layout(binding = 2) writeonly buffer Z { uint z[]; };\n"
    + _PUSH
    + _MAIN % "z[i] = x[i] + y[i] * p.k",
    # The most that every device allows: 128 bytes of push constants.
    "push": "#version 450\nlayout(local_size_x = 32) in;\n"
    + "layout(binding = 0) writeonly buffer Y { uint y[]; };\n"
    + "layout(push_constant) uniform P { uint v[32]; } p;\n"
    + "void main() { y[gl_GlobalInvocationID.x] = p.v[gl_GlobalInvocationID.x]; }\n",
    "constants": "#version 450\nlayout(local_size_x_id = 0, local_size_y_id = 1) in;\n"
    + "layout(constant_id = 2) const uint A = 7u;\n"
    + "layout(constant_id = 3) const float B = 0.25;\n"
    + "layout(binding = 0) writeonly buffer Y { uint y[]; };\n"
    + "void main() { if (gl_LocalInvocationIndex == 0u) {\n"
    + "y[0] = gl_WorkGroupSize.x; y[1] = gl_WorkGroupSize.y; y[2] = A; y[3] = floatBitsToUint(B); } }\n",
    "groups": "#version 450\nlayout(local_size_x = 2, local_size_y = 3, local_size_z = 4) in;\n"
    + "layout(binding = 0) writeonly buffer Y { uint y[]; };\n"
    + "void main() { uvec3 g = gl_GlobalInvocationID; uvec3 n = gl_NumWorkGroups * gl_WorkGroupSize;\n"
    + "y[(g.z * n.y + g.y) * n.x + g.x] = g.x + 100u * g.y + 10000u * g.z; }\n",
    "eight": _HEAD
    + "".join(f"layout(binding = {i}) readonly buffer X{i} {{ uint x{i}[]; }};\n" for i in range(7))
    + "layout(binding = 7) writeonly buffer Y { uint y[]; };\n"
    + _PUSH
    + _MAIN % ("y[i] = " + " + ".join(f"x{i}[i] * {3**i}u" for i in range(7))),
    "wide": _HEAD.replace("\n", "\n#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require\n", 1)
    + "layout(binding = 0) readonly buffer X { uint x[]; };\n"
    + "layout(binding = 1) writeonly buffer Y { uint y[]; };\n"
    + _PUSH
    + _MAIN % "y[i] = uint((uint64_t(x[i]) * uint64_t(p.k)) >> 32)",
    # The most that every device allows.
    "shared": _HEAD
    + "shared uint s[4096];\n"
    + "layout(binding = 0) writeonly buffer Y { uint y[]; };\n"
    + "void main() { uint l = gl_LocalInvocationID.x; for (uint i = l; i < 4096u; i += 64u) s[i] = i * i;\n"
    + "barrier(); for (uint i = l; i < 4096u; i += 64u) y[i] = s[4095u - i]; }\n",
    "shared_more": _HEAD
    + "shared uint s[1 << 20];\n"
    + "layout(binding = 0) writeonly buffer Y { uint y[]; };\n"
    + "void main() { s[gl_LocalInvocationID.x] = 1u; barrier(); y[0] = s[63]; }\n",
    "shuffle": _HEAD.replace("\n", "\n#extension GL_KHR_shader_subgroup_shuffle : require\n", 1)
    + "layout(binding = 0) writeonly buffer Y { uint y[]; };\n"
    + "void main() { uint i = gl_GlobalInvocationID.x; y[i] = subgroupShuffle(i, 0u); }\n",
    "nine": _HEAD
    + "".join(f"layout(binding = {i}) buffer X{i} {{ uint x{i}[]; }};\n" for i in range(9))
    + _PUSH
    + _MAIN % "; ".join(f"x{i}[i] = p.k" for i in range(9)),
    "gap": _HEAD
    + "layout(binding = 0) readonly buffer X { uint x[]; };\n"
    + "layout(binding = 2) writeonly buffer Y { uint y[]; };\n"
    + _PUSH
    + _MAIN % "y[i] = x[i]",
}


def write_shaders(folder: Path) -> None:
    """Write every kernel to a shaders folder."""
    (folder / "include").mkdir()
    for name, source in SOURCES.items():
        (folder / f"{name}.comp").write_text(source)


class Kernels:
    """The kernels' programs on one backend, built when first asked for."""

    def __init__(self, backend: Backend, folder: Path) -> None:
        self.backend, self.folder = backend, folder
        self._programs: dict[tuple[str, tuple[int, ...]], Program] = {}

    def program(self, name: str, *constants: int) -> Program:
        """A kernel with its specialization constants."""
        key = (name, constants)
        if key not in self._programs:
            module = load(Shader(f"{name}.comp"), self.folder)
            self._programs[key] = self.backend.program(module, constants)
        return self._programs[key]

    def run(self, name: str, *buffers: Any, n: int, k: int) -> None:
        """Dispatch a one-dimensional kernel over `n` elements."""
        groups = (-(-n // LOCAL), 1, 1)
        self.backend.stream.dispatch(self.program(name), buffers, groups, struct.pack("<II", n, k))


def put(backend: Backend, data: npt.NDArray[Any]) -> Any:
    """A new buffer that holds `data`."""
    buffer = backend.allocate(max(data.nbytes, 1))
    backend.stream.upload(buffer, data.view(np.uint8))
    return buffer


def get(backend: Backend, buffer: Any, count: int) -> Words:
    """The first `count` words of a buffer."""
    out = np.full(count, 0xDEADBEEF, np.uint32)
    backend.stream.download(buffer, out.view(np.uint8))
    return out


def poison(backend: Backend, count: int) -> Any:
    """A new buffer of `count` words, all bits set."""
    return put(backend, np.full(count, 0xFFFFFFFF, np.uint32))
