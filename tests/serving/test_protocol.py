"""Triton's clients get the module's outputs, to the last bit, whatever they send."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
from collections.abc import Iterator
from typing import Any

import grpc
import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc.aio
import tritonclient.http.aio
from tritonclient.grpc import service_pb2, service_pb2_grpc

import dl4all as dl
from dl4all.serving.datatypes import DATATYPES, held
from tests.conftest import need
from tests.serving.servers import CLIENTS, NDArray, ask, infer, numbers, serving, tensors, urls_of

pytestmark = [pytest.mark.usefixtures("deadline"), pytest.mark.filterwarnings("ignore:.*gevent.*")]
PROTOCOLS = pytest.mark.parametrize("protocol", CLIENTS)


class Typed(dl.nn.Module):
    """For each datatype an input and its output, changed where that loses nothing."""

    def forward(self, *inputs: dl.Tensor) -> tuple[dl.Tensor, ...]:
        return tuple(x.logical_not() if x.dtype == np.bool_ else x + x for x in inputs)


def of_datatype(datatype: str, rows: int) -> NDArray:
    """Numbers of a datatype, whose doubles it has, too."""
    dtype, draw = DATATYPES[datatype], np.random.default_rng(rows)
    if datatype == "BOOL":
        return draw.random((rows, 2)) > 0.5
    if datatype.startswith(("FP", "BF")):
        return draw.standard_normal((rows, 2)).astype(dtype)
    limits = np.iinfo(dtype)
    most = min(int(limits.max), np.iinfo(np.int64).max) // 2
    return draw.integers(max(int(limits.min) // 2, -most), most, (rows, 2), dtype=dtype)


@pytest.fixture(scope="module")
def typed() -> Iterator[dict[str, str]]:
    specs = [{"name": f"in {name}", "datatype": name, "shape": [-1, 2]} for name in DATATYPES]
    outputs = [{**spec, "name": f"out {spec['datatype']}"} for spec in specs]
    with serving(Typed(), specs, outputs, max_batch_size=4) as server:
        yield urls_of(server)


def doubled(datatype: str, array: NDArray) -> NDArray:
    if datatype == "BOOL":
        return ~array
    return (array.astype(held(datatype)) * 2).astype(array.dtype)


@PROTOCOLS
@pytest.mark.parametrize("rows", [1, 4, 5, 12])
def test_every_datatype_over_raw_bytes(typed: dict[str, str], protocol: str, rows: int) -> None:
    inputs = {f"in {name}": of_datatype(name, rows) for name in DATATYPES}
    answer = infer(typed[protocol], "m", protocol, inputs)
    for name in DATATYPES:
        found = answer.as_numpy(f"out {name}")
        if name == "BF16":  # Triton's clients read them as the float32 that they are a part of
            found = found.astype(ml_dtypes.bfloat16)
        assert found.dtype == DATATYPES[name]
        np.testing.assert_array_equal(found, doubled(name, inputs[f"in {name}"]))


@pytest.mark.parametrize("nested", [False, True])
def test_every_datatype_as_json(typed: dict[str, str], nested: bool) -> None:
    arrays = {name: of_datatype(name, 3) for name in DATATYPES}
    wide = {name: a.astype(np.float32) if name == "BF16" else a for name, a in arrays.items()}
    inputs = [
        {
            "name": f"in {name}",
            "datatype": name,
            "shape": [3, 2],
            "data": (a if nested else a.ravel()).tolist(),
        }
        for name, a in wide.items()
    ]
    body = json.dumps({"inputs": inputs, "id": "7"}).encode()
    answer = ask(typed["http"], "POST", "/v2/models/m/infer", body)
    assert answer.status == 200, answer.body
    assert answer.json["id"] == "7"
    assert answer.json["model_version"] == "1"
    for output, (name, array) in zip(answer.json["outputs"], arrays.items(), strict=True):
        assert output["name"] == f"out {name}"
        assert output["shape"] == [3, 2]
        found = np.array(output["data"], np.float32 if name == "BF16" else None).astype(DATATYPES[name])
        np.testing.assert_array_equal(found.reshape(3, 2), doubled(name, array))


def test_typed_contents_of_grpc(typed: dict[str, str]) -> None:
    fields = {
        **{"BOOL": "bool", "FP32": "fp32", "FP64": "fp64", "INT64": "int64", "UINT64": "uint64"},
        **dict.fromkeys(("INT8", "INT16", "INT32"), "int"),
        **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint"),
    }
    specs = [{"name": f"in {name}", "datatype": name, "shape": [-1, 2]} for name in fields]
    with serving(Typed(), specs, [{**s, "name": f"out {s['datatype']}"} for s in specs]) as server:
        request = service_pb2.ModelInferRequest(model_name="m", id="seven")
        for name, field in fields.items():
            tensor = request.inputs.add(name=f"in {name}", datatype=name, shape=[3, 2])
            getattr(tensor.contents, f"{field}_contents").extend(of_datatype(name, 3).ravel().tolist())
        with grpc.insecure_channel(server.grpc_url) as channel:
            answer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
    assert answer.id == "seven"
    for output, raw, name in zip(answer.outputs, answer.raw_output_contents, fields, strict=True):
        assert (output.name, output.datatype, [*output.shape]) == (f"out {name}", name, [3, 2])
        found = np.frombuffer(raw, DATATYPES[name]).reshape(3, 2)
        np.testing.assert_array_equal(found, doubled(name, of_datatype(name, 3)))


class Sized(dl.nn.Module):
    """The sum over all sizes but the batch's, and the input."""

    def forward(self, x: dl.Tensor) -> dict[str, dl.Tensor]:
        return {"same": x, "sum": x.reshape(x.shape[0], -1).sum(1)}


