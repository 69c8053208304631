"""Messages of parameter servers and their clients: a header, and arrays in pieces of at most 1 MB."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dl4all.distributed.process_group.transport import Array
from dl4all.errors import ArgumentError
from dl4all.ops.core.dtypes import BFLOAT16

SERVICE = "dl4all.ParameterServer"
METHODS = ("describe", "create", "pull", "push")
"""The server's methods, each of which gets one message and answers by one."""

PIECE = 1 << 20
"""The bytes of a piece, at most."""

OPTIONS = [("grpc.max_receive_message_length", PIECE), ("grpc.max_send_message_length", PIECE)]
DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "float16": np.dtype(np.float16),
    "bfloat16": BFLOAT16,
}
"""The dtypes of parameters."""


class ParameterSpec(NamedTuple):
    """A parameter's name, dtype and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def nbytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize

    def __str__(self) -> str:
        return f"{self.name}, {self.dtype} of shape {self.shape}"


def specs_of(listed: Any) -> list[ParameterSpec]:
    """The parameters that a header lists.

    Raises:
        ArgumentError: it does not list parameters.
    """
    try:
        specs = [ParameterSpec(name, dtype, tuple(shape)) for name, dtype, shape in listed]
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"[ParameterServer] expected [name, dtype, shape] of parameters: {error}"
        ) from error
    for spec in specs:
        sizes = all(isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in spec.shape)
        if not isinstance(spec.name, str) or spec.dtype not in DTYPES or not sizes:
            raise ArgumentError(
                f"[ParameterServer] expected a name, a dtype of {list(DTYPES)} and sizes of at least 0, got "
                f"{spec!r:.200}"
            )
    if not specs or len({spec.name for spec in specs}) < len(specs):
        raise ArgumentError("[ParameterServer] expected parameters with different names")
    return specs


def pieces(header: Mapping[str, Any], arrays: Iterable[Array] = ()) -> Iterator[bytes]:
    """A message."""
    text = json.dumps(header).encode()
    if len(text) > PIECE:
        raise ArgumentError(f"[ParameterServer] a header has at most {PIECE} bytes, got {len(text)}")
    yield text
    for array in arrays:
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for start in range(0, flat.nbytes, PIECE):
            yield flat[start : start + PIECE].tobytes()


class Incoming:
    """A message as it comes.

    Args:
        stream: its pieces.

    Raises:
        ArgumentError: it has no header.
    """

    def __init__(self, stream: Iterable[bytes]) -> None:
        self._stream = iter(stream)
        try:
            self.header: dict[str, Any] = json.loads(next(self._stream, b""))
            if not isinstance(self.header, dict):
                raise ValueError("it is no object")
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"[ParameterServer] expected a header as JSON: {error}") from error

    def arrays(self, specs: Sequence[ParameterSpec]) -> list[Array]:
        """The arrays behind the header.

        Raises:
            ArgumentError: there are fewer or more bytes than those of the parameters.
        """
        made = [np.empty(spec.shape, DTYPES[spec.dtype]) for spec in specs]
        places = iter([array.reshape(-1).view(np.uint8) for array in made if array.size])
        place, filled = next(places, None), 0
        for piece in self._stream:
            if place is None or filled + len(piece) > place.nbytes:
                raise ArgumentError("[ParameterServer] there are more bytes than the parameters have")
            place[filled : filled + len(piece)] = np.frombuffer(piece, np.uint8)
            filled += len(piece)
            if filled == place.nbytes:
                place, filled = next(places, None), 0
        if place is not None:
            raise ArgumentError("[ParameterServer] there are fewer bytes than the parameters have")
        return made
