"""The suite's kernels in GLSL: small, and each for one thing that backends get wrong."""

from __future__ import annotations

VERSION = "#version 450\n"
_HEAD = VERSION + "layout(local_size_x = 64) in;\n"
_X = "layout(binding = 0) readonly buffer X { uint x[]; };\n"
_Y = "layout(binding = 1) writeonly buffer Y { uint y[]; };\n"
_OUT = "layout(binding = 0) writeonly buffer Y { uint y[]; };\n"
_IN_PLACE = "layout(binding = 0) buffer Y { uint y[]; };\n"
_PUSH = "layout(push_constant) uniform P { uint n; uint k; } p;\n"
_MAIN = "void main() { uint i = gl_GlobalInvocationID.x; if (i < p.n) { %s; } }\n"
_PLACE = (
    "uvec3 g = gl_GlobalInvocationID, w = gl_WorkGroupID; uint i = (g.z * %s + g.y) * %s + g.x;\n"
    "y[i] = y[i] * 3u + g.x + 131u * g.y + 17161u * g.z + 7u * (w.x + 5u * w.y + 25u * w.z); }\n"
)


def _extended(source: str, *extensions: str) -> str:
    return source.replace(
        VERSION, VERSION + "".join(f"#extension GL_{name} : require\n" for name in extensions), 1
    )


def _one_to_one(body: str) -> str:
    return _HEAD + _X + _Y + _PUSH + _MAIN % body


def _weighted(count: int) -> str:
    """Sums count - 1 buffers, each with a weight of its own, so that none can stand in for another."""
    return (
        _HEAD
        + "".join(
            f"layout(binding = {i}) readonly buffer X{i} {{ uint x{i}[]; }};\n" for i in range(count - 1)
        )
        + f"layout(binding = {count - 1}) writeonly buffer Y {{ uint y[]; }};\n"
        + _PUSH
        + _MAIN % ("y[i] = " + " + ".join(f"x{i}[i] * {3**i}u" for i in range(count - 1)))
    )