@PROTOCOLS
@pytest.mark.parametrize("free", range(5))
def test_free_sizes(protocol: str, free: int) -> None:
    spec = {"name": "x", "datatype": "FP32", "shape": [-1] * (free + 1)}
    outputs = [{**spec, "name": "same"}, {**spec, "name": "sum", "shape": [-1]}]
    with serving(Sized(), [spec], outputs, max_batch_size=4) as server:
        for sizes in ([3, 1, 2, 5], [2, 4, 1, 3]):
            x = numbers(3, *sizes[:free])
            answer = infer(urls_of(server)[protocol], "m", protocol, {"x": x})
            np.testing.assert_array_equal(answer.as_numpy("same"), x)
            np.testing.assert_allclose(answer.as_numpy("sum"), x.reshape(3, -1).sum(1), rtol=1e-5)


@PROTOCOLS
@pytest.mark.vulkan
@pytest.mark.parametrize("name", ["cpu", "vulkan:0", "kompute:0"])
def test_outputs_are_the_module_s_to_the_last_bit(protocol: str, name: str) -> None:
    need(name)
    dl.manual_seed(3)
    module = dl.nn.Sequential(dl.nn.Conv2d(3, 4, 3), dl.nn.BatchNorm2d(4), dl.nn.GELU(), dl.nn.Flatten())
    spec = {"name": "image", "datatype": "FP32", "shape": [-1, 3, 7, 7]}
    out = {"name": "features", "datatype": "FP32", "shape": [-1, 100]}
    with serving(module, [spec], [out], [name], max_batch_size=4) as server:
        module.eval().to(name)
        for rows in (1, 2, 4):
            x = numbers(rows, 3, 7, 7)
            expected = module(dl.from_numpy(x, name)).detach().numpy()
            for _ in range(2):
                answer = infer(urls_of(server)[protocol], "m", protocol, {"image": x})
                np.testing.assert_array_equal(answer.as_numpy("features"), expected)


@pytest.mark.parametrize("binary", [*itertools.product([True, False], repeat=2)])
def test_binary_and_json_data_mix(typed: dict[str, str], binary: tuple[bool, bool]) -> None:
    inputs = {f"in {name}": of_datatype(name, 2) for name in DATATYPES if name not in ("FP16", "BF16")}
    module = CLIENTS["http"]
    given = tensors(module, inputs, binary_data=binary[0])
    given += tensors(module, {f"in {name}": of_datatype(name, 2) for name in ("FP16", "BF16")})
    wanted = [module.InferRequestedOutput(f"out {name}", binary_data=binary[1]) for name in ("INT8", "FP64")]
    client = module.InferenceServerClient(typed["http"])
    for compression in (None, "gzip", "deflate"):
        answer = client.infer(
            "m",
            given,
            outputs=wanted,
            request_id="3",
            request_compression_algorithm=compression,
            response_compression_algorithm=compression,
        )
        assert answer.get_response()["id"] == "3"
        assert [output["name"] for output in answer.get_response()["outputs"]] == ["out INT8", "out FP64"]
        for name in ("INT8", "FP64"):
            np.testing.assert_array_equal(answer.as_numpy(f"out {name}"), doubled(name, inputs[f"in {name}"]))
    client.close()


