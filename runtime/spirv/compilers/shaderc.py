"""GLSL to SPIR-V in this process, through libshaderc's C interface."""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import functools
import os
from collections.abc import Sequence
from ctypes import c_char_p, c_int, c_size_t, c_uint32, c_void_p
from pathlib import Path

from dl4all.errors import ShaderError

NAMES = (
    "libshaderc.so.1",
    "libshaderc_shared.so.1",
    "libshaderc_shared.so",
    "libshaderc.so",
    "libshaderc_shared.1.dylib",
    "libshaderc_shared.dylib",
    "shaderc_shared.dll",
)

# From shaderc/shaderc.h and shaderc/env.h.
COMPUTE = 2
TARGET_VULKAN, VULKAN_1_1 = 0, (1 << 22) | (1 << 12)
SPIRV_1_3 = 0x010300
RELATIVE = 0  # #include "x", as against #include <x>
SUCCESS = 0

# glslang recurses for each level and overflows the C stack of our own process in a circle of includes.
MAX_INCLUDE_DEPTH = 64


class IncludeResult(ctypes.Structure):
    """The result of an include callback for shaderc; an empty name means that ``content`` is an error."""

    _fields_ = (
        ("name", c_char_p),
        ("name_length", c_size_t),
        ("content", c_char_p),
        ("content_length", c_size_t),
        ("user_data", c_void_p),
    )


class DlInfo(ctypes.Structure):
    """The answer of dladdr() about an address."""

    _fields_ = (("file", c_char_p), ("base", c_void_p), ("symbol", c_char_p), ("address", c_void_p))


# A ctypes callback cannot return POINTER(IncludeResult), hence the address as void*.
IncludeResolver = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_char_p, c_int, c_char_p, c_size_t)
IncludeReleaser = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)

SIGNATURES: dict[str, tuple[type | None, list[type]]] = {
    "compiler_initialize": (c_void_p, []),
    "compile_options_initialize": (c_void_p, []),
    "compile_options_release": (None, [c_void_p]),
    "compile_options_add_macro_definition": (None, [c_void_p, c_char_p, c_size_t, c_char_p, c_size_t]),
    "compile_options_set_target_env": (None, [c_void_p, c_int, c_uint32]),
    "compile_options_set_target_spirv": (None, [c_void_p, c_int]),
    "compile_options_set_include_callbacks": (
        None,
        [c_void_p, IncludeResolver, IncludeReleaser, c_void_p],
    ),
    "compile_into_spv": (
        c_void_p,
        [c_void_p, c_char_p, c_size_t, c_int, c_char_p, c_char_p, c_void_p],
    ),
    "result_get_compilation_status": (c_int, [c_void_p]),
    "result_get_error_message": (c_char_p, [c_void_p]),
    "result_get_bytes": (c_void_p, [c_void_p]),
    "result_get_length": (c_size_t, [c_void_p]),
    "result_release": (None, [c_void_p]),
}


@functools.cache
def library() -> ctypes.CDLL | None:
    """libshaderc, or None where there is none that loads."""
    for name in NAMES:
        with contextlib.suppress(OSError):
            return _open(name)
    for stem in ("shaderc", "shaderc_shared"):  # last: it may run ldconfig or gcc
        found = ctypes.util.find_library(stem)
        if found is not None:
            with contextlib.suppress(OSError):
                return _open(found)
    return None


def load_errors() -> list[str]:
    """Why those libraries that are there do not load."""
    errors = []
    for name in NAMES:
        try:
            _open(name)
        except OSError as error:
            errors.append(str(error))
    return [error for error in errors if "No such file" not in error]


@functools.cache
def identity() -> str | None:
    """Which build of the library this is, or None where it is not installed."""
    lib = library()
    if lib is None:
        return None
    # shaderc tells no version of its own, so the file stands for it.
    file = _file_of(lib)
    try:
        stat = file.stat()
    except OSError:
        return f"shaderc {file.name}"
    return f"shaderc {file.resolve().name} {stat.st_size} {stat.st_mtime_ns}"