SOURCES = {
    # Order
    # y = x * 3 + k: no two orders of a chain of these give the same
    "step": _one_to_one("y[i] = x[i] * 3u + p.k"),
    "step_in_place": _HEAD + _IN_PLACE + _PUSH + _MAIN % "y[i] = y[i] * 3u + p.k",
    # Writes to its neighbour's place, so that a missing barrier cannot hide within one invocation.
    "rotate": _one_to_one("y[(i + p.k) % p.n] = x[i]"),
    "add": _HEAD
    + _X
    + "layout(binding = 1) readonly buffer Y { uint y[]; };\n"
    + "layout(binding = 2) writeonly buffer Z { uint z[]; };\n"
    + _PUSH
    + _MAIN % "z[i] = x[i] + y[i] * p.k",
    # Takes as long as k says.
    "busy": _HEAD
    + _IN_PLACE
    + _PUSH
    + _MAIN % "uint v = y[i]; for (uint j = 0u; j < p.k; ++j) v = v * 1664525u + 1013904223u; y[i] = v",
    # Arguments
    # The most that every device allows: 128 bytes of push constants.
    "push": VERSION
    + "layout(local_size_x = 32) in;\n"
    + _OUT
    + "layout(push_constant) uniform P { uint v[32]; } p;\n"
    + "void main() { y[gl_GlobalInvocationID.x] = p.v[gl_GlobalInvocationID.x]; }\n",
    "constants": VERSION
    + "layout(local_size_x_id = 0, local_size_y_id = 1) in;\n"
    + "layout(constant_id = 2) const uint A = 7u;\n"
    + "layout(constant_id = 3) const float B = 0.25;\n"
    + _OUT
    + "void main() { if (gl_LocalInvocationIndex == 0u) {\n"
    + "y[0] = gl_WorkGroupSize.x; y[1] = gl_WorkGroupSize.y; y[2] = A; y[3] = floatBitsToUint(B); } }\n",
    "four": _weighted(4),
    "eight": _weighted(8),
    "nine": _HEAD
    + "".join(f"layout(binding = {i}) buffer X{i} {{ uint x{i}[]; }};\n" for i in range(9))
    + _PUSH
    + _MAIN % "; ".join(f"x{i}[i] = p.k" for i in range(9)),
    "gap": _HEAD
    + _X
    + "layout(binding = 2) writeonly buffer Y { uint y[]; };\n"
    + _PUSH
    + _MAIN % "y[i] = x[i]",
    # Grids. In place, so that a workgroup that runs twice shows.
    "groups": VERSION
    + "layout(local_size_x = 2, local_size_y = 3, local_size_z = 4) in;\n"
    + _IN_PLACE
    + "void main() { uvec3 n = gl_NumWorkGroups * gl_WorkGroupSize;\n"
    + _PLACE % ("n.y", "n.x"),
    # The same without gl_NumWorkGroups, which the parts of a grid see differently: n and k are its sides.
    "placed": VERSION
    + "layout(local_size_x = 2, local_size_y = 3, local_size_z = 4) in;\n"
    + _IN_PLACE
    + _PUSH
    + "void main() {\n"
    + _PLACE % ("p.k", "p.n"),
    "line": VERSION
    + "layout(local_size_x = 1) in;\n"
    + _IN_PLACE
    + _PUSH
    + "void main() { uvec3 g = gl_GlobalInvocationID; uint i = g.x + g.y + g.z;\n"
    + "y[i] = y[i] * 3u + i + p.k; }\n",
    "sized": VERSION
    + "layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;\n"
    + _IN_PLACE
    + "void main() { uvec3 s = gl_WorkGroupSize;\n"
    + "uint i = gl_WorkGroupID.x * s.x * s.y * s.z + gl_LocalInvocationIndex; y[i] = y[i] * 3u + i; }\n",
    # The most that every device allows.
    "shared": _HEAD
    + "shared uint s[4096];\n"
    + _OUT
    + "void main() { uint l = gl_LocalInvocationID.x; for (uint i = l; i < 4096u; i += 64u) s[i] = i * i;\n"
    + "barrier(); for (uint i = l; i < 4096u; i += 64u) y[i] = s[4095u - i]; }\n",
    "shared_more": _HEAD
    + "shared uint s[1 << 20];\n"
    + _OUT
    + "void main() { s[gl_LocalInvocationID.x] = 1u; barrier(); y[0] = s[63]; }\n",
    # Optional features
    "int64": _extended(
        _one_to_one("y[i] = uint((uint64_t(x[i]) * uint64_t(p.k)) >> 32)"),
        "EXT_shader_explicit_arithmetic_types_int64",
    ),
    "int16": _extended(
        _one_to_one("y[i] = uint(uint16_t(x[i]) * uint16_t(p.k))"),
        "EXT_shader_explicit_arithmetic_types_int16",
    ),
    "int8": _extended(
        _one_to_one("y[i] = uint(uint8_t(x[i]) * uint8_t(p.k))"),
        "EXT_shader_explicit_arithmetic_types_int8",
    ),
    "float16": _extended(
        _one_to_one("y[i] = floatBitsToUint(float(float16_t(float(x[i])) * float16_t(float(p.k))))"),
        "EXT_shader_explicit_arithmetic_types_float16",
    ),
    "storage16": _extended(
        _one_to_one("y[i] = uint16_t(uint(x[i]) * 3u + p.k)").replace("uint x[]", "uint16_t x[]")
        .replace("uint y[]", "uint16_t y[]"),
        "EXT_shader_16bit_storage",
    ),
    "storage8": _extended(
        _one_to_one("y[i] = uint8_t(uint(x[i]) * 3u + p.k)").replace("uint x[]", "uint8_t x[]")
        .replace("uint y[]", "uint8_t y[]"),
        "EXT_shader_8bit_storage",
    ),
    "integer_dot_product": _one_to_one("y[i] = uint(bitfieldInsert(int(x[i]), int(p.k), 0, 32))"),
    "subgroup_shuffle": _extended(
        _HEAD
        + _OUT
        + "void main() { uint i = gl_GlobalInvocationID.x; y[i] = subgroupShuffle(i, 0u); }\n",
        "KHR_shader_subgroup_shuffle",
    ),
    # And the least index, which tells the subgroups apart.
    "subgroup_arithmetic": _extended(
        _HEAD
        + _X
        + _Y
        + "layout(binding = 2) writeonly buffer Z { uint z[]; };\n"
        + "void main() { uint i = gl_GlobalInvocationID.x;\n"
        + "y[i] = subgroupAdd(x[i]); z[i] = subgroupMin(i); }\n",
        "KHR_shader_subgroup_arithmetic",
    ),
}  # fmt: skip

MACROS = {"integer_dot_product": (("DOT", "1"), ("SIGNED", "1"))}
"""The macros of kernels that have any: these have their instructions put in, see integer_dots.py."""
