"""The protocol over gRPC: the service ``inference.GRPCInferenceService``, and health for probes.

Messages are parsed here, not by gRPC, which would call a broken one an internal error.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn

import grpc
import numpy as np
from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dl4all.serving.datatypes import NDArray
from dl4all.serving.metrics import Metrics
from dl4all.serving.protocol import descriptions
from dl4all.serving.protocol import open_inference_pb2 as messages
from dl4all.serving.protocol.inference import InferenceRequest
from dl4all.serving.protocol.request_tensors import (
    check_parameters,
    checked_shape,
    dtype_of,
    from_bytes,
    from_numbers,
    patience,
)
from dl4all.serving.request_error import RequestError, invalid
from dl4all.serving.served_model import ServedModel
from dl4all.serving.served_models import ServedModels, reason_of

SERVICE = "inference.GRPCInferenceService"
WATCH_SECONDS = 0.5
"""Between two looks whether a watched model has become ready, or is not any more."""

CONTENTS = {
    "BOOL": "bool_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "INT64": "int64_contents",
    "UINT64": "uint64_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
}
"""The field of an input's typed contents; other datatypes come as bytes."""

Context = grpc.aio.ServicerContext[Any, Any]
Method = Callable[[Any, Context], Awaitable[Message]]


def add_services(server: grpc.aio.Server, models: ServedModels, metrics: Metrics) -> None:
    """Let a server answer the protocol's calls, and those of ``grpc.health.v1``."""
    service = _Service(models, metrics)
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        name: grpc.unary_unary_rpc_method_handler(
            _answering(getattr(service, name), getattr(messages, f"{name}Request")),
            response_serializer=getattr(messages, f"{name}Response").SerializeToString,
        )
        for name in METHODS
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    health_pb2_grpc.add_HealthServicer_to_server(_Health(models), server)


def _answering(method: Method, request_type: Any) -> Callable[[bytes, Context], Awaitable[Message]]:
    """A method on the bytes of its request, which ends with a reason where it fails."""

    async def answer(data: bytes, context: Context) -> Message:
        try:
            try:
                request = request_type.FromString(data)
            except DecodeError:
                raise invalid(f"the request is no {request_type.DESCRIPTOR.name}") from None
            return await method(request, context)
        except Exception as error:  # noqa: BLE001  # the client gets its reason
            await _abort(context, reason_of(error))

    return answer


async def _abort(context: Context, refused: RequestError) -> NoReturn:
    await context.abort(grpc.StatusCode[refused.reason.grpc], str(refused))
    raise AssertionError("abort raises")


class _Service:
    """The methods of the service under their names in the protocol."""

    def __init__(self, models: ServedModels, metrics: Metrics) -> None:
        self._models, self._metrics = models, metrics

    async def ServerLive(self, request: messages.ServerLiveRequest, context: Context) -> Message:
        return messages.ServerLiveResponse(live=True)

    async def ServerReady(self, request: messages.ServerReadyRequest, context: Context) -> Message:
        return messages.ServerReadyResponse(ready=self._models.ready)

    async def ModelReady(self, request: messages.ModelReadyRequest, context: Context) -> Message:
        try:
            ready = self._models.get(request.name, request.version).ready
        except RequestError:
            ready = False
        return messages.ModelReadyResponse(ready=ready)

    async def ServerMetadata(self, request: messages.ServerMetadataRequest, context: Context) -> Message:
        return ParseDict(descriptions.of_server(), messages.ServerMetadataResponse())

    async def ModelMetadata(self, request: messages.ModelMetadataRequest, context: Context) -> Message:
        model = self._models.get(request.name, request.version)
        return ParseDict(descriptions.of_model(model), messages.ModelMetadataResponse())

    async def ModelConfig(self, request: messages.ModelConfigRequest, context: Context) -> Message:
        config = descriptions.of_config(self._models.get(request.name, request.version))
        return ParseDict({"config": config}, messages.ModelConfigResponse())

    async def ModelStatistics(self, request: messages.ModelStatisticsRequest, context: Context) -> Message:
        if request.name:
            models = [self._models.get(request.name, request.version)]
        else:
            models = [*self._models.by_name.values()]
        stats = {"model_stats": [descriptions.of_statistics(model) for model in models]}
        return ParseDict(stats, messages.ModelStatisticsResponse())

    async def RepositoryIndex(self, request: messages.RepositoryIndexRequest, context: Context) -> Message:
        entries = [entry._asdict() for entry in self._models.index(request.ready)]
        return ParseDict({"models": entries}, messages.RepositoryIndexResponse())

    async def RepositoryModelLoad(
        self, request: messages.RepositoryModelLoadRequest, context: Context
    ) -> Message:
        if request.parameters:
            raise invalid("a model is loaded as its folder says; parameters are not supported")
        await self._models.load(request.model_name)
        return messages.RepositoryModelLoadResponse()

    async def RepositoryModelUnload(
        self, request: messages.RepositoryModelUnloadRequest, context: Context
    ) -> Message:
        await self._models.unload(request.model_name)
        return messages.RepositoryModelUnloadResponse()

    async def ModelInfer(self, request: messages.ModelInferRequest, context: Context) -> Message:
        name, version = request.model_name, request.model_version
        with InferenceRequest(self._models, self._metrics, name, version, "grpc") as inference:
            inference.model()
            check_parameters(request.parameters, "the request")
            outputs = _wanted(request)
            timeout = request.parameters.get("timeout")
            inputs = read_inputs(request)
            model, results = await inference.answer(
                inputs, outputs or None, patience(timeout and _number(timeout))
            )
            return write_response(request.id, model, {name: results[name] for name in outputs or results})


