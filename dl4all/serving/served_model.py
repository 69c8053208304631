"""One version of a model that answers requests: its queue, its checks, its numbers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dl4all.errors import DeviceError
from dl4all.multi_device.serving.inference_queue import InferenceQueue
from dl4all.multi_device.serving.request import Request
from dl4all.nn.module import Module
from dl4all.scheduler.streams.group import DeviceGroup
from dl4all.serving.datatypes import DATATYPES, NDArray, from_held, held, to_held
from dl4all.serving.model_config import ModelConfig, TensorSpec
from dl4all.serving.request_error import Reason, RequestError, as_request_error, invalid
from dl4all.tensor.tensor import Tensor

RECORDED_CALLS = 3
"""Calls of one batch size after which a compiled model replays them."""


class Answer(NamedTuple):
    """The outputs of a request by name, and what they took."""

    outputs: dict[str, NDArray]
    rows: int
    queue_seconds: float
    compute_seconds: float


@dataclass
class Durations:
    """The number of requests that ended in one way, and the seconds that they took together."""

    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds


@dataclass
class RequestTotals:
    """A model's requests since it was loaded."""

    success: Durations = field(default_factory=Durations)
    fail: Durations = field(default_factory=Durations)
    queue: Durations = field(default_factory=Durations)
    compute: Durations = field(default_factory=Durations)
    rows: int = 0
    latest: float = 0.0
    """When a request was answered, in seconds since the epoch."""

    def count(self, seconds: float, answer: Answer | None) -> None:
        """Count a request that took so long, from its arrival to its answer or its failure."""
        self.latest = time.time()
        (self.fail if answer is None else self.success).add(seconds)
        if answer is not None:
            self.queue.add(answer.queue_seconds)
            self.compute.add(answer.compute_seconds)
            self.rows += answer.rows


