"""Bodies of inference requests over HTTP: JSON, and the binary extension.

With the header ``Inference-Header-Content-Length`` a body is JSON of that length and then the elements of
those tensors that say their ``binary_data_size``, in their order. What a body says of itself is compared with
its length before anything is made of it.
https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol
"""

from __future__ import annotations

import itertools
import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dl4all.ops.core.dtypes import BFLOAT16, kind_of
from dl4all.serving.datatypes import DATATYPES, NDArray
from dl4all.serving.request_error import Reason, RequestError, invalid

MOST_BYTES = 64 << 20
"""A body's, also when it is decompressed."""
MOST_SIZES = 8  # of a shape
HEADER = "inference-header-content-length"

UNSUPPORTED = ("classification", "shared_memory_region", "shared_memory_byte_size", "shared_memory_offset")
"""Parameters whose absence would change the answer, so that they cannot be ignored."""


class InferenceBody(NamedTuple):
    """A request's contents."""

    inputs: dict[str, NDArray]
    outputs: dict[str, bool] | None
    """The outputs that are wanted, and whether as binary data; None where the request does not say."""
    binary: bool
    """For outputs that the request does not name."""
    id: str | None
    seconds: float | None
    """After which the client gives up."""


def decompressed(body: bytes, encoding: str) -> bytes:
    """A body without its compression.

    Raises:
        RequestError: it is none, is cut off, or becomes too large.
    """
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        raise RequestError(Reason.ENCODING, f"Content-Encoding {encoding[:40]!r} is not supported: use gzip")
    # 47: gzip's and zlib's headers are told apart; a further byte tells whether there would be more
    decoder = zlib.decompressobj(47)
    try:
        made = decoder.decompress(body, MOST_BYTES + 1)
    except zlib.error as error:
        raise invalid(f"the body is no {encoding}: {error}") from None
    check_size(len(made))
    if not decoder.eof or decoder.unused_data:
        raise invalid(f"the body is no {encoding}: it does not end where its stream does")
    return made


def check_size(size: int) -> None:
    """
    Raises:
        RequestError: a body is too large.
    """
    if size > MOST_BYTES:
        raise RequestError(
            Reason.TOO_LARGE, f"a body has at most {MOST_BYTES} bytes; send fewer rows at once"
        )


def read_body(body: bytes, header: str | None) -> InferenceBody:
    """The contents of a request.

    Args:
        body: without compression.
        header: the value of ``Inference-Header-Content-Length``, if there is one.

    Raises:
        RequestError: what is wrong with it.
    """
    length = len(body)
    if header is not None:
        if not (header.isascii() and header.isdigit() and len(header) < 12 and int(header) <= len(body)):
            raise invalid(f"Inference-Header-Content-Length {header[:20]!r} is no length within the body")
        length = int(header)
    try:
        head = json.loads(body[:length])
    except (ValueError, RecursionError) as error:
        raise invalid(f"the body is no JSON: {error}") from None
    if not isinstance(head, dict) or not isinstance(head.get("inputs"), list):
        raise invalid("the body must be an object with a list 'inputs'")
    tail, begin = memoryview(body)[length:], 0
    inputs: dict[str, NDArray] = {}
    for entry in head["inputs"]:
        name, dtype, shape, parameters = _declared(entry)
        if name in inputs:
            raise invalid(f"input {name!r} comes twice")
        size = parameters.get("binary_data_size")
        if size is None:
            inputs[name] = _from_json(entry.get("data"), name, dtype, shape)
            continue
        if type(size) is not int or not 0 <= size <= len(tail) - begin:
            raise invalid(
                f"input {name!r} has binary_data_size {str(size)[:20]}; {len(tail) - begin} bytes are left"
            )
        inputs[name] = from_bytes(tail[begin : begin + size], name, dtype, shape)
        begin += size
    if begin != len(tail):
        raise invalid(f"the body has {len(tail) - begin} bytes that belong to no input")
    return InferenceBody(inputs, *_options(head))


def _declared(entry: Any) -> tuple[str, np.dtype[Any], tuple[int, ...], Mapping[str, Any]]:
    """The name, dtype, shape and parameters of an input."""
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise invalid("an input must be an object with a name, a datatype and a shape")
    shape = entry.get("shape")
    if not isinstance(shape, list):
        raise invalid(f"input {entry['name'][:60]!r} must have a shape: a list of sizes")
    return (
        entry["name"],
        dtype_of(entry["name"], entry.get("datatype")),
        checked_shape(entry["name"], shape),
        _parameters(entry, f"input {entry['name'][:60]!r}"),
    )


def _parameters(holder: Mapping[str, Any], what: str) -> Mapping[str, Any]:
    parameters = holder.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise invalid(f"parameters of {what} must be an object")
    check_parameters(parameters, what)
    return parameters


def check_parameters(parameters: Mapping[str, Any], what: str) -> None:
    """
    Raises:
        RequestError: there is one that changes the answer and is not supported.
    """
    for name in UNSUPPORTED:
        if name in parameters:
            raise invalid(f"{what} has the parameter {name!r}, which is not supported")


def dtype_of(name: str, datatype: Any) -> np.dtype[Any]:
    """The dtype of an input.

    Raises:
        RequestError: there is no such datatype.
    """
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        raise invalid(
            f"input {name[:60]!r} has the datatype {str(datatype)[:20]!r}; use one of {', '.join(DATATYPES)}"
        )
    return DATATYPES[datatype]


