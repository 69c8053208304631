"""Servers and repositories for tests."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tritonclient.grpc
import tritonclient.http

import dl4all as dl
from dl4all.serving.datatypes import DATATYPES
from tests.support.forked_process import SERVER, ForkedProcess

NDArray = npt.NDArray[Any]
CLIENTS: dict[str, ModuleType] = {"http": tritonclient.http, "grpc": tritonclient.grpc}
X = {"name": "x", "datatype": "FP32", "shape": [-1, 3]}
Y = {"name": "y", "datatype": "FP32", "shape": [-1, 3]}

VERSIONED = """
import dl4all as dl

class Model(dl.nn.Module):
    def forward(self, x):
        return x * 0 + {version}

def load():
    return Model()
"""
"""A model that answers with the number of its version."""


class Answer(NamedTuple):
    """A status, a body and its headers."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(url: str, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
    """One request over a connection of its own."""
    connection = http.client.HTTPConnection(url, timeout=30)
    try:
        connection.request(
            method, path, body, {key.replace("_", "-"): value for key, value in headers.items()}
        )
        response = connection.getresponse()
        return Answer(response.status, response.read(), {k.lower(): v for k, v in response.getheaders()})
    finally:
        connection.close()


def infer(url: str, model: str, protocol: str, inputs: Mapping[str, NDArray], **options: Any) -> Any:
    """The answer to a client of Triton's, asked once."""
    client = CLIENTS[protocol].InferenceServerClient(url)
    try:
        return client.infer(model, tensors(CLIENTS[protocol], inputs), **options)
    finally:
        client.close()


def tensors(module: ModuleType, inputs: Mapping[str, NDArray], **options: Any) -> list[Any]:
    """Inputs as a module of Triton's clients has them."""
    names = {dtype: name for name, dtype in DATATYPES.items()}
    made = []
    for name, array in inputs.items():
        tensor = module.InferInput(name, [*array.shape], names[array.dtype])
        tensor.set_data_from_numpy(array, **options)
        made.append(tensor)
    return made


def urls_of(server: dl.serving.Server) -> dict[str, str]:
    return {"http": server.http_url, "grpc": server.grpc_url}


@contextlib.contextmanager
def serving(
    module: dl.nn.Module,
    inputs: Sequence[Mapping[str, Any]] = (X,),
    outputs: Sequence[Mapping[str, Any]] = (Y,),
    devices: Sequence[str] = ("cpu",),
    **settings: Any,
) -> Iterator[dl.serving.Server]:
    """A server in this process of one model ``m``."""
    server = dl.serving.Server(http_port=0, grpc_port=0, devices=devices)
    server.add("m", module, inputs, outputs, **settings)
    with server:
        yield server


def write_model(
    repository: Path, name: str, version: int | str, code: str, settings: str = "", inputs: str = "[-1, 3]"
) -> None:
    """A version of a model from x to y."""
    folder = repository / name / str(version)
    folder.mkdir(parents=True)
    tables = "".join(
        f'[[{key}]]\nname = "{tensor}"\ndatatype = "FP32"\nshape = {inputs}\n'
        for key, tensor in (("inputs", "x"), ("outputs", "y"))
    )
    (repository / name / "config.toml").write_text(f"{settings}\n{tables}")
    (folder / "model.py").write_text(code)


class Process:
    """``dl4all serve`` as a process of its own."""

    def __init__(self, repository: Path, *options: str, **environment: str) -> None:
        command = [sys.executable, "-m", "dl4all", "serve", str(repository), *options]
        if not any(option.startswith("--http-port") for option in options):
            command += ["--http-port=0", "--grpc-port=0"]
        self.popen = ForkedProcess(
            [*command, "--device=cpu"],
            preload=SERVER,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        assert line.startswith("serving "), line + self.ended()
        self.urls = dict(word.split("://") for word in line.split()[1:])

    def ended(self) -> str:
        """Its standard error, once it has ended."""
        return str(self.popen.communicate(timeout=60)[1])

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.communicate(timeout=60)


class Load:
    """Clients of one protocol that ask without a pause, and what came of it."""

    def __init__(self, protocol: str, url: str, threads: int = 3, **options: Any) -> None:
        self.answers: list[tuple[str, float]] = []
        """The version and the number of each."""
        self.errors: list[Exception] = []
        self._over = threading.Event()
        self._work = [
            threading.Thread(target=self._ask, args=(protocol, url, options)) for _ in range(threads)
        ]
        for thread in self._work:
            thread.start()

    def _ask(self, protocol: str, url: str, options: Mapping[str, Any]) -> None:
        module = CLIENTS[protocol]
        client = module.InferenceServerClient(url, **options)
        given = tensors(module, {"x": numbers(2, 3)})
        while not self._over.is_set():
            try:
                answer = client.infer("m", given)
                response = answer.get_response()
                version = response["model_version"] if protocol == "http" else response.model_version
                self.answers.append((version, float(answer.as_numpy("y")[1, 2])))
            except Exception as error:  # noqa: BLE001  # the test looks at them
                self.errors.append(error)
        client.close()

    def end(self) -> None:
        self._over.set()
        for thread in self._work:
            thread.join()


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until something is so; fail if it does not become so."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come so"
        time.sleep(0.01)


def numbers(*shape: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
