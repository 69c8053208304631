"""ResNet-18's inference by a peer: what its process is asked, and how it answers.

    {"do": "prepare", "file": path}  ->  {}
    {"do": "run"}                    ->  {"scores": float32 bytes in base64}

The file is an ``.npz`` of the weights by torchvision's names, batch norm folded into the convolutions, and
the images as ``input``. A run goes from the images to the scores as arrays of the host.
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from lab.peers.cases import Array
from lab.peers.serve import converse

Weights = dict[str, Array]
CLASSES = 1000


class Answering(Protocol):
    """A peer's process, seen from here; its own environment has nothing of what starts it."""

    def ask(self, question: dict[str, Any]) -> dict[str, Any]: ...


def blocks() -> Iterator[tuple[str, int]]:
    """The residual blocks: the start of their weights' names, and the stride of the first convolution."""
    for layer in (1, 2, 3, 4):
        yield f"layer{layer}.0", 1 if layer == 1 else 2
        yield f"layer{layer}.1", 1


def asked(child: Answering, weights: Weights, images: Array) -> Callable[[], Array]:
    """A function that has a peer compute the scores; the question and its answer take microseconds."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "network.npz")
        arrays: dict[str, Any] = {**weights, "input": images}
        np.savez(file, **arrays)
        child.ask({"do": "prepare", "file": file})

    def run() -> Array:
        scores = base64.b64decode(child.ask({"do": "run"})["scores"])
        return np.frombuffer(scores, np.float32).reshape(len(images), CLASSES)

    return run


def serve_network(about: str, device: str, prepare: Callable[[Weights, Array], Callable[[], Array]]) -> None:
    """Answer until stdin ends. `prepare` gets weights and images, and returns what computes the scores."""
    run: Callable[[], Array] | None = None

    def answer(question: dict[str, Any]) -> dict[str, object]:
        nonlocal run
        if question["do"] == "prepare":
            with np.load(question["file"]) as arrays:
                weights = dict(arrays)
            images = weights.pop("input")
            run = prepare(weights, images)
            return {}
        assert run is not None
        return {"scores": base64.b64encode(run().tobytes()).decode()}

    converse(about, device, answer)