def checked_shape(name: str, shape: Sequence[Any]) -> tuple[int, ...]:
    """The shape of an input.

    Raises:
        RequestError: it is none.
    """
    if len(shape) > MOST_SIZES or not all(type(size) is int and 0 <= size < 1 << 31 for size in shape):
        raise invalid(
            f"input {name[:60]!r} has the shape {str(shape)[:80]}; sizes are integers, at most {MOST_SIZES}"
        )
    return tuple(shape)


def from_bytes(data: memoryview | bytes, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray:
    """An input from its elements' bytes, little endian and in the order of C.

    Raises:
        RequestError: they are not as many as the shape says, or something else than 0 and 1 for a bool.
    """
    expected = math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        raise invalid(f"input {name[:60]!r} has {len(data)} bytes; its datatype and shape make {expected}")
    if dtype.kind == "b" and (np.frombuffer(data, np.uint8) > 1).any():
        raise invalid(f"input {name[:60]!r} is BOOL: its bytes are 0 and 1")
    return np.frombuffer(data, dtype).reshape(shape)


def _from_json(data: Any, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray:
    """An input from a list of numbers, nested as its shape is, or flat."""
    if not isinstance(data, list):
        raise invalid(f"input {name[:60]!r} must have data, a list, or binary_data_size")
    sizes = [len(data)]
    while data and type(data[0]) is list:
        if {*map(type, data)} != {list} or len({*map(len, data)}) > 1 or len(sizes) == MOST_SIZES:
            raise invalid(f"input {name[:60]!r} has data of unlike lengths")
        sizes.append(len(data[0]))
        data = [*itertools.chain.from_iterable(data)]
    # looked at before NumPy does, which would give each text the room of the longest
    if not {*map(type, data)} <= ({bool} if dtype.kind == "b" else {int, float}):
        raise invalid(f"input {name[:60]!r} has data that are no numbers of its datatype")
    return from_numbers(np.array(data, None if data else dtype).reshape(sizes), name, dtype, shape)


def from_numbers(array: NDArray, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray:
    """An input from numbers of another dtype, each of which the input's has.

    Raises:
        RequestError: there are others, or more or fewer than the shape says.
    """
    if array.shape not in (shape, (math.prod(shape),)):
        raise invalid(f"input {name[:60]!r} has data of the shape {[*array.shape]}, and says {[*shape]}")
    kinds = {"b": "b", "f": "fiu"}.get(kind_of(dtype), "iu")
    if array.size and array.dtype.kind not in kinds:
        raise invalid(f"input {name[:60]!r} has data that are no numbers of its datatype")
    with np.errstate(all="ignore"):
        made = array.astype(dtype)
    exact = (made == array) if kind_of(dtype) != "f" else np.isfinite(made) | ~np.isfinite(array)
    if not np.all(exact):
        raise invalid(f"input {name[:60]!r} has a number that its datatype does not have")
    return made.reshape(shape)


def _options(head: Mapping[str, Any]) -> tuple[dict[str, bool] | None, bool, str | None, float | None]:
    """A request's outputs, whether others are binary, its id, and its patience."""
    parameters = _parameters(head, "the request")
    binary = parameters.get("binary_data_output", False) is True
    wanted = head.get("outputs")
    outputs: dict[str, bool] | None = None
    if wanted is not None:
        if not isinstance(wanted, list) or not all(
            isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in wanted
        ):
            raise invalid("'outputs' must be a list of objects with names")
        outputs = {}
        for entry in wanted:
            if entry["name"] in outputs:
                raise invalid(f"output {entry['name'][:60]!r} is wanted twice")
            own = _parameters(entry, f"output {entry['name'][:60]!r}").get("binary_data", binary)
            outputs[entry["name"]] = own is True
    name = head.get("id")
    if name is not None and (not isinstance(name, str) or len(name) > 1000):
        raise invalid("'id' must be text of at most 1000 characters")
    return outputs, binary, name, patience(parameters.get("timeout"))


def patience(microseconds: Any) -> float | None:
    """The seconds after which a client gives up, from the parameter ``timeout``.

    Raises:
        RequestError: it is no number of microseconds.
    """
    if microseconds is None:
        return None
    if type(microseconds) is not int or not 0 < microseconds < 1 << 53:
        raise invalid("the parameter 'timeout' must be a number of microseconds")
    return microseconds * 1e-6


def write_body(
    model: str,
    version: str,
    body: InferenceBody,
    results: Mapping[str, NDArray],
    datatypes: Mapping[str, str],
) -> tuple[bytes, int | None]:
    """The answer's body, and the length of its JSON where elements follow.

    Args:
        model, version: that have answered.
        body: the request.
        results: all outputs by name.
        datatypes: of the outputs.
    """
    wanted = dict.fromkeys(results, body.binary) if body.outputs is None else body.outputs
    outputs, tail = [], []
    for name, binary in wanted.items():
        array = np.ascontiguousarray(results[name])
        entry: dict[str, Any] = {"name": name, "datatype": datatypes[name], "shape": [*results[name].shape]}
        if binary:
            tail.append(array.tobytes())
            entry["parameters"] = {"binary_data_size": len(tail[-1])}
        else:
            # Python's numbers; bfloat16's list would have ml_dtypes' own
            entry["data"] = (array.astype(np.float32) if array.dtype == BFLOAT16 else array).ravel().tolist()
        outputs.append(entry)
    head: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": outputs}
    if body.id is not None:
        head["id"] = body.id
    text = json.dumps(head, separators=(",", ":")).encode()
    return b"".join((text, *tail)), len(text) if tail else None


def check_outputs(wanted: Iterable[str], known: Iterable[str]) -> None:
    """
    Raises:
        RequestError: an output is wanted that the model has not.
    """
    names = [*known]
    for name in wanted:
        if name not in names:
            raise invalid(f"there is no output {name[:60]!r}; the model has {', '.join(names)}")
