"""One inference request, whichever protocol it came by: counted, and with one reason if it fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping

from dl4all.serving.datatypes import NDArray
from dl4all.serving.metrics import Metrics
from dl4all.serving.protocol.request_tensors import check_outputs
from dl4all.serving.request_error import Reason, RequestError, as_request_error
from dl4all.serving.served_model import Answer, ServedModel
from dl4all.serving.served_models import ServedModels


class InferenceRequest:
    """A request from its arrival to its answer; a context that counts how it ends.

    Args:
        models, metrics: of the server.
        name, version: of the model that is asked.
        protocol: ``"http"`` or ``"grpc"``.

    Raises:
        RequestError: on leaving, in the place of whatever was raised within.
    """

    def __init__(
        self, models: ServedModels, metrics: Metrics, name: str, version: str, protocol: str
    ) -> None:
        self._models, self._metrics = models, metrics
        self._name, self._version, self._protocol = name, version, protocol
        self._begun = time.perf_counter()
        self._model: ServedModel | None = None
        self._answer: Answer | None = None

    def __enter__(self) -> InferenceRequest:
        return self

    def model(self) -> ServedModel:
        """The model that is asked.

        Raises:
            RequestError: there is none.
        """
        self._model = self._models.get(self._name, self._version)
        return self._model

    async def answer(
        self, inputs: Mapping[str, NDArray], outputs: Iterable[str] | None, seconds: float | None
    ) -> tuple[ServedModel, dict[str, NDArray]]:
        """The model that has answered, and its outputs.

        Args:
            inputs: by name.
            outputs: names that are wanted; None for all.
            seconds: after which the client gives up.

        Raises:
            RequestError: why there are none.
        """
        model = self.model()  # another one than at the arrival, perhaps: it was replaced meanwhile
        if outputs is not None:
            check_outputs(outputs, (spec.name for spec in model.config.outputs))
        self._answer = await model.infer(inputs, seconds)
        return model, self._answer.outputs

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: object) -> None:
        refused: RequestError | None = None
        if isinstance(error, asyncio.CancelledError):
            refused = RequestError(Reason.GONE, "the client has left")
        elif error is not None:
            refused = as_request_error(error)  # logged once, where it is answered
        seconds = time.perf_counter() - self._begun
        answer = self._answer if refused is None else None
        if self._protocol == "http":
            code = str(200 if refused is None else refused.reason.http)
        else:
            code = "OK" if refused is None else refused.reason.grpc
        self._metrics.count(self._model, self._protocol, code, seconds, answer)
        if self._model is not None:
            self._model.totals.count(seconds, answer)
        if refused is not None and isinstance(error, Exception):
            raise refused from error