def compile(file: Path, defines: Sequence[tuple[str, str]], include_dirs: Sequence[Path]) -> bytes:
    """Compile a GLSL file to SPIR-V; includes are found beside the includer, then in the folders."""
    lib = library()
    if lib is None:
        raise ShaderError("libshaderc is not installed")
    source = file.read_bytes()
    results: list[IncludeResult] = []  # alive until the compile is over

    def resolve(_: int | None, requested: bytes, kind: int, requesting: bytes, depth: int) -> int:
        results.append(_include(requested, kind, requesting, depth, include_dirs))
        return ctypes.addressof(results[-1])

    resolver, releaser = IncludeResolver(resolve), IncludeReleaser(lambda _, __: None)
    options = lib.shaderc_compile_options_initialize()
    result = None
    try:
        lib.shaderc_compile_options_set_target_env(options, TARGET_VULKAN, VULKAN_1_1)
        lib.shaderc_compile_options_set_target_spirv(options, SPIRV_1_3)
        lib.shaderc_compile_options_set_include_callbacks(options, resolver, releaser, None)
        for name, value in defines:
            n, v = name.encode(), value.encode()
            lib.shaderc_compile_options_add_macro_definition(options, n, len(n), v, len(v))
        result = lib.shaderc_compile_into_spv(
            _compiler(), source, len(source), COMPUTE, os.fsencode(file), b"main", options
        )
        if lib.shaderc_result_get_compilation_status(result) != SUCCESS:
            message: bytes = lib.shaderc_result_get_error_message(result)
            raise ShaderError(message.decode(errors="replace").strip())
        return ctypes.string_at(lib.shaderc_result_get_bytes(result), lib.shaderc_result_get_length(result))
    finally:
        lib.shaderc_result_release(result)
        lib.shaderc_compile_options_release(options)


@functools.cache
def _compiler() -> int:
    # One for the life of the process: the first sets up glslang's symbol tables. Compiling is thread safe.
    lib = library()
    assert lib is not None
    compiler: int = lib.shaderc_compiler_initialize()
    return compiler


def _include(
    requested: bytes, kind: int, requesting: bytes, depth: int, include_dirs: Sequence[Path]
) -> IncludeResult:
    folders = list(include_dirs)
    if kind == RELATIVE:
        folders.insert(0, Path(os.fsdecode(requesting)).parent)
    if depth > MAX_INCLUDE_DEPTH:
        return _refuse(f"includes are nested more than {MAX_INCLUDE_DEPTH} deep; is there a circle?")
    for folder in folders:
        file = folder / os.fsdecode(requested)
        if file.is_file():
            try:
                content = file.read_bytes()
            except OSError as error:
                return _refuse(f"cannot read {file}: {error.strerror}")
            name = os.fsencode(file)
            return IncludeResult(name, len(name), content, len(content), None)
    return _refuse("cannot find it in " + ", ".join(map(str, folders)))


def _refuse(reason: str) -> IncludeResult:
    content = reason.encode()
    return IncludeResult(b"", 0, content, len(content), None)


def _open(name: str) -> ctypes.CDLL:
    lib = ctypes.CDLL(name)
    try:
        for function, (result, arguments) in SIGNATURES.items():
            symbol = getattr(lib, f"shaderc_{function}")
            symbol.restype, symbol.argtypes = result, arguments
    except AttributeError as error:
        raise OSError(str(error)) from None
    return lib


def _file_of(lib: ctypes.CDLL) -> Path:
    """The file in which the loader found the library."""
    info = DlInfo()
    try:
        dladdr = ctypes.CDLL(None).dladdr
    except (TypeError, AttributeError):  # Windows
        return Path(lib._name)
    found = dladdr(ctypes.cast(lib.shaderc_compile_into_spv, c_void_p), ctypes.byref(info))
    return Path(os.fsdecode(info.file)) if found and info.file else Path(lib._name)
