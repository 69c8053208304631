"""Push constants by their names.

What a kernel takes is declared beside its shader, as it stands in GLSL. When the shader is loaded, its
SPIR-V is compared with that.
"""

from __future__ import annotations

import re
import struct
from collections import namedtuple
from typing import Any

from dl4all.ops.core.kernels.launch import pack
from dl4all.runtime.spirv import PUSH_CONSTANTS, declared_constants
from dl4all.scheduler.device.programs import Launch

CODES = {"uint": "I", "int": "i", "float": "f"}


class PushBlock:
    """The push constants of shaders, or those that the shaders' begin with.

    Args:
        paths: the files of the shaders.
        declared: types and names, as in GLSL. A ``uvec2 key`` is given as ``key_x`` and ``key_y``,
            ``uint sizes[2]`` as ``sizes_0`` and ``sizes_1``, and an array of one element by its name.
        macros: the block is of shaders only that are compiled with these macros.

    >>> block = PushBlock((), "uint n, x_offset; float scale;")
    >>> push = block.pack(3, scale=0.5, x_offset=2)
    >>> block.read(push)
    PushConstants(n=3, x_offset=2, scale=0.5)
    >>> block.offset("scale"), block.size
    (8, 12)
    """

    def __init__(self, paths: str | tuple[str, ...], declared: str, **macros: Any) -> None:
        groups = [group.split(maxsplit=1) for group in declared.split(";") if group.strip()]
        declared_names = [(kind, name) for kind, names in groups for name in re.split(r",\s*", names.strip())]
        words = [word for kind, name in declared_names for word in _words(kind, name)]
        self.fields = tuple(
            (f"{kind}[]" if "[" in name else kind, name.partition("[")[0]) for kind, name in declared_names
        )
        self.names = tuple(name for _, name in words)
        self.size = 4 * len(words)
        self._struct = struct.Struct("<" + "".join(CODES[kind] for kind, _ in words))
        self._tuple = _tuple_of(self.names)
        self.macros = frozenset((name, str(value)) for name, value in macros.items())
        for path in (paths,) if isinstance(paths, str) else paths:
            PUSH_CONSTANTS.setdefault(path, []).append(self)

    def pack(self, *values: int | float, **named: int | float) -> bytes:
        """The push constants; see :func:`~dl4all.ops.core.kernels.launch.pack`.

        Raises:
            TypeError: one is missing, or there is no such.
            TooLargeError: an int has more than 32 bits.
        """
        return pack(*self._tuple(*values, **named))

    def after(self, first: bytes, *values: int | float, **named: int | float) -> bytes:
        """The push constants that begin with some that are packed already.

        Raises:
            TypeError, TooLargeError: as :meth:`pack`.
        """
        rest = self.names[len(first) // 4 :]
        if set(rest[len(values) :]) != named.keys() or len(values) > len(rest):
            raise TypeError(f"expected push constants {rest}, got {len(values)} and {tuple(named)}")
        return first + pack(*values, *[named[name] for name in rest[len(values) :]])

    def read(self, push: bytes) -> Any:
        """The values by name; what follows them is not looked at."""
        return self._tuple(*self._struct.unpack_from(push))

    def offset(self, name: str) -> int:
        """The bytes before a push constant."""
        return 4 * self.names.index(name)


def push_constants(launch: Launch) -> Any:
    """The push constants of a launch, by the names that its shader has for them.

    Raises:
        ValueError: none are declared for the shader.
    """
    blocks: list[Any] = [*declared_constants(launch.shader)]
    return max(blocks, key=lambda block: block.size).read(launch.push)


def words_of(push: bytes) -> tuple[int, ...]:
    """Push constants as unsigned words.

    >>> words_of(pack(3, -1))
    (3, 4294967295)
    """
    return struct.unpack(f"<{len(push) // 4}I", push)


def _tuple_of(names: tuple[str, ...]) -> Any:
    return namedtuple("PushConstants", names)


def _words(kind: str, name: str) -> list[tuple[str, str]]:
    """The words of a push constant, with their types."""
    name, _, length = name.rstrip("]").partition("[")
    if kind == "uvec2":
        return [("uint", f"{name}_x"), ("uint", f"{name}_y")]
    if int(length or 1) > 1:
        return [(kind, f"{name}_{position}") for position in range(int(length))]
    return [(kind, name)]
