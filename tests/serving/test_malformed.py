"""Requests that no server would take: each gets a reason, none an internal error, and the server goes on."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import os
import random
import socket
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import psutil
import pytest
from tritonclient.grpc import service_pb2

import dl4all as dl
from dl4all.serving.protocol.request_tensors import MOST_BYTES
from tests.serving.servers import Answer, ask, infer, numbers, serving, urls_of

pytestmark = pytest.mark.usefixtures("deadline")
INFER = "/v2/models/m/infer"
HEADER = "Inference_Header_Content_Length"
FULL = os.environ.get("DL4ALL_TEST_FULL") == "1"


@pytest.fixture(scope="module")
def served() -> Iterator[dict[str, str]]:
    with serving(dl.nn.Identity(), max_batch_size=8) as server:
        yield urls_of(server)


@pytest.fixture(autouse=True)
def still_answers(served: dict[str, str]) -> Iterator[None]:
    """After whatever a test has sent, both protocols answer as before, and nothing waits."""
    yield
    x = numbers(2, 3)
    for protocol, url in served.items():
        np.testing.assert_array_equal(infer(url, "m", protocol, {"x": x}).as_numpy("y"), x)


def tensor(**changes: Any) -> dict[str, Any]:
    """A sound input of two rows, with changes."""
    return {"name": "x", "datatype": "FP32", "shape": [2, 3], "data": [1, 2, 3, 4, 5, 6], **changes}


def body(*inputs: Any, **more: Any) -> dict[str, Any]:
    return {"inputs": list(inputs), **more}


def nested(depth: int) -> Any:
    value: Any = [1.0]
    for _ in range(depth):
        value = [value]
    return value


BINARY = tensor(data=None, parameters={"binary_data_size": 24})
BODIES: dict[str, Any] = {
    "an array": [],
    "a number": 7,
    "null": None,
    "no inputs": {},
    "inputs that are none": {"inputs": 3},
    "inputs that are an object": {"inputs": {"x": tensor()}},
    "an empty list": body(),
    "an input that is a number": body(4),
    "an input that is null": body(None),
    "no name": body({"datatype": "FP32", "shape": [2, 3], "data": [1] * 6}),
    "a name that is a number": body(tensor(name=5)),
    "another name": body(tensor(name="z")),
    "a path as a name": body(tensor(name="../x")),
    "a long name": body(tensor(name="x" * 100_000)),
    "an input twice": body(tensor(), tensor()),
    "one input too many": body(tensor(), tensor(name="y")),
    "no datatype": body({"name": "x", "shape": [2, 3], "data": [1] * 6}),
    "an unknown datatype": body(tensor(datatype="FP33")),
    "a datatype that is a list": body(tensor(datatype=["FP32"])),
    "bytes": body(tensor(datatype="BYTES", data=["a"] * 6)),
    "another datatype": body(tensor(datatype="INT32")),
    "no shape": body({"name": "x", "datatype": "FP32", "data": [1] * 6}),
    "a shape that is a number": body(tensor(shape=6)),
    "a nested shape": body(tensor(shape=[[2], 3])),
    "a negative size": body(tensor(shape=[-1, 3])),
    "two negative sizes": body(tensor(shape=[-2, -3])),
    "a size that is a float": body(tensor(shape=[2.0, 3])),
    "a size that is a bool": body(tensor(shape=[True, 6])),
    "a size that is text": body(tensor(shape=["2", 3])),
    "a size that is null": body(tensor(shape=[None, 3])),
    "2^62 elements": body(tensor(shape=[1 << 31, 1 << 31])),
    "2^62 elements in small sizes": body(tensor(shape=[(1 << 31) - 1, (1 << 31) - 1])),
    "a size beyond 64 bits": body(tensor(shape=[1 << 70, 3])),
    "an empty shape": body(tensor(shape=[])),
    "too many sizes": body(tensor(shape=[2, 3] + [1] * 40)),
    "one size more": body(tensor(shape=[2, 3, 1])),
    "another fixed size": body(tensor(shape=[3, 2])),
    "no rows": body(tensor(shape=[0, 3], data=[])),
    "more rows than the queue has": body(tensor(shape=[2000, 3], data=[1] * 6000)),
    "no data": body({"name": "x", "datatype": "FP32", "shape": [2, 3]}),
    "data that are null": body(tensor(data=None)),
    "data that are a number": body(tensor(data=1)),
    "data that are text": body(tensor(data="123456")),
    "data that are an object": body(tensor(data={"0": 1})),
    "too few data": body(tensor(data=[1, 2, 3])),
    "too many data": body(tensor(data=[1] * 7)),
    "data of unlike lengths": body(tensor(data=[[1, 2, 3], [4, 5]])),
    "data of unlike depths": body(tensor(data=[[1, 2, 3], 4, 5, 6])),
    "deep data": body(tensor(data=nested(12))),
    "very deep data": body(tensor(data=nested(900))),
    "texts as data": body(tensor(data=["1"] * 6)),
    "one long text among data": body(tensor(data=["a" * 1_000_000, *[""] * 200_000], shape=[66667, 3])),
    "bools as data": body(tensor(data=[True] * 6)),
    "objects as data": body(tensor(data=[{}] * 6)),
    "nulls as data": body(tensor(data=[None] * 6)),
    "a number beyond float32": body(tensor(data=[1e39] * 6)),
    "a number beyond 64 bits": body(tensor(data=[10**400] * 6)),
    "parameters that are a list": body(tensor(parameters=[1])),
    "a binary size without bytes": body(BINARY),
    "a negative binary size": body(tensor(parameters={"binary_data_size": -24})),
    "a binary size that is a float": body(tensor(parameters={"binary_data_size": 24.0})),
    "a binary size that is a bool": body(tensor(parameters={"binary_data_size": True})),
    "a huge binary size": body(tensor(parameters={"binary_data_size": 1 << 62})),
    "shared memory": body(tensor(parameters={"shared_memory_region": "a", "shared_memory_byte_size": 24})),
    "an unknown output": body(tensor(), outputs=[{"name": "z"}]),
    "outputs that are a number": body(tensor(), outputs=4),
    "an output that is text": body(tensor(), outputs=["y"]),
    "an output without a name": body(tensor(), outputs=[{}]),
    "an output twice": body(tensor(), outputs=[{"name": "y"}, {"name": "y"}]),
    "classification": body(tensor(), outputs=[{"name": "y", "parameters": {"classification": 3}}]),
    "an id that is a number": body(tensor(), id=7),
    "a long id": body(tensor(), id="i" * 100_000),
    "parameters of the request that are text": body(tensor(), parameters="a"),
    "a timeout that is text": body(tensor(), parameters={"timeout": "1"}),
    "a negative timeout": body(tensor(), parameters={"timeout": -1}),
}


def check(answer: Answer, *statuses: int) -> None:
    assert answer.status in (statuses or (400,)), (answer.status, answer.body[:300])
    reason = answer.json["error"]
    assert 10 < len(reason) <= 400


@pytest.mark.parametrize("name", BODIES)
def test_bodies(served: dict[str, str], name: str) -> None:
    check(ask(served["http"], "POST", INFER, json.dumps(BODIES[name]).encode()))


SOUND = json.dumps(body(BINARY)).encode()
BOOL = json.dumps(body({**BINARY, "datatype": "BOOL", "parameters": {"binary_data_size": 6}})).encode()
RAW: dict[str, tuple[bytes, dict[str, str], int]] = {
    "nothing": (b"", {}, 400),
    "no JSON": (b"{", {}, 400),
    "bytes": (bytes(range(256)), {}, 400),
    "no UTF-8": (b'{"inputs": "\xff"}', {}, 400),
    "very deep JSON": (b"[" * 200_000, {}, 400),
    "a NUL": (b'{"inputs": []}\0', {}, 400),
    "a long number": (b'{"inputs": [' + b"9" * 100_000 + b"]}", {}, 400),
    "a length that lies": (SOUND + bytes(24), {HEADER: str(len(SOUND) + 25)}, 400),
    "a negative length": (SOUND + bytes(24), {HEADER: "-5"}, 400),
    "a length that is text": (SOUND + bytes(24), {HEADER: "five"}, 400),
    "a length of other digits": (SOUND + bytes(24), {HEADER: "\u00b2"}, 400),
    "a huge length": (SOUND + bytes(24), {HEADER: "9" * 40}, 400),
    "a length within the JSON": (SOUND + bytes(24), {HEADER: str(len(SOUND) - 3)}, 400),
    "no length": (SOUND + bytes(24), {}, 400),
    "too few bytes": (SOUND + bytes(20), {HEADER: str(len(SOUND))}, 400),
    "too many bytes": (SOUND + bytes(28), {HEADER: str(len(SOUND))}, 400),
    "an unknown encoding": (SOUND, {"Content_Encoding": "br"}, 415),
    "no gzip": (SOUND, {"Content_Encoding": "gzip"}, 400),
    "half a gzip": (gzip.compress(SOUND)[:-20], {"Content_Encoding": "gzip"}, 400),
    "a gzip and more": (gzip.compress(SOUND) + b"more", {"Content_Encoding": "gzip"}, 400),
    "no deflate": (SOUND, {"Content_Encoding": "deflate"}, 400),
    "a gzip bomb": (gzip.compress(bytes(MOST_BYTES * 4)), {"Content_Encoding": "gzip"}, 413),
    "a deflate bomb": (zlib.compress(bytes(MOST_BYTES * 4)), {"Content_Encoding": "deflate"}, 413),
    "a bool of 2": (BOOL + b"\2" * 6, {HEADER: str(len(BOOL))}, 400),
}  # fmt: skip


@pytest.mark.parametrize("name", RAW)
def test_raw_bodies(served: dict[str, str], name: str) -> None:
    content, headers, status = RAW[name]
    before = psutil.Process().memory_info().rss
    check(ask(served["http"], "POST", INFER, content, **headers), status)
    assert psutil.Process().memory_info().rss - before < 3 * MOST_BYTES


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v2/models/n/infer", 404),
        ("POST", "/v2/models/m/versions/2/infer", 404),
        ("POST", "/v2/models/..%2fm/infer", 404),
        ("POST", "/v2/models/m%00/infer", 404),
        ("POST", f"/v2/models/{'m' * 5000}/infer", 404),
        ("GET", "/v2/models/%ff%fe", 404),
        ("GET", "/v2/models/n/ready", 404),
        ("GET", INFER, 405),
        ("POST", "/v2/models/m", 405),
        ("GET", "/v3", 404),
        ("GET", "/v2/../../etc/passwd", 404),
        ("POST", "/v2/repository/models/m/load", 403),
        ("POST", "/v2/repository/models/..%2f..%2fetc/load", 404),
        ("POST", "/v2/repository/models/m/unload", 403),
    ],
)
def test_paths(served: dict[str, str], method: str, path: str, status: int) -> None:
    check(ask(served["http"], method, path, json.dumps(body(tensor())).encode()), status)


@pytest.mark.parametrize("content", [b"[]", b"{", b"3", b'{"ready": 5}'])
def test_bodies_of_the_index(served: dict[str, str], content: bytes) -> None:
    answer = ask(served["http"], "POST", "/v2/repository/index", content)
    assert answer.status == (200 if content.startswith(b'{"') else 400)


def test_a_body_that_is_too_large_is_refused_before_it_has_come(served: dict[str, str]) -> None:
    host, port = served["http"].split(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(
            f"POST {INFER} HTTP/1.1\r\nHost: a\r\nContent-Length: {1 << 40}\r\n\r\n{{".encode()
        )
        assert connection.recv(1000).startswith(b"HTTP/1.1 413")
    with socket.create_connection((host, int(port)), 60) as connection:  # in chunks, without saying how much
        connection.sendall(f"POST {INFER} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        chunk = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
        with contextlib.suppress(OSError):  # the server hangs up
            for _ in range(100):
                connection.sendall(chunk)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1000).startswith(b"HTTP/1.1 413")


# gRPC


def request(**changes: Any) -> service_pb2.ModelInferRequest:
    """A sound request of two rows, with changes of its input."""
    made = service_pb2.ModelInferRequest(model_name="m")
    made.inputs.add(**{"name": "x", "datatype": "FP32", "shape": [2, 3], **changes})
    made.raw_input_contents.append(np.arange(6, dtype=np.float32).tobytes())
    return made


def typed(field: str, values: list[Any], **changes: Any) -> service_pb2.ModelInferRequest:
    made = request(**changes)
    del made.raw_input_contents[:]
    getattr(made.inputs[0].contents, field).extend(values)
    return made


def changed(change: Callable[[Any], Any]) -> service_pb2.ModelInferRequest:
    made = request()
    change(made)
    return made


MESSAGES: dict[str, tuple[Any, str]] = {
    "no model": (service_pb2.ModelInferRequest(), "NOT_FOUND"),
    "another model": (service_pb2.ModelInferRequest(model_name="../m"), "NOT_FOUND"),
    "another version": (changed(lambda r: setattr(r, "model_version", "9")), "NOT_FOUND"),
    "no inputs": (service_pb2.ModelInferRequest(model_name="m"), "INVALID_ARGUMENT"),
    "another name": (request(name="z"), "INVALID_ARGUMENT"),
    "an unknown datatype": (request(datatype="FP33"), "INVALID_ARGUMENT"),
    "no datatype": (request(datatype=""), "INVALID_ARGUMENT"),
    "bytes": (request(datatype="BYTES"), "INVALID_ARGUMENT"),
    "another datatype": (request(datatype="INT32"), "INVALID_ARGUMENT"),
    "a negative size": (request(shape=[-2, -3]), "INVALID_ARGUMENT"),
    "2^62 elements": (request(shape=[1 << 31, 1 << 31]), "INVALID_ARGUMENT"),
    "2^90 elements": (request(shape=[(1 << 31) - 1] * 3), "INVALID_ARGUMENT"),
    "no shape": (request(shape=[]), "INVALID_ARGUMENT"),
    "many sizes": (request(shape=[1] * 1000), "INVALID_ARGUMENT"),
    "another shape": (request(shape=[3, 2]), "INVALID_ARGUMENT"),
    "no rows": (request(shape=[0, 3]), "INVALID_ARGUMENT"),
    "an input twice": (changed(lambda r: r.inputs.add().CopyFrom(r.inputs[0])), "INVALID_ARGUMENT"),
    "more contents than inputs": (changed(lambda r: r.raw_input_contents.append(b"")), "INVALID_ARGUMENT"),
    "short contents": (changed(lambda r: r.raw_input_contents.__setitem__(0, b"abc")), "INVALID_ARGUMENT"),
    "both contents": (changed(lambda r: r.inputs[0].contents.fp32_contents.append(1)), "INVALID_ARGUMENT"),
    "no contents": (changed(lambda r: r.raw_input_contents.pop()), "INVALID_ARGUMENT"),
    "contents of another field": (typed("int_contents", [1] * 6), "INVALID_ARGUMENT"),
    "too few numbers": (typed("fp32_contents", [1.0] * 5), "INVALID_ARGUMENT"),
    "a number beyond int8": (typed("int_contents", [300] * 6, datatype="INT8"), "INVALID_ARGUMENT"),
    "halves as numbers": (typed("fp32_contents", [1.0] * 6, datatype="FP16"), "INVALID_ARGUMENT"),
    "an unknown output": (changed(lambda r: r.outputs.add(name="z")), "INVALID_ARGUMENT"),
    "an output twice": (
        changed(lambda r: (r.outputs.add(name="y"), r.outputs.add(name="y"))), "INVALID_ARGUMENT"
    ),
    "shared memory": (
        changed(lambda r: r.inputs[0].parameters["shared_memory_region"].MergeFromString(b"\x1a\x01a")),
        "INVALID_ARGUMENT",
    ),
    "a timeout that is text": (
        changed(lambda r: setattr(r.parameters["timeout"], "string_param", "1")), "INVALID_ARGUMENT"
    ),
    "no message": (b"\xff\xff\xff", "INVALID_ARGUMENT"),
    "a length that lies": (b"\x0a\xff\x7fabc", "INVALID_ARGUMENT"),
    "no UTF-8": (b"\x0a\x02\xff\xfe", "INVALID_ARGUMENT"),
    "too large": (changed(lambda r: r.raw_input_contents.append(bytes(MOST_BYTES))), "RESOURCE_EXHAUSTED"),
}  # fmt: skip


def code_of(url: str, content: bytes, compression: grpc.Compression | None = None) -> tuple[str, str]:
    """The code of an inference call, and its reason."""
    with grpc.insecure_channel(url, options=[("grpc.max_send_message_length", -1)]) as channel:
        call: Any = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        try:
            call(content, timeout=30, compression=compression)
        except grpc.RpcError as error:
            return error.code().name, str(error.details())
    return "OK", ""


@pytest.mark.parametrize("name", MESSAGES)
def test_messages(served: dict[str, str], name: str) -> None:
    message, expected = MESSAGES[name]
    content = message if isinstance(message, bytes) else message.SerializeToString()
    code, reason = code_of(served["grpc"], content)
    assert code == expected, reason
    assert len(reason) > 10


def test_a_compressed_message_may_not_become_too_large(served: dict[str, str]) -> None:
    huge = changed(lambda r: r.raw_input_contents.append(bytes(MOST_BYTES * 2))).SerializeToString()
    assert code_of(served["grpc"], huge, grpc.Compression.Gzip)[0] == "RESOURCE_EXHAUSTED"


@pytest.mark.parametrize("seed", range(40 if FULL else 6))
def test_bodies_with_mistakes_at_random(served: dict[str, str], seed: int) -> None:
    """Sound bodies in which bytes are changed, cut out, doubled: an answer, or a reason."""
    draw = random.Random(seed)
    host, port = served["http"].split(":")
    sound = [json.dumps(body(tensor())).encode(), SOUND + bytes(24), request().SerializeToString()]
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    codes = set()
    with grpc.insecure_channel(served["grpc"]) as channel:
        call: Any = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for number in range(125):
            content = bytearray(sound[number % 3])
            for _ in range(draw.randrange(1, 5)):
                begin = draw.randrange(len(content) or 1)
                end = begin + draw.randrange(4)
                content[begin:end] = draw.choice(
                    [b"", draw.randbytes(1), content[begin:end] * 2, b"-", b"9" * 20, b"[", b'"', b"\0"]
                )
            if number % 3 == 2:
                try:
                    call(bytes(content), timeout=30)
                except grpc.RpcError as error:
                    codes.add(error.code().name)
                continue
            headers = {"Inference-Header-Content-Length": str(len(SOUND))} if number % 3 else {}
            connection.request("POST", INFER, bytes(content), headers)
            response = connection.getresponse()
            response.read()
            codes.add(str(response.status))
    connection.close()
    assert codes <= {"200", "400", "404", "INVALID_ARGUMENT", "NOT_FOUND"}
    assert codes >= {"400", "INVALID_ARGUMENT"}  # the changes were mistakes over both protocols
