"""Bodies of inference requests over HTTP: JSON, and the binary extension.

With the header ``Inference-Header-Content-Length`` a body is JSON of that length and then the elements of
those tensors that say their ``binary_data_size``, in their order. What a body says of itself is compared with
its length before anything is made of it.
https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol
"""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dl4all.ops.core.dtypes import BFLOAT16
from dl4all.serving.datatypes import NDArray
from dl4all.serving.protocol.request_tensors import (
    MOST_BYTES,
    MOST_SIZES,
    check_parameters,
    check_size,
    checked_shape,
    dtype_of,
    from_bytes,
    from_numbers,
    patience,
)
from dl4all.serving.request_error import Reason, RequestError, invalid

HEADER = "inference-header-content-length"


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
