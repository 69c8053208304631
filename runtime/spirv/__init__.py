"""GLSL in, checked SPIR-V out.

``load(Shader("elementwise/unary.comp", (("OP(x)", "-x"),)))`` gives the module from memory, from the wheel,
from the user's cache, or from a compiler, in this order. What the wheel holds needs no compiler. A file that
holds no module is passed over, and built anew in the user's cache.

A shader whose text was generated carries it as ``source``. ``DL4ALL_DUMP`` names a folder into which such
texts are written when they are loaded.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from dl4all import config
from dl4all.errors import BackendMissingError, ConfigError, ShaderError
from dl4all.runtime import fork
from dl4all.runtime.bounded_dict import BoundedDict
from dl4all.runtime.records import file_cache
from dl4all.runtime.spirv import compilers, module_store
from dl4all.runtime.spirv.compilers.source import Source
from dl4all.runtime.spirv.integer_dots import with_integer_dots
from dl4all.runtime.spirv.reflect import BufferBinding, Interface, reflect
from dl4all.runtime.spirv.storage_types import NotRewritable, StorageType, holds_floats, rewrite

__all__ = ["BufferBinding", "Interface", "Shader", "SpirvModule", "build", "load"]

# Beside runtime/ in a wheel and in a checkout. Not imported: runtime imports nothing that is above it.
SHADERS = Path(__file__).absolute().parents[2] / "shaders"


@dataclass(frozen=True)
class Shader:
    """A shader to build: a .comp file, named from the shaders folder, and the macros it is compiled with.

    With a ``source`` there is no such file: it is the text, and the path is a name for people.
    """

    path: str
    defines: tuple[tuple[str, str], ...] = ()
    source: str = ""

    @property
    def macros(self) -> dict[str, int | str]:
        """The macros by name; numbers are ints.

        >>> Shader("a.comp", (("FOLD", "1"), ("WORD", "uint"))).macros
        {'FOLD': 1, 'WORD': 'uint'}
        """
        return {name: int(text) if text.lstrip("-").isdecimal() else text for name, text in self.defines}

    def with_macros(self, macros: Mapping[str, object]) -> Shader:
        """The shader with these macros as well, or in the place of its own.

        >>> Shader("a.comp", (("FOLD", "1"),)).with_macros({"FOLD": 0, "BIAS": 1}).defines
        (('BIAS', '1'), ('FOLD', '0'))
        """
        texts = dict(self.defines) | {name: str(value) for name, value in macros.items()}
        return replace(self, defines=tuple(sorted(texts.items())))

    def storing(self, types: Sequence[StorageType | None]) -> Shader:
        """The same shader with floats of 16 bits at some bindings, in their order, where it has float32.

        >>> Shader("a.comp").storing([StorageType("bfloat16", in_words=True), None]).defines
        (('STORAGE', 'bfloat16_words,'),)
        """
        return self.with_macros({STORAGE: ",".join(map(_storage_name, types))})

    def storing_at(self, types: Mapping[int, StorageType | None]) -> Shader:
        """The same shader with other floats at these bindings, and what it has at all others.

        >>> Shader("a.comp", (("STORAGE", "bfloat16,"),)).storing_at({2: StorageType("float16")}).defines
        (('STORAGE', 'bfloat16,,float16'),)
        """
        own: dict[int, StorageType | None] = {**_storage_types(dict(self.defines).get(STORAGE, "")), **types}
        found = [own.get(binding) for binding in range(1 + max(own, default=-1))]
        return self.storing(found) if any(found) else self.plain

    def holds_floats(self, binding: int) -> bool:
        """Whether a binding is an array of floats, where the compiler has made the module."""
        return holds_floats(load(self).code, binding)

    @property
    def plain(self) -> Shader:
        """The same shader with float32 at all bindings.

        >>> Shader("a.comp").storing([StorageType("float16")]).plain
        Shader(path='a.comp', defines=(), source='')
        """
        return replace(self, defines=tuple(one for one in self.defines if one[0] != STORAGE))

    @property
    def name(self) -> str:
        """The path and the defines: what errors and profiles show."""
        return " ".join([self.path, *(f"-D{name}={value}" for name, value in sorted(self.defines))])


STORAGE = "STORAGE"
"""The macro that names the floats that bindings hold: the module is rewritten, see storage_types.py."""

DOT = "DOT"
"""The macro of shaders that multiply bytes by an instruction, where it is 1: see integer_dots.py."""

WORDS = "_words"


def _storage_name(type: StorageType | None) -> str:
    return "" if type is None else type.element + WORDS * type.in_words


def _storage_types(names: str) -> dict[int, StorageType]:
    """The types by binding, of what :meth:`Shader.storing` wrote."""
    return {
        binding: StorageType(name.removesuffix(WORDS), name.endswith(WORDS))
        for binding, name in enumerate(names.split(","))
        if name
    }


class DeclaredConstants(Protocol):
    """Push constants that shaders with some macros are declared to begin with."""

    fields: tuple[tuple[str, str], ...]  # types in GLSL, and names
    macros: frozenset[tuple[str, str]]


PUSH_CONSTANTS: dict[str, list[DeclaredConstants]] = {}
"""Declarations by the paths of shaders."""


def declared_constants(shader: Shader) -> list[DeclaredConstants]:
    """The push constants that are declared for a shader with its macros."""
    return [one for one in PUSH_CONSTANTS.get(shader.path, ()) if one.macros.issubset(shader.defines)]


@dataclass(frozen=True)
class SpirvModule:
    """A compiled shader, as a backend takes it."""

    name: str
    code: bytes
    interface: Interface


# Some 900 shaders are declared when dl4all is imported, and no size is in a define. Any number may be
# generated while a program runs.
_loaded: dict[tuple[Path, Shader], SpirvModule] = BoundedDict(4096)
_lock = fork.lock()
log = logging.getLogger("dl4all")


def load(shader: Shader, root: Path = SHADERS) -> SpirvModule:
    """The module of a shader. Safe to call from any thread; the same shader gives the same object."""
    module = _loaded.get((root, shader))
    if module is None:
        # Not under the lock, so that threads compile side by side; the first to finish is kept.
        if shader.source:
            _dump(shader)
        module = _find_or_compile(shader, root)
        with _lock:
            kept = _loaded.get((root, shader))
            if kept is not None:
                return kept
            _loaded[root, shader] = module
    return module


def can_compile() -> bool:
    """Whether there is a compiler."""
    try:
        compilers.pick()
    except BackendMissingError:
        return False
    return True


def is_built(shader: Shader) -> bool:
    """Whether a shader can be loaded: a machine may have no compiler."""
    try:
        load(shader)
    except BackendMissingError:
        return False
    return True


def load_all(shaders: Iterable[Shader]) -> None:
    """Load shaders, and compile those that are new side by side.

    Raises:
        BackendMissingError, ShaderError: as :func:`load`.
    """
    missing = [shader for shader in dict.fromkeys(shaders) if (SHADERS, shader) not in _loaded]
    if len(missing) > 1:
        compile_missing(missing)
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            list(pool.map(load, missing))


def compile_missing(shaders: Iterable[Shader], root: Path = SHADERS) -> None:
    """Compile shaders that neither the wheel nor the user's cache holds, many by each run of the compiler.

    Nothing is done without a compiler that can do that. What does not compile is left for :func:`load`,
    which says why.
    """
    try:
        tool = compilers.pick()
    except BackendMissingError:
        return
    if tool.compile_all is None:
        return
    compile_all, workers = tool.compile_all, os.cpu_count() or 1
    includes = functools.cache(_includes)
    by_folder: dict[tuple[Path, ...], dict[Path, Source]] = {}  # files to be, by where includes are found
    for shader in dict.fromkeys(shader.plain for shader in shaders):
        key = _key(shader, root, includes)
        made = module_store.user_file(key, tool.identity)
        if not module_store.bundled_file(root, key).is_file() and not made.is_file():
            near = () if shader.source else ((root / shader.path).parent,)
            source = Source(_text(shader, root), sorted(shader.defines))
            by_folder.setdefault((*near, root / "include"), {})[made] = source

    def run(folders: tuple[Path, ...], files: list[Path]) -> None:
        sources = by_folder[folders]
        with contextlib.suppress(ShaderError):
            made = compile_all([sources[file] for file in files], folders)
            for file, code in zip(files, made, strict=True):
                if code is not None:
                    file_cache.try_write(file, code)

    with ThreadPoolExecutor(max_workers=workers) as pool:
        runs = [
            pool.submit(run, folders, list(sources)[first::workers])
            for folders, sources in by_folder.items()
            for first in range(min(workers, len(sources)))
        ]
        for each in runs:
            each.result()


def build(
    shaders: Iterable[Shader], folder: Path, root: Path = SHADERS, *, optional: Iterable[Shader] = ()
) -> list[Path]:
    """Compile shaders into a folder, for the wheel, where it is ``dl4all/shaders/spirv``.

    Those that are `optional` are left out where the compiler does not know what they use.

    Raises:
        BackendMissingError: there is no compiler.
        ShaderError: one that is not optional does not compile.
    """
    tool = compilers.pick()
    written, can_be_missing = [], frozenset(optional)
    wanted = list(dict.fromkeys((*shaders, *can_be_missing)))
    compile_missing(wanted, root)
    for shader in wanted:
        key = _key(shader, root)
        try:
            # What this compiler made of the same source before is the same.
            module = _read(shader, module_store.user_file(key, tool.identity)) or _module(
                shader, _compile(shader, root, tool.compile)
            )
        except ShaderError:
            if shader in can_be_missing:
                continue
            raise
        file_cache.write(folder / f"{key}.spv", module.code)
        written.append(folder / f"{key}.spv")
    return written


def _find_or_compile(shader: Shader, root: Path) -> SpirvModule:
    """
    Raises:
        NotRewritable: it cannot hold floats of 16 bits where it is asked to.
    """
    macros = shader.macros
    if macros.get(DOT) == 1:
        code = with_integer_dots(_compiled(shader, root).code, signed=macros["SIGNED"] == 1)
        return _module(shader, code)
    stored = dict(shader.defines).get(STORAGE)
    if stored is not None:
        try:
            return _module(shader, rewrite(load(shader.plain, root).code, _storage_types(stored)))
        except NotRewritable as error:
            raise NotRewritable(f"{shader.name}: {error}") from None
    return _compiled(shader, root)


def _compiled(shader: Shader, root: Path) -> SpirvModule:
    """The module as the compiler has made it."""
    key = _key(shader, root)
    module = _read(shader, module_store.bundled_file(root, key))
    if module is None:
        try:
            tool = compilers.pick()
        except BackendMissingError:
            module = _built_before(shader, key)
            if module is None:
                raise
            return module
        file = module_store.user_file(key, tool.identity)
        module = _read(shader, file)
        if module is None:
            module = _module(shader, _compile(shader, root, tool.compile))
            file_cache.try_write(file, module.code)
    return module


def _built_before(shader: Shader, key: str) -> SpirvModule | None:
    """The module that a compiler that is there no more has made of a generated shader."""
    files = module_store.user_files(key) if shader.source else ()
    return next((module for file in files if (module := _read(shader, file))), None)


def _read(shader: Shader, file: Path) -> SpirvModule | None:
    """The module in a file; None where there is none, or something else under a digest that is right."""
    code = file_cache.read(file)
    if code is None:
        return None
    try:
        return _module(shader, code)
    except ShaderError as error:
        log.warning("cache file %s holds no module and is built anew: %s", file, error)
        return None


def _module(shader: Shader, code: bytes) -> SpirvModule:
    """
    Raises:
        ShaderError: it is no SPIR-V, takes what dl4all cannot give, or other push constants than declared.
    """
    module = SpirvModule(shader.name, code, reflect(code, shader.name))
    _check_push_constants(shader, module.interface)
    return module


def _check_push_constants(shader: Shader, interface: Interface) -> None:
    for declared in declared_constants(shader):
        for position, (kind, name) in enumerate(declared.fields):
            there = interface.push[position : position + 1]
            found = f"{there[0].type} {there[0].name}" if there else "missing"
            if found not in (f"{kind} {name}", f"{kind} "):  # a compiler may leave names out
                raise ShaderError(
                    f"{shader.name}: push constant {position} is declared as '{kind} {name}' and "
                    f"is '{found}' in the shader; give both the same order"
                )


def _text(shader: Shader, root: Path) -> str:
    """
    Raises:
        ShaderError: there is no such file, or it holds no text.
    """
    try:
        return shader.source or (root / shader.path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(shader, error) from error


def _unreadable(shader: Shader, error: Exception) -> ShaderError:
    return ShaderError(f"cannot read shader {shader.path}: {error}")


def _includes(root: Path, near: Path | None) -> dict[str, str]:
    """The texts that shaders of a folder may include, by path."""
    # Only .glsl: an editor's backup must not change the key.
    files = [*(root / "include").rglob("*.glsl"), *(near.glob("*.glsl") if near else ())]
    return {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in files if path.is_file()}


def _key(
    shader: Shader, root: Path, includes: Callable[[Path, Path | None], dict[str, str]] = _includes
) -> str:
    text = _text(shader, root)
    try:
        found = includes(root, None if shader.source else (root / shader.path).parent)
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(shader, error) from error
    return module_store.key(text, found, shader.defines)


def _compile(shader: Shader, root: Path, compile: compilers.Compile) -> bytes:
    try:
        if not shader.source:
            return _compile_file(shader, root / shader.path, root, compile)
        with tempfile.TemporaryDirectory(prefix="dl4all-") as folder:
            file = Path(folder) / Path(shader.path).name
            file.write_text(shader.source, "utf-8")
            return _compile_file(shader, file, root, compile)
    except ShaderError as error:
        raise ShaderError(f"{shader.name} does not compile:\n{error}") from None


def _compile_file(shader: Shader, file: Path, root: Path, compile: compilers.Compile) -> bytes:
    # Sorted as in the key, which would otherwise not say which of two defines of one name wins.
    return compile(file, sorted(shader.defines), [root / "include"])


def _dump(shader: Shader) -> None:
    """Write a generated shader's text where DL4ALL_DUMP says, under another name if its own is taken.

    Raises:
        ConfigError: the folder cannot be written to.
    """
    folder = config.dump_folder()
    if folder is None:
        return
    digest = hashlib.sha256(repr((shader.source, shader.defines)).encode()).hexdigest()
    name = Path(shader.path)
    text = "".join(f"// -D{name}={value}\n" for name, value in shader.defines) + shader.source
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in (folder / name.name, folder / f"{name.stem}-{digest[:8]}{name.suffix}"):
            if not file.exists():
                file.write_text(text, "utf-8")
            if file.read_text("utf-8") == text:
                return
    except OSError as error:
        raise ConfigError(f"DL4ALL_DUMP: cannot write to {folder}: {error}") from None