class ServedModel:
    """A version of a model, whose requests are answered in batches.

    Args:
        name, version: by which clients ask for it.
        module: its inputs and outputs have the batch as first axis.
        config: what it takes and returns.
        devices: for settings that name none.

    Raises:
        RequestError: what the module returns is not what the settings say.
        Exception: what the module or a device raises at a first batch.
    """

    def __init__(
        self, name: str, version: str, module: Module, config: ModelConfig, devices: Sequence[str]
    ) -> None:
        self.name, self.version, self.config = name, version, config
        self._active = 0  # requests that are not answered yet
        self._idle: asyncio.Event | None = None  # set when there is none, once somebody waits for that
        self.totals = RequestTotals()
        chosen = [*(config.devices or devices)]
        with contextlib.ExitStack() as stack:
            self.group = DeviceGroup("all" if chosen == ["all"] else chosen)
            stack.callback(self.group.close)
            self.queue = InferenceQueue(
                module,
                self.group,
                max_batch=config.max_batch_size,
                max_wait=config.max_queue_delay_microseconds * 1e-6,
                limit=config.max_queue_size,
                compile=config.compile,
            )
            stack.callback(self.queue.close, cancel=True)
            self._warm_up()
            self._opened = stack.pop_all()

    def _warm_up(self) -> None:
        """Compute the smallest and the largest batch on each device, and check what comes.

        Sizes that requests choose may have to fit each other: a failure with guessed ones tells nothing.
        """
        guessed = any(spec.open_sizes for spec in self.config.inputs)
        calls = RECORDED_CALLS if self.config.compile else 1
        for rows in sorted({1, self.config.max_batch_size}):
            inputs = [_example(spec, rows) for spec in self.config.inputs]
            try:
                for _ in range(calls):
                    output = self.queue.warm_up(*inputs)
            except DeviceError:
                raise
            except Exception:
                if guessed:
                    return
                raise
            self.named(output)

    @property
    def ready(self) -> bool:
        """Whether a device is left that computes."""
        return bool(self.group.alive)

    def checked(self, given: Mapping[str, NDArray]) -> list[NDArray]:
        """The inputs of a request in the order of the module's arguments, as tensors hold them.

        Raises:
            RequestError: one is missing, unknown, of another datatype or shape, or of another batch.
        """
        specs = self.config.inputs
        if len(given) != len(specs) or any(spec.name not in given for spec in specs):
            names = ", ".join(spec.name for spec in specs)
            raise invalid(f"model {self.name!r} takes the inputs {names}; got {', '.join(given) or 'none'}")
        arrays = []
        for spec in specs:
            array = given[spec.name]
            if array.dtype != DATATYPES[spec.datatype]:
                raise invalid(f"input {spec.name!r} is {spec.datatype}, got {array.dtype}")
            if not spec.takes(array.shape):
                raise invalid(f"input {spec.name!r} has the shape {[*spec.shape]}, got {[*array.shape]}")
            arrays.append(to_held(array))
        if len({array.shape[0] for array in arrays}) > 1 or not arrays[0].shape[0]:
            shapes = ", ".join(str([*array.shape]) for array in arrays)
            raise invalid(
                f"inputs must have the same number of rows, at least 1, as first size; got {shapes}"
            )
        return arrays

    async def infer(self, given: Mapping[str, NDArray], seconds: float | None = None) -> Answer:
        """The outputs of a request for its inputs by name.

        Where the task of this call is cancelled, the request leaves the queue. The model is not closed before
        this returns.

        Args:
            given: arrays of the datatypes that the settings name.
            seconds: after which to give up, if that is sooner than the settings say.

        Raises:
            RequestError: why there is no output.
        """
        inputs = self.checked(given)
        limit = self.config.timeout_seconds
        timeout = limit if seconds is None else min(limit, seconds)
        request = self._submitted(inputs)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        request.add_done_callback(lambda _: loop.call_soon_threadsafe(_settle, done))
        timer = loop.call_later(timeout, _settle, done)
        self._active += 1
        try:
            await done
        finally:
            timer.cancel()
            request.cancel()  # of no effect on one that is done
            self._active -= 1
            if not self._active and self._idle is not None:
                self._idle.set()
        if not request.done() or request.state == "cancelled":
            raise RequestError(Reason.LATE, f"model {self.name!r} had no answer within {timeout} seconds")
        try:
            outputs = self.named(request.result())
        except Exception as error:
            raise as_request_error(error) from error
        return Answer(outputs, request.rows, request.begun - request.submitted, request.ended - request.begun)

    def _submitted(self, inputs: Sequence[NDArray]) -> Request:
        try:
            return self.queue.submit_batch(*inputs, timeout=0)
        except Exception as error:
            raise as_request_error(error) from error

    def named(self, output: Any) -> dict[str, NDArray]:
        """The module's output by names, in the datatypes of the settings.

        Raises:
            RequestError: it is not what the settings say.
        """
        specs = self.config.outputs
        if isinstance(output, Mapping):
            parts = [output.get(spec.name) for spec in specs]
        else:
            parts = [*output] if isinstance(output, (tuple, list)) else [output]
        if len(parts) < len(specs) or not all(isinstance(part, Tensor) for part in parts[: len(specs)]):
            raise RequestError(
                Reason.FAILED,
                f"model {self.name!r} returns {_described(output)}; its settings name the outputs "
                f"{', '.join(spec.name for spec in specs)}",
            )
        return {
            spec.name: self._array(spec, part.numpy())
            for spec, part in zip(specs, parts, strict=False)
            if isinstance(part, Tensor)
        }

    def _array(self, spec: TensorSpec, array: NDArray) -> NDArray:
        if array.dtype != held(spec.datatype) or not spec.takes(array.shape):
            raise RequestError(
                Reason.FAILED,
                f"output {spec.name!r} of model {self.name!r} is {array.dtype} of shape {[*array.shape]}; "
                f"its settings say {spec.datatype} of shape {[*spec.shape]}",
            )
        return from_held(array, spec.datatype)

    async def drain(self) -> None:
        """Close, when the requests that are under way are answered; nobody may begin another one."""
        self._idle = asyncio.Event()
        if self._active:
            await self._idle.wait()
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Drop what waits, and give the devices back."""
        self._opened.close()


def _settle(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def _example(spec: TensorSpec, rows: int) -> NDArray:
    """Ones of an input's shape: they may be indices, or masks."""
    shape = (rows, *(1 if size == -1 else size for size in itertools.islice(spec.shape, 1, None)))
    return np.ones(shape, held(spec.datatype))


def _described(output: Any) -> str:
    if isinstance(output, Mapping):
        return f"a dict of {', '.join(map(str, output))}"
    if isinstance(output, (tuple, list)):
        return f"{len(output)} outputs"
    return type(output).__name__
