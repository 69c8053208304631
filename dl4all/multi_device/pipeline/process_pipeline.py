"""A pipeline whose stages live in several processes, which send each other activations and gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dl4all.autograd import backward, is_grad_enabled, no_grad
from dl4all.distributed.process_group.elastic_group import ElasticGroup
from dl4all.distributed.process_group.group import Pending, ProcessGroup
from dl4all.distributed.process_group.transport import Array
from dl4all.errors import ArgumentError, GradientError
from dl4all.multi_device.alike import broadcast, check_alike
from dl4all.multi_device.pipeline.module import Pipeline
from dl4all.multi_device.pipeline.pieces import bounds_of, gradients_aside, loss_of_piece, pieces_of
from dl4all.multi_device.pipeline.shared_parameters import stand_ins_of
from dl4all.multi_device.pipeline.stage import Kept, Randomness, Stage, compute, tail_of
from dl4all.multi_device.schedule import Kind, StageStep, only, schedule_of
from dl4all.nn.module import Module
from dl4all.ops import cat
from dl4all.ops.core.dtypes import BFLOAT16
from dl4all.ops.random.generator import default_generator
from dl4all.runtime.profiler.phase import phase
from dl4all.scheduler.streams.group import DeviceGroup
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

NAME = "pipeline"

DTYPES = (*map(np.dtype, ("f4", "f8", "f2")), BFLOAT16, *map(np.dtype, ("i8", "i4", "i2", "i1", "u1", "?")))
"""The dtypes of what stages send, by their numbers in headers."""

MOST_AXES = 8
TAGS: dict[Kind, int] = {"forward": 0, "backward": 1}


class ProcessPipeline(Pipeline):
    """A model whose layers live in several processes; made by :func:`dl4all.pipeline` with a process group.

    Each process has the whole model, and computes the layers of its stage, which are on its device; those of
    the other stages stay on the CPU, as they were. All processes call the same methods with the same batches,
    of which the first takes the inputs, and the last the targets. An optimizer may have all parameters: those
    of other stages never have gradients.

    ``model`` is the model, ``stages`` says which layers each process has, ``stage`` is this process's. Random
    numbers, statistics and gradients are those of :class:`dl4all.Pipeline` with as many stages.
    """

    def __init__(self, model: Module, stages: Sequence[Stage], group: ProcessGroup, **options: Any) -> None:
        """
        Raises:
            ArgumentError: a parameter is used by several stages, there are not as many as processes, or
                processes of the group may end.
            DistError: the processes have different models.
        """
        if isinstance(group, ElasticGroup):
            raise ArgumentError("[pipeline] in an elastic launch a process may end, and its layers with it")
        if len(stages) != group.size():
            raise ArgumentError(
                f"[pipeline] {group.size()} processes need as many stages, and the split makes {len(stages)}"
            )
        if shared := stand_ins_of(stages):
            module, name = shared[0].users[0]
            raise ArgumentError(
                f"[pipeline] {name} of {type(module).__name__} is a parameter of several stages, which live "
                "in other processes; cut where all its layers are in one stage"
            )
        check_alike(NAME, group, model)
        broadcast(NAME, group, [*model.parameters(), *model.buffers()])
        self.stage, self.process_group = stages[group.rank()], group
        super().__init__(model, stages, DeviceGroup([self.stage.device]), **options)

    def _move_layers(self) -> None:
        for stage in self.stages:
            for layer in stage.layers:
                if isinstance(layer.call, Module):
                    layer.call.to(stage.device if stage is self.stage else "cpu")

    def train_step(self, inputs: Tensor, targets: Tensor, loss: Callable[[Any, Any], Any]) -> Tensor:
        """Send a batch forward and back; gradients are added to those of the stage's parameters.

        Args:
            inputs, targets, loss: as of :meth:`dl4all.Pipeline.train_step`, the same in all processes.

        Returns:
            The loss of the batch, on the stage's device, in all processes.

        Raises:
            DistError: the processes are at different calls.
            DistNetworkError: a process has ended, or does not come in time.
            ShapeError, GradientError: as of :meth:`dl4all.Pipeline.train_step`.
        """
        bounds = bounds_of(inputs, self.micro_batches)
        part = loss_of_piece(inputs, targets, bounds, loss, self.stage.device)
        passage = ProcessPassage(self, inputs, bounds, part)
        with gradients_aside(self.stage.parameters) as parameters:
            passage.run(schedule_of(self.schedule, len(self.stages), len(bounds))[self.stage.index])
            gradients = [parameter.grad for parameter in parameters]
        total = passage.end()
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        return total

    def forward(self, inputs: Tensor) -> Tensor:
        """The model's outputs for a batch, in all processes, on their stages' devices; without gradients.

        Raises:
            GradientError: gradients are wanted, which :meth:`train_step` computes.
            DistError, DistNetworkError: as of :meth:`train_step`.
        """
        if is_grad_enabled():
            raise GradientError(
                "[pipeline] a call over several processes keeps nothing for gradients: use train_step, or "
                "call it within dl.no_grad()"
            )
        bounds = bounds_of(inputs, self.micro_batches)
        passage = ProcessPassage(self, inputs, bounds, None)
        passage.run(only("forward", 1, len(bounds))[0])
        return passage.end()

    def synchronize(self) -> None:
        """Give all processes the parameters and buffers of all stages, as for ``model.state_dict()``."""
        for stage in self.stages:
            buffers = [buffer for module in stage.modules for buffer in module.buffers(recurse=False)]
            broadcast(NAME, self.process_group, [*stage.parameters, *buffers], stage.index)


class ProcessPassage:
    """The micro-batches of one batch on their way through the stage of this process.

    Args:
        pipeline: whose stage it is.
        inputs: the batch.
        bounds: of its micro-batches.
        part: gives a micro-batch's part of the loss; None where no gradients follow.

    Raises:
        DistError: the processes are at different calls.
    """

    def __init__(
        self,
        pipeline: ProcessPipeline,
        inputs: Tensor,
        bounds: Sequence[tuple[int, int]],
        part: Callable[[int, Tensor], Tensor] | None,
    ) -> None:
        group, stage = pipeline.process_group, pipeline.stage
        self._pipeline, self._group, self._stage, self._part = pipeline, group, stage, part
        self._first, self._last = stage.index == 0, stage.index == len(pipeline.stages) - 1
        call = f"{inputs.dtype} of shape {tuple(inputs.shape)}, {'training' if part else 'forward'}"
        told = group.agree(NAME, call, list(default_generator().get_state()))
        default_generator().set_state((told[0][0], told[0][1]))
        self._randomness = Randomness(len(bounds))
        self._inputs = pieces_of(inputs.detach(), bounds, stage.device) if self._first else []
        # The input needs a gradient where a stage before learns.
        before = pipeline.stages[: stage.index]
        self._learned = any(p.requires_grad for earlier in before for p in earlier.parameters)
        self._kept: dict[int, Kept] = {}
        self._results: list[Tensor] = []
        self._sent: list[tuple[Pending, Array]] = []  # with what is on its way

    def run(self, steps: Sequence[StageStep]) -> None:
        """Take the steps of the stage in their order."""
        for step in steps:
            with phase(step.kind):
                (self._forward if step.kind == "forward" else self._backward)(step.micro_batch)

    def end(self) -> Tensor:
        """Wait for the others; returns the loss, or the outputs, of the last stage."""
        for pending, _ in self._sent:
            pending.wait()
        self._sent.clear()
        drawn = [numbers[0] for numbers in self._group.agree(NAME, "an end", [int(self._randomness.drawn)])]
        self._randomness.drawn = any(drawn)
        self._randomness.advance()
        with no_grad():
            found: Tensor | None = None
            if self._last and self._part is not None:
                found = self._results[0]
                for value in self._results[1:]:
                    found = found + value
            elif self._last:
                found = cat(self._results)
            source = len(self._pipeline.stages) - 1
            array = None if found is None else np.asarray(found.numpy())
            given = self._group.broadcast_object(NAME, array, source)
            return from_numpy(given, self._stage.device) if found is None else found

    def _forward(self, number: int) -> None:
        stage = self._stage
        x = self._inputs[number] if self._first else self._received("forward")
        assert x is not None
        source, result = compute(
            stage,
            x,
            number,
            self._randomness,
            input_gradient=self._part is not None and self._learned,
            checkpoint=self._pipeline.checkpoint,
        )
        if self._part is not None:
            if self._last:
                result = self._part(number, result)
            self._kept[number] = Kept(source, tail_of(result))
        if self._last:
            self._results.append(result.detach())
        else:
            self._send("forward", result.detach())

    def _backward(self, number: int) -> None:
        kept = self._kept.pop(number)
        gradient = None if self._last else self._received("backward")
        if kept.tail is not None and (self._last or gradient is not None):
            backward(kept.tail, gradient)
        if not self._first:
            self._send("backward", None if kept.source is None else kept.source.grad)

    def _send(self, kind: Kind, value: Tensor | None) -> None:
        """Begin to send a tensor, or that there is none, to the next stage of this way."""
        header = np.full(2 + MOST_AXES, -1, np.int64)
        parts: list[Array] = [header]
        if value is not None:
            if value.ndim > MOST_AXES:
                raise ArgumentError(f"[pipeline] stages hand over at most {MOST_AXES} axes, got {value.ndim}")
            array = np.ascontiguousarray(value.numpy())
            header[: 2 + value.ndim] = DTYPES.index(array.dtype), value.ndim, *value.shape
            parts.append(array.reshape(-1))
        there = self._stage.index + (1 if kind == "forward" else -1)
        for array in parts:
            if array.size:
                self._sent.append((self._transfer("send", kind, array, there), array))

    def _received(self, kind: Kind) -> Tensor | None:
        """The tensor that the stage before this one sends on this way."""
        there = self._stage.index + (-1 if kind == "forward" else 1)
        header = np.empty(2 + MOST_AXES, np.int64)
        self._transfer("receive", kind, header, there).wait()
        number, axes, *sizes = header.tolist()
        if number < 0:
            return None
        array = np.empty(sizes[:axes], DTYPES[number])
        if array.size:
            self._transfer("receive", kind, array.reshape(-1), there).wait()
        return from_numpy(array, self._stage.device)

    def _transfer(self, way: str, kind: Kind, array: Array, there: int) -> Pending:
        function = getattr(self._group.transport, way)
        start = functools.partial(function, array, there, TAGS[kind])
        return self._group.begin(NAME, start, way=way, nbytes=array.nbytes)