def test_large_answers_are_compressed_for_those_who_ask() -> None:
    with serving(dl.nn.Identity(), max_batch_size=512) as server:
        client = CLIENTS["http"].InferenceServerClient(server.http_url)
        x = np.repeat(numbers(1, 3), 500, 0)
        answer = client.infer("m", tensors(CLIENTS["http"], {"x": x}), response_compression_algorithm="gzip")
        np.testing.assert_array_equal(answer.as_numpy("y"), x)
        client.close()
        body = json.dumps(
            {"inputs": [{"name": "x", "datatype": "FP32", "shape": [500, 3], "data": x.tolist()}]}
        )
        plain = ask(server.http_url, "POST", "/v2/models/m/infer", body.encode())
        packed = ask(server.http_url, "POST", "/v2/models/m/infer", body.encode(), Accept_Encoding="gzip")
        assert packed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(packed.body) == plain.body
        assert len(packed.body) * 5 < len(plain.body)


def test_clients_of_asyncio(typed: dict[str, str]) -> None:
    inputs = {f"in {name}": of_datatype(name, 2) for name in DATATYPES}

    async def answers() -> list[Any]:
        found = []
        for module, url in ((tritonclient.http.aio, typed["http"]), (tritonclient.grpc.aio, typed["grpc"])):
            client = module.InferenceServerClient(url)
            parent = CLIENTS["http" if module is tritonclient.http.aio else "grpc"]
            calls = (client.infer("m", tensors(parent, inputs)) for _ in range(8))
            found += await asyncio.gather(*calls)
            await client.close()
        return found

    for answer in asyncio.run(answers()):
        np.testing.assert_array_equal(answer.as_numpy("out FP64"), doubled("FP64", inputs["in FP64"]))


def test_what_servers_and_models_say_of_themselves(typed: dict[str, str]) -> None:
    http, rpc = (CLIENTS[p].InferenceServerClient(typed[p]) for p in ("http", "grpc"))
    for client in (http, rpc):
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("m")
        assert client.is_model_ready("m", "1")
        assert not client.is_model_ready("m", "2")
        assert not client.is_model_ready("n")
    assert http.get_server_metadata() == rpc.get_server_metadata(as_json=True)
    described = http.get_model_metadata("m")
    assert described["inputs"][0] == {"name": "in BOOL", "datatype": "BOOL", "shape": [-1, 2]}
    assert [spec["name"] for spec in described["outputs"]] == [f"out {name}" for name in DATATYPES]
    assert described["versions"] == ["1"]
    assert [spec.name for spec in rpc.get_model_metadata("m").inputs] == [
        s["name"] for s in described["inputs"]
    ]
    config = http.get_model_config("m")
    assert config["max_batch_size"] == rpc.get_model_config("m").config.max_batch_size == 4
    assert config["input"][5] == {"name": "in INT8", "data_type": "TYPE_INT8", "dims": [2]}
    assert http.get_model_repository_index()[0]["state"] == "READY"
    assert rpc.get_model_repository_index().models[0].name == "m"
    before = int(http.get_inference_statistics("m")["model_stats"][0]["inference_stats"]["success"]["count"])
    infer(typed["grpc"], "m", "grpc", {f"in {name}": of_datatype(name, 4) for name in DATATYPES})
    (stats,) = http.get_inference_statistics()["model_stats"]
    assert stats["inference_stats"]["success"]["count"] == before + 1
    assert stats["inference_stats"]["compute_infer"]["ns"] > 0
    assert stats["batch_stats"][-1]["batch_size"] == 4
    same = rpc.get_inference_statistics("m").model_stats[0]
    assert (same.inference_count, same.execution_count) == (
        stats["inference_count"],
        stats["execution_count"],
    )
    http.close()
    rpc.close()