METHODS = tuple(name for name in vars(_Service) if not name.startswith("_"))


def _number(parameter: messages.InferParameter) -> Any:
    """The value of a parameter that is to be an integer."""
    choice = parameter.WhichOneof("parameter_choice")
    value = None if choice is None else getattr(parameter, choice)
    return -1 if value is None else value


def _wanted(request: messages.ModelInferRequest) -> list[str]:
    names = [output.name for output in request.outputs]
    for output in request.outputs:
        check_parameters(output.parameters, f"output {output.name[:60]!r}")
    if len({*names}) < len(names):
        raise invalid("an output is wanted twice")
    return names


def read_inputs(request: messages.ModelInferRequest) -> dict[str, NDArray]:
    """The inputs of a request by name.

    Raises:
        RequestError: what is wrong with them.
    """
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise invalid(f"the request has {len(request.inputs)} inputs and {len(raw)} raw_input_contents")
    inputs: dict[str, NDArray] = {}
    for number, entry in enumerate(request.inputs):
        name = entry.name
        if name in inputs:
            raise invalid(f"input {name[:60]!r} comes twice")
        check_parameters(entry.parameters, f"input {name[:60]!r}")
        dtype, shape = dtype_of(name, entry.datatype), checked_shape(name, [*entry.shape])
        if raw and entry.HasField("contents"):
            raise invalid(f"input {name[:60]!r} has contents, and the request raw_input_contents")
        if raw:
            inputs[name] = from_bytes(raw[number], name, dtype, shape)
            continue
        field = CONTENTS.get(entry.datatype)
        if field is None:
            raise invalid(f"input {name[:60]!r} is {entry.datatype}, which comes in raw_input_contents")
        numbers = getattr(entry.contents, field)
        if len(numbers) != math.prod(shape):
            raise invalid(f"input {name[:60]!r} has {len(numbers)} numbers in {field}, and says {[*shape]}")
        inputs[name] = from_numbers(np.array(numbers, _wire_dtype(field)), name, dtype, shape)
    return inputs


def _wire_dtype(field: str) -> str:
    """The dtype of a field of typed contents.

    >>> _wire_dtype("fp32_contents"), _wire_dtype("uint_contents")
    ('float32', 'uint32')
    """
    word = field.removesuffix("_contents").replace("fp", "float")
    return word if word[-1].isdigit() or word == "bool" else word + "32"


def write_response(name: str, model: ServedModel, results: dict[str, NDArray]) -> messages.ModelInferResponse:
    """The message of an answer."""
    response = messages.ModelInferResponse(model_name=model.name, model_version=model.version, id=name)
    datatypes = {spec.name: spec.datatype for spec in model.config.outputs}
    for output, array in results.items():
        response.outputs.add(name=output, datatype=datatypes[output], shape=array.shape)
        response.raw_output_contents.append(array.tobytes())
    return response


class _Health(health_pb2_grpc.HealthServicer):
    """``grpc.health.v1``: of the server, by the name of the service or none, and of models by theirs."""

    def __init__(self, models: ServedModels) -> None:
        self._models = models

    def _status(self, service: str) -> Any:
        if service in ("", SERVICE):
            ready = self._models.ready
        elif service in self._models.by_name:
            ready = self._models.by_name[service].ready and not self._models.stopping
        else:
            return health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        return health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Context) -> Message:
        status = self._status(request.service)
        if status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no service {request.service[:60]!r}")
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Context) -> AsyncIterator[Message]:
        told = None
        while True:
            status, last = self._status(request.service), self._models.stopping
            if status != told:
                yield health_pb2.HealthCheckResponse(status=status)
            if last:
                return
            told = status
            await asyncio.sleep(WATCH_SECONDS)
