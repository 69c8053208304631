"""The protocol over HTTP: routes of a Starlette application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from dl4all.serving.metrics import Metrics
from dl4all.serving.protocol import descriptions
from dl4all.serving.protocol.http_body import HEADER, decompressed, read_body, write_body
from dl4all.serving.protocol.http_request import cancelled_when_gone, json_object, whole_body
from dl4all.serving.protocol.inference import InferenceRequest
from dl4all.serving.request_error import Reason, invalid
from dl4all.serving.served_model import ServedModel
from dl4all.serving.served_models import ServedModels, reason_of

COMPRESSED_FROM = 1024  # bytes; smaller answers gain nothing
PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"

Endpoint = Callable[[Request], Awaitable[Response]]


def application(models: ServedModels, metrics: Metrics, more: Sequence[Route] = ()) -> Starlette:
    """The application of a server: what it answers at which path.

    Args:
        more: routes of other protocols.
    """
    routes = _Routes(models, metrics)
    paths = "/v2/models/{name}", "/v2/models/{name}/versions/{version}"
    about_models = {
        "": routes.model,
        "/ready": routes.model_ready,
        "/config": routes.config,
        "/stats": routes.statistics,
    }
    return Starlette(
        routes=[  # tried in this order: what is asked most comes first
            *(Route(path + "/infer", _Answering(routes.infer), methods=["POST"]) for path in paths),
            Route("/v2/health/live", _Answering(routes.live), methods=["GET"]),
            Route("/v2/health/ready", _Answering(routes.ready), methods=["GET"]),
            Route("/metrics", _Answering(routes.metrics), methods=["GET"]),
            Route("/v2", _Answering(routes.server), methods=["GET"]),
            Route("/v2/models/stats", _Answering(routes.all_statistics), methods=["GET"]),
            *(
                Route(path + end, _Answering(endpoint), methods=["GET"])
                for path in paths
                for end, endpoint in about_models.items()
            ),
            Route("/v2/repository/index", _Answering(routes.index), methods=["POST"]),
            Route("/v2/repository/models/{name}/load", _Answering(routes.load), methods=["POST"]),
            Route("/v2/repository/models/{name}/unload", _Answering(routes.unload), methods=["POST"]),
            *more,
        ],
        exception_handlers={HTTPException: _no_route},
    )


async def _no_route(request: Request, error: Exception) -> Response:
    """The answer to a path or a method that there is not."""
    assert isinstance(error, HTTPException)
    reason = f"{request.method} {request.url.path[:200]}: {error.detail}; see the Open Inference Protocol"
    return JSONResponse({"error": reason}, error.status_code, error.headers)


class _Answering:
    """An endpoint that answers by a reason where it fails, and compressed where the client wants that.

    It is an application by itself: Starlette would wrap a function once more.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response: ASGIApp = await self._endpoint(request)
        except Exception as error:  # noqa: BLE001  # the client gets its reason
            refused = reason_of(error)
            headers = {"Retry-After": "1"} if refused.reason.http == Reason.FULL.http else None
            response = JSONResponse({"error": str(refused)}, refused.reason.http, headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            response = GZipMiddleware(response, minimum_size=COMPRESSED_FROM, compresslevel=1)
        await response(scope, receive, send)


class _Routes:
    """The endpoints."""

    def __init__(self, models: ServedModels, metrics: Metrics) -> None:
        self._models, self._metrics = models, metrics

    def _model(self, request: Request) -> ServedModel:
        found = request.path_params
        return self._models.get(found["name"], found.get("version", ""))

    async def live(self, request: Request) -> Response:
        return Response()

    async def ready(self, request: Request) -> Response:
        return Response(status_code=200 if self._models.ready else 503)

    async def server(self, request: Request) -> Response:
        return JSONResponse(descriptions.of_server())

    async def model(self, request: Request) -> Response:
        return JSONResponse(descriptions.of_model(self._model(request)))

    async def model_ready(self, request: Request) -> Response:
        return Response(status_code=200 if self._model(request).ready else 503)

    async def config(self, request: Request) -> Response:
        return JSONResponse(descriptions.of_config(self._model(request)))

    async def statistics(self, request: Request) -> Response:
        return JSONResponse({"model_stats": [descriptions.of_statistics(self._model(request))]})

    async def all_statistics(self, request: Request) -> Response:
        served = self._models.by_name.values()
        return JSONResponse({"model_stats": [descriptions.of_statistics(model) for model in served]})

    async def metrics(self, request: Request) -> Response:
        return Response(self._metrics.text(), headers={"Content-Type": PROMETHEUS_TEXT})

    async def index(self, request: Request) -> Response:
        wanted = await json_object(request)
        ready = wanted.get("ready", False) is True
        return JSONResponse([entry._asdict() for entry in self._models.index(ready)])

    async def load(self, request: Request) -> Response:
        # Triton's clients may send files and settings along, which are not taken: code comes from the folder
        if (await json_object(request)).get("parameters"):
            raise invalid("a model is loaded as its folder says; parameters are not supported")
        await self._models.load(request.path_params["name"])
        return JSONResponse({})

    async def unload(self, request: Request) -> Response:
        await self._models.unload(request.path_params["name"])
        return JSONResponse({})

    async def infer(self, request: Request) -> Response:
        found = request.path_params
        name, version = found["name"], found.get("version", "")
        with InferenceRequest(self._models, self._metrics, name, version, "http") as inference:
            inference.model()  # or say so before the body comes
            encoding = request.headers.get("content-encoding", "")
            body = read_body(decompressed(await whole_body(request), encoding), request.headers.get(HEADER))
            with cancelled_when_gone(request):
                model, results = await inference.answer(body.inputs, body.outputs, body.seconds)
            datatypes = {spec.name: spec.datatype for spec in model.config.outputs}
            content, length = write_body(model.name, model.version, body, results, datatypes)
        if length is None:
            return Response(content, media_type="application/json")
        return Response(content, media_type="application/octet-stream", headers={HEADER: str(length)})
