"""A stage of a pipeline: consecutive layers on one device, and what they do with a micro-batch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dl4all.autograd import checkpoint as recomputed_in_backward
from dl4all.errors import ArgumentError, GradientError
from dl4all.multi_device.pipeline.chain import ChainLayer
from dl4all.nn.module import Module, Parameter
from dl4all.ops.core import tape
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.expressions import philox
from dl4all.ops.core.op import empty
from dl4all.ops.random.generator import State, default_generator, replayed
from dl4all.scheduler.device.device import Device
from dl4all.tensor.tensor import Tensor

COUNTER_BITS = 40  # of a generator's counter, for the draws of one layer


@dataclass(frozen=True, eq=False)
class Stage:
    """Layers on one device.

    ``index`` counts stages from 0, ``first`` is the number of the first layer in the whole chain.
    """

    index: int
    device: Device
    layers: tuple[ChainLayer, ...]
    first: int

    def __repr__(self) -> str:
        names = [layer.name for layer in self.layers]
        shown = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        return f"<stage {self.index} on {self.device}: {shown}>"

    @property
    def modules(self) -> list[Module]:
        """Each once."""
        found = {id(module): module for layer in self.layers for module in layer.modules}
        return list(found.values())

    @property
    def parameters(self) -> list[Parameter]:
        """Each once."""
        found = {id(p): p for layer in self.layers if isinstance(layer.call, Module)
                 for p in layer.call.parameters()}  # fmt: skip
        return list(found.values())


class Randomness:
    """Random numbers for each layer and micro-batch, whichever thread computes it, and when.

    They follow from the state of the default generator, from the layer's number in the model and from the
    micro-batch's: where the model is cut makes no difference.
    """

    def __init__(self, micro_batches: int) -> None:
        self._state = default_generator().get_state()
        self.drawn = False  # by any layer
        seed, offset = self._state
        counters = np.full(micro_batches, offset, np.uint64)
        high = np.arange(1, micro_batches + 1, dtype=np.uint64)  # 0 in ordinary draws
        words = philox.philox(counters, seed, high).astype(np.uint64)
        self._seeds: list[int] = (words[:, 0] | words[:, 1] << np.uint64(32)).tolist()

    def of(self, layer: int, micro_batch: int) -> State:
        """The state that a layer begins with."""
        return self._seeds[micro_batch], layer << COUNTER_BITS

    def advance(self) -> None:
        """Let the default generator go on, if random numbers were drawn."""
        if self.drawn and default_generator().get_state() == self._state:
            default_generator().draw(1)


class Kept(NamedTuple):
    """The tensors of a micro-batch that a stage keeps for the way back."""

    source: Tensor | None  # where the gradient of the input is gathered
    tail: Tensor | None  # what the gradient of the result flows back from


def compute(
    stage: Stage,
    x: Tensor,
    micro_batch: int,
    randomness: Randomness,
    *,
    input_gradient: bool = False,
    checkpoint: bool = False,
) -> tuple[Tensor | None, Tensor]:
    """Send a micro-batch through the layers of a stage.

    Args:
        stage: the stage.
        x: the stage's input, on its device.
        micro_batch: its number.
        randomness: that of the batch.
        input_gradient: whether a gradient of `x` is wanted.
        checkpoint: whether to compute what lies in between again for the gradients.

    Returns:
        The leaf in whose ``grad`` the gradient of `x` will be, or None, and the result.

    Raises:
        ArgumentError: the result is no tensor.
        GradientError: with `checkpoint`, a layer has changed `x` in place.
    """
    source, entry = entrance_of(x) if input_gradient and kind_of(x.dtype) == "f" else (None, x)
    runs = 0

    def run(x: Any) -> Any:
        nonlocal runs
        runs += 1
        with _statistics_left_alone(stage.modules) if runs > 1 else contextlib.nullcontext():
            for number, layer in enumerate(stage.layers, stage.first):
                state = randomness.of(number, micro_batch)
                with replayed(state):
                    x = layer.call(x)
                    randomness.drawn |= default_generator().get_state() != state
        return x

    if not (checkpoint and tape.state.enabled):
        result = run(entry)
    else:
        version = entry.storage.version
        result = recomputed_in_backward(run, entry)
        if entry.storage.version != version:
            raise GradientError(
                f"[pipeline] {stage} changes its input in place, so that it cannot be computed again; make "
                "its first layer without inplace=True, or the pipeline without checkpoint=True"
            )
    if not isinstance(result, Tensor):
        raise ArgumentError(
            f"[pipeline] {stage} returns {type(result).__name__}, and a stage hands one tensor to the next; "
            "begin the next stage at another layer"
        )
    return source, result


def entrance_of(x: Tensor) -> tuple[Tensor, Tensor]:
    """A leaf for the gradient of `x`, and the tensor that layers get: they may change it in place."""
    source = _without_elements(x).requires_grad_()
    entry: Any = tape.alias(x)
    tape.add_node("stage", (source,), (entry,), lambda grads, saved, needs: grads)
    return source, entry


def tail_of(result: Tensor) -> Tensor | None:
    """A tensor from which gradients flow back to `result`; None where no gradient is wanted."""
    if not result.requires_grad:
        return None
    tail = _without_elements(result)
    tape.add_node("stage", (result,), (tail,), lambda grads, saved, needs: grads)
    return tail


def _without_elements(tensor: Tensor) -> Tensor:
    """A tensor of the same shape that takes a place in the graph, and does not hold the memory."""
    element: Tensor = empty(Tensor, (), tensor.dtype, tensor.device, "stage")
    return element.expand(tensor.shape)


@contextlib.contextmanager
def _statistics_left_alone(modules: Sequence[Module]) -> Iterator[None]:
    """Running statistics have counted a micro-batch when it is computed again."""
    names = ("running_mean", "running_var", "num_batches_tracked")
    aside = [
        (module, {name: vars(module)[name] for name in names})
        for module in modules
        if module.training and getattr(module, "track_running_stats", False)
    ]
    for module, _ in aside:
        vars(module).update(dict.fromkeys(names))
    try:
        yield
    finally:
        for module, values in aside:
            vars(module).update(values)
