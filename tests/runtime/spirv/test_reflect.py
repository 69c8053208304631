"""Reflection: facts of hand-written shaders, and damaged modules that are refused."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from dl4all.errors import BackendMissingError, ShaderError
from dl4all.runtime.spirv import BufferBinding, Interface, compilers
from dl4all.runtime.spirv.parser import MAGIC, Decoration, Mode, SpirvOp, StorageClass
from dl4all.runtime.spirv.reflect import PushConstant, reflect

BUFFER = "layout(binding = 0) buffer X { float x[]; };\n"

FLOATS = frozenset({"float"})


def compiled(folder: Path, source: str) -> bytes:
    """SPIR-V of a shader that is given without its version line."""
    file = folder / "shader.comp"
    file.write_text("#version 450\n" + source)
    try:
        compile = compilers.pick().compile
    except BackendMissingError as error:
        pytest.skip(str(error))
    return compile(file, [], [])


@pytest.fixture
def interface(tmp_path: Path) -> Callable[[str], Interface]:
    """The interface of a source."""
    return lambda source: reflect(compiled(tmp_path, source))


def test_a_whole_interface(interface: Callable[[str], Interface]) -> None:
    got = interface(
        """layout(local_size_x_id = 3, local_size_y = 2) in;
        layout(constant_id = 9) const float SCALE = 1.0;
        layout(constant_id = 5) const bool FLIP = false;
        layout(binding = 4) writeonly buffer Y { float y[]; };
        layout(binding = 1) readonly buffer X { float x[]; };
        layout(binding = 2) buffer Z { float z[]; };
        layout(push_constant) uniform Params { uint n; } p;
        void main() {
            uint i = gl_GlobalInvocationID.x;
            if (i < p.n) { y[i] = FLIP ? -x[i] : x[i] * SCALE; z[i] += 1.0; }
        }"""
    )
    assert got == Interface(
        entry="main",
        bindings=(
            BufferBinding(1, True, False, FLOATS),
            BufferBinding(2, False, False, FLOATS),
            BufferBinding(4, False, True, FLOATS),
        ),
        push_bytes=4,
        spec_ids=(3, 5, 9),
        local_size=(1, 2, 1),
        local_size_ids=(3, None, None),
        capabilities=("Shader",),
        push=(PushConstant("n", "uint", 0),),
    )


@pytest.mark.parametrize(
    ("members", "use", "size"),
    [
        ("uint a;", "p.a", 4),
        ("float a; int b; uint c;", "p.c", 12),
        ("float a[5];", "p.a[1]", 20),
        ("uint n; uint strides[6]; uint shape[6];", "p.shape[1]", 52),
        ("uint a; vec4 b;", "p.b.x", 32),
        ("vec3 a[2];", "p.a[1].x", 32),
        ("vec2 a; vec3 b;", "p.b.x", 28),
        ("float a[2][3];", "p.a[1][2]", 24),
        ("mat4 a; float b;", "p.b", 68),
        ("layout(row_major) mat3x2 a;", "p.a[1][1]", 32),
    ],
)
def test_push_constants_are_measured(
    interface: Callable[[str], Interface], members: str, use: str, size: int
) -> None:
    push = f"layout(push_constant) uniform Params {{ {members} }} p;"
    assert interface(BUFFER + push + f"void main() {{ x[0] = float({use}); }}").push_bytes == size


def test_a_struct_in_push_constants_is_measured(interface: Callable[[str], Interface]) -> None:
    source = BUFFER + (
        "struct View { uint offset; uint strides[4]; };"
        "layout(push_constant) uniform Params { uint n; View views[2]; } p;"
        "void main() { x[p.n] = float(p.views[1].strides[2]); }"
    )
    assert interface(source).push_bytes == 44


def test_a_fixed_local_size(interface: Callable[[str], Interface]) -> None:
    got = interface(
        "layout(local_size_x = 8, local_size_y = 4, local_size_z = 2) in;" + BUFFER + "void main() {}"
    )
    assert (got.local_size, got.local_size_ids) == ((8, 4, 2), (None, None, None))
    assert (got.push_bytes, got.spec_ids) == (0, ())


def test_local_size_from_spec_constants_with_defaults(interface: Callable[[str], Interface]) -> None:
    got = interface(
        "layout(local_size_x = 64, local_size_x_id = 0, local_size_z_id = 2) in;"
        + BUFFER
        + "void main() { x[gl_WorkGroupSize.x] = 1.0; }"
    )
    assert (got.local_size, got.local_size_ids) == ((64, 1, 1), (0, None, 2))
    assert got.spec_ids == (0, 2)


def test_the_scalars_of_buffers_and_vectors_of_push_constants(interface: Callable[[str], Interface]) -> None:
    got = interface(
        """layout(binding = 0) readonly buffer A { ivec3 a[]; };
        struct Pair { uint key; float value; };
        layout(binding = 1) readonly buffer B { Pair b[4]; };
        layout(binding = 2) buffer C { double c[]; };
        layout(push_constant) uniform P { vec3 v; int n; uvec2 u; ivec4 w[2]; };
        void main() { c[0] = a[n].x + b[u.y].value + v.x + w[0].y; }"""
    )
    assert [binding.scalars for binding in got.bindings] == [{"int"}, {"uint", "float"}, {"double"}]
    assert [one.type for one in got.push] == ["vec3", "int", "uvec2", "ivec4[]"]


def test_two_views_of_a_buffer_are_one_binding(interface: Callable[[str], Interface]) -> None:
    got = interface(
        "layout(binding = 0) readonly buffer A { float a[]; };"
        "layout(binding = 0) readonly buffer B { vec4 b[]; };"
        "layout(binding = 1) readonly buffer C { float c[]; }; layout(binding = 1) buffer D { vec4 d[]; };"
        "void main() { d[0] = b[0] + a[0] + c[9]; }"
    )
    assert got.bindings == (BufferBinding(0, True, False, FLOATS), BufferBinding(1, False, False, FLOATS))


@pytest.mark.parametrize(
    ("declaration", "use", "size"),
    [
        ("", "1.0", 0),
        ("shared float s;", "s", 4),
        ("shared float s[64];", "s[3]", 256),
        ("shared vec3 s[5];", "s[3].x", 60),
        ("shared mat4 s[2];", "s[1][1][1]", 128),
        ("shared bool s[8];", "float(s[2])", 32),
        ("struct S { vec2 a; float b[3]; }; shared S s[4];", "s[1].b[2]", 80),
        ("shared float s[64]; shared uint t[2][3];", "s[3] + float(t[1][2])", 280),
        ("layout(constant_id = 0) const uint N = 32u; shared float s[N];", "s[3]", 128),
        ("layout(constant_id = 0) const uint N = 32u; shared float s[N * 2u];", "s[3]", 4),
    ],
)
def test_shared_memory(interface: Callable[[str], Interface], declaration: str, use: str, size: int) -> None:
    got = interface(f"{declaration} {BUFFER} void main() {{ x[0] = {use}; }}")
    assert got.shared_bytes == size


def test_capabilities_are_named(interface: Callable[[str], Interface]) -> None:
    got = interface(
        "#extension GL_EXT_shader_16bit_storage : require\n"
        "#extension GL_KHR_shader_subgroup_arithmetic : require\n"
        "layout(binding = 0) buffer X { float16_t x[]; };\n"
        "void main() { x[0] = float16_t(subgroupAdd(float(x[1]))); }"
    )
    assert set(got.capabilities) >= {"Shader", "StorageBuffer16BitAccess", "GroupNonUniformArithmetic"}


@pytest.mark.parametrize(
    ("declaration", "use", "message"),
    [
        ("layout(set = 1, binding = 0) buffer X { float x[]; };", "x[0] = 1.0;", "descriptor set 1, not 0"),
        ("layout(binding = 2) uniform U { float u; };" + BUFFER, "x[0] = u;", "binding 2 is not one storage"),
        (
            "layout(binding = 3) buffer X { float x[]; } many[2];",
            "many[1].x[0] = 1.0;",
            "binding 3 is not one",
        ),
    ],
)
def test_what_dl4all_cannot_give_is_refused(
    interface: Callable[[str], Interface], declaration: str, use: str, message: str
) -> None:
    with pytest.raises(ShaderError, match=message):
        interface(declaration + "void main() {" + use + "}")


def instruction(op: int, *operands: int) -> bytes:
    """One instruction."""
    return struct.pack(f"<{1 + len(operands)}I", (1 + len(operands)) << 16 | op, *operands)


ENTRY = instruction(SpirvOp.ENTRY_POINT, 5, 1, *struct.unpack("<2I", b"main\0\0\0\0"))
SIZE = instruction(SpirvOp.EXECUTION_MODE, 1, Mode.LOCAL_SIZE, 8, 1, 1)
MAIN = instruction(SpirvOp.FUNCTION, 2, 1, 0, 3) + instruction(SpirvOp.FUNCTION_END)


def module(*instructions: bytes) -> bytes:
    """Instructions behind a header."""
    return struct.pack("<5I", MAGIC, 0x010300, 0, 100, 0) + b"".join(instructions)


def test_qualifiers_on_the_variable_count() -> None:
    """Newer glslang writes readonly there, where 11 writes it on each member."""
    code = module(
        ENTRY,
        SIZE,
        instruction(SpirvOp.DECORATE, 12, Decoration.BINDING, 3),
        instruction(SpirvOp.DECORATE, 12, Decoration.DESCRIPTOR_SET, 0),
        instruction(SpirvOp.DECORATE, 12, Decoration.NON_WRITABLE),
        instruction(SpirvOp.TYPE_FLOAT, 9, 32),
        instruction(SpirvOp.TYPE_STRUCT, 10, 9),
        instruction(SpirvOp.TYPE_POINTER, 11, StorageClass.STORAGE_BUFFER, 10),
        instruction(SpirvOp.VARIABLE, 11, 12, StorageClass.STORAGE_BUFFER),
        MAIN,
    )
    assert reflect(code).bindings == (BufferBinding(3, True, False, FLOATS),)


def test_qualifiers_on_some_members_do_not_count() -> None:
    code = module(
        ENTRY,
        SIZE,
        instruction(SpirvOp.DECORATE, 12, Decoration.BINDING, 0),
        instruction(SpirvOp.MEMBER_DECORATE, 10, 1, Decoration.NON_WRITABLE),
        instruction(SpirvOp.TYPE_FLOAT, 9, 32),
        instruction(SpirvOp.TYPE_STRUCT, 10, 9, 9),
        instruction(SpirvOp.TYPE_POINTER, 11, StorageClass.STORAGE_BUFFER, 10),
        instruction(SpirvOp.VARIABLE, 11, 12, StorageClass.STORAGE_BUFFER),
        MAIN,
    )
    assert reflect(code).bindings == (BufferBinding(0, False, False, FLOATS),)


def test_local_size_id() -> None:
    """SPIR-V 1.6 names the sides by constants instead of decorating a built-in."""
    code = module(
        ENTRY,
        instruction(SpirvOp.EXECUTION_MODE_ID, 1, Mode.LOCAL_SIZE_ID, 21, 22, 22),
        instruction(SpirvOp.DECORATE, 21, Decoration.SPEC_ID, 6),
        instruction(SpirvOp.SPEC_CONSTANT, 20, 21, 32),
        instruction(SpirvOp.CONSTANT, 20, 22, 1),
        MAIN,
    )
    got = reflect(code)
    assert (got.local_size, got.local_size_ids) == ((32, 1, 1), (6, None, None))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (b"", "0 bytes"),
        (module(ENTRY, SIZE, MAIN)[:-1], "bytes"),
        (b"\x07\x23\x02\x03" + bytes(20), "not SPIR-V"),
        (module(SIZE, MAIN), "expected one entry point, got 0"),
        (module(ENTRY, ENTRY, SIZE, MAIN), "expected one entry point, got 2"),
        (module(instruction(SpirvOp.ENTRY_POINT, 4, 1, 0), SIZE, MAIN), "execution model 4"),
        (module(ENTRY, MAIN), "no local size"),
        (module(ENTRY, SIZE, instruction(0)[:2] + b"\0\0", MAIN), "does not end"),
        (
            module(ENTRY, SIZE, instruction(SpirvOp.FUNCTION, 2, 8, 0, 3), instruction(SpirvOp.FUNCTION_END)),
            "missing",
        ),
        (module(ENTRY, SIZE, instruction(SpirvOp.FUNCTION_CALL, 2, 7, 8), MAIN), "functions are missing"),
        (
            module(ENTRY, SIZE, instruction(SpirvOp.VARIABLE, 50, 51, StorageClass.PUSH_CONSTANT), MAIN),
            "damaged",
        ),
        (module(ENTRY, SIZE, instruction(SpirvOp.DECORATE), MAIN), "damaged"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_damaged_module_is_refused(code: bytes, message: str) -> None:
    with pytest.raises(ShaderError, match=f"broken.spv: .*{message}"):
        reflect(code, "broken.spv")


def test_a_type_that_holds_itself_is_refused() -> None:
    code = module(
        ENTRY,
        SIZE,
        instruction(SpirvOp.MEMBER_DECORATE, 10, 0, Decoration.OFFSET, 0),
        instruction(SpirvOp.TYPE_STRUCT, 10, 10),
        instruction(SpirvOp.TYPE_POINTER, 11, StorageClass.PUSH_CONSTANT, 10),
        instruction(SpirvOp.VARIABLE, 11, 12, StorageClass.PUSH_CONSTANT),
        MAIN,
    )
    with pytest.raises(ShaderError, match="RecursionError"):
        reflect(code)


def test_a_module_cut_at_any_word_is_refused(tmp_path: Path) -> None:
    code = compiled(tmp_path, BUFFER + "float f(float v) { return v + 1.0; } void main() { x[0] = f(x[1]); }")
    reflect(code)
    for end in range(0, len(code), 4):
        with pytest.raises(ShaderError):
            reflect(code[:end])


def test_a_changed_word_never_raises_anything_else(tmp_path: Path) -> None:
    push = "layout(push_constant) uniform P { uint n; vec2 v[3]; } p;"
    code = compiled(
        tmp_path, "layout(local_size_x_id = 0) in;" + BUFFER + push + "void main() { x[p.n] = p.v[1].x; }"
    )
    rng = random.Random(7)
    refused = 0
    for word in range(len(code) // 4):
        for value in (0, 0xFFFFFFFF, 0x00010000, rng.randrange(64), rng.randrange(1 << 32)):
            changed = code[: 4 * word] + struct.pack("<I", value) + code[4 * word + 4 :]
            try:
                reflect(changed)
            except ShaderError:
                refused += 1
    assert refused > len(code) // 4
