"""Pipelines: a model's layers on several devices, between which micro-batches are on their way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, Literal

import numpy as np

from dl4all.errors import ArgumentError, DeviceError, GradientError, ShapeError
from dl4all.multi_device.group_module import GroupModule, check_parts
from dl4all.multi_device.pipeline.chain import ChainLayer, Split, chain_of, inseparable, starts_by_hand
from dl4all.multi_device.pipeline.micro_batches import Passage
from dl4all.multi_device.pipeline.stage import Stage
from dl4all.multi_device.pipeline.stage_partition import check_memory, partition
from dl4all.multi_device.placement.partition import UnitRange
from dl4all.multi_device.schedule import only, schedule_of
from dl4all.nn.module import Module, Parameter
from dl4all.ops import cat
from dl4all.ops.core import tape
from dl4all.ops.core.tensor_base import DTypeLike, TensorBase
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.streams.group import DeviceGroup
from dl4all.tensor.arguments import DeviceLike, device_and_dtype
from dl4all.tensor.tensor import Tensor


def pipeline(
    model: Module,
    group: DeviceGroup,
    *,
    micro_batches: int = 4,
    schedule: Literal["1f1b", "gpipe"] = "1f1b",
    split: Split = "auto",
    checkpoint: bool = False,
    example: Tensor | None = None,
) -> Pipeline:
    """Split a model by layers over the devices of a group, for models too large for one of them.

    The layers move to their devices; parameters stay the same objects, so that an optimizer may be made
    before or after. A batch is divided into micro-batches, and while one stage works on one of them, the
    others work on others.

    Args:
        model: an ``nn.Sequential``, or a module with a method ``layers()`` that returns a list of (name,
            layer), each of which takes what the one before returned; most of ``dl.models`` have one.
        group: the devices, in the order of the stages.
        micro_batches: into how many parts a batch is divided. A stage has nothing to do for about the part
            ``(stages - 1) / (micro_batches + stages - 1)`` of the time.
        schedule: ``"gpipe"`` keeps the activations of all micro-batches until the last one has gone forward;
            ``"1f1b"`` takes as long, and stage `i` keeps those of ``stages - i`` at most.
        split: ``"auto"`` balances predicted times, and respects the devices' memory; by hand, a list of the
            layers that stages begin with (names, those of modules which the layers lie in, or numbers), or
            for each stage a list of its layers.
        checkpoint: keep of each stage only its input, and compute the activations again for the gradients.
        example: a batch of inputs, whose values do not matter; ``split="auto"`` needs it. With a split by
            hand, it has the devices' memory checked.

    Raises:
        ArgumentError: the model is no chain of layers, a part of it is itself over several devices, or the
            split or a number is not possible.
        OutOfMemoryError: the model does not fit into the memory of the devices; the message has the numbers.

    Example:
        >>> import dl4all as dl
        >>> model = dl.models.MLP(8, [16, 16], 3)
        >>> optimizer = dl.optim.SGD(model.parameters(), lr=0.1)
        >>> x, y = dl.rand(10, 8), dl.randint(0, 3, (10,))
        >>> with dl.DeviceGroup(["cpu", "cpu#1"]) as group:
        ...     piped = dl.pipeline(model, group, split=["3"])
        ...     loss = piped.train_step(x, y, dl.nn.CrossEntropyLoss())
        ...     optimizer.step()
        >>> [len(stage.layers) for stage in piped.stages], loss.device
        ([4, 4], device('cpu#1'))
    """
    check_parts("pipeline", model)
    chain, devices = chain_of(model), group.alive
    schedule_of(schedule, len(devices), micro_batches)  # raises what is wrong with them
    if example is not None:
        example = example[: -(-len(example) // micro_batches)]
    if isinstance(split, str) and split == "auto":
        if example is None:
            raise ArgumentError(
                "[pipeline] split='auto' needs example=, a batch of inputs; or say by split= which layers "
                "the stages begin with"
            )
        parts = partition(chain, devices, example, micro_batches, schedule, checkpoint=checkpoint)
    else:
        parts = _parts_by_hand(split, chain, len(devices))
        if example is not None:
            check_memory(parts, chain, devices, example, micro_batches, schedule, checkpoint=checkpoint)
    stages = [
        Stage(index, devices[part.device], tuple(chain[part.start : part.end]), part.start)
        for index, part in enumerate(parts)
    ]
    return Pipeline(
        model, stages, group, micro_batches=micro_batches, schedule=schedule, checkpoint=checkpoint
    )


def _parts_by_hand(split: Split, chain: Sequence[ChainLayer], devices: int) -> list[UnitRange]:
    starts, reasons = starts_by_hand(split, chain, devices), inseparable(chain)
    for start in starts:
        if start in reasons:
            raise ArgumentError(
                f"[pipeline] no stage can begin with {chain[start].name}: {reasons[start]}, which lives on "
                "one device"
            )
    ends = [*starts[1:], len(chain)]
    return [
        UnitRange(start, end, device) for device, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


class Pipeline(GroupModule):
    """A model whose layers live on several devices; made by :func:`dl4all.pipeline`.

    Called, it gives what the model gives, on the last stage's device, and gradients flow back through it; it
    then keeps the activations of the whole batch, and stages wait while the loss is computed.
    :meth:`train_step` goes through the schedule.

    Batch normalization sees each micro-batch by itself: it normalizes by the statistics of one, and its
    running statistics move at each. Dropout draws other numbers than in the model on one device, but the same
    wherever the model is cut.

    ``model`` is the model itself, whose ``state_dict`` is as ever, ``stages`` says what lives where.

    Example:
        >>> import dl4all as dl
        >>> net = dl.nn.Sequential(dl.nn.Linear(4, 8), dl.nn.ReLU(), dl.nn.Linear(8, 2))
        >>> piped = dl.pipeline(net, dl.DeviceGroup(["cpu", "cpu#1"]), split=["2"])
        >>> isinstance(piped, dl.Pipeline), piped(dl.rand(4, 4, device="cpu")).shape
        (True, (4, 2))
    """

    def __init__(
        self,
        model: Module,
        stages: Sequence[Stage],
        group: DeviceGroup,
        *,
        micro_batches: int,
        schedule: str,
        checkpoint: bool,
    ) -> None:
        super().__init__()
        self.model, self.stages, self.group = model, tuple(stages), group
        self.micro_batches, self.schedule, self.checkpoint = micro_batches, schedule, checkpoint
        self.training = model.training
        for stage in reversed(stages):  # what several share ends with the first of them
            for layer in stage.layers:
                if isinstance(layer.call, Module):
                    layer.call.to(stage.device)

    def train(self, mode: bool = True) -> Pipeline:
        """Switch to training mode, or to inference mode."""
        for stage in self.stages:
            for module in stage.modules:  # some may be no part of the model
                module.training = mode
        return super().train(mode)

    def to(
        self,
        *targets: DeviceLike | DTypeLike | TensorBase | bool,
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
        non_blocking: bool = False,
        memory_format: Any = None,
    ) -> Pipeline:
        """Convert the model's floats to a dtype, in place; it cannot move to one device.

        Raises:
            ArgumentError: a device is given.
        """
        named = tuple(part for part in targets if part is not None and not isinstance(part, bool))
        target, float_dtype = device_and_dtype(named, device, dtype)
        if target is not None:
            raise ArgumentError(
                f"[Pipeline] its stages live on {len(self.stages)} devices and cannot move to {target}; move "
                "pipeline.model, and make another pipeline"
            )
        return super().to(dtype=float_dtype)

    def train_step(self, inputs: Tensor, targets: Tensor, loss: Callable[[Any, Any], Any]) -> Tensor:
        """Send a batch forward and back; gradients are added to the parameters' ``grad``.

        They are those of the loss of the whole batch, if `loss` is a mean over samples, or a sum that says so
        by ``reduction="sum"``: each micro-batch counts by its size. Nothing is added if a step fails.

        Args:
            inputs: a batch, on any device.
            targets: as many as inputs.
            loss: ``loss(outputs, targets)`` of a micro-batch, on the last stage's device.

        Returns:
            The loss of the batch, a tensor without a history on the last stage's device.

        Raises:
            ShapeError: there are not as many targets as inputs, or none.
            GradientError: the loss is not a single number.
            DeviceLostError: a device was lost, and with it its layers.
            DeviceError: a device did not finish a step within the group's timeout; or one is gone already.
        """
        bounds = self._bounds(inputs)
        if targets.shape[:1] != inputs.shape[:1]:
            raise ShapeError(
                f"[Pipeline] expected as many targets as inputs, got {targets.shape} and {inputs.shape}"
            )
        wanted = _pieces(targets, bounds, self.stages[-1].device)
        is_sum = getattr(loss, "reduction", "mean") == "sum"

        def end(number: int, outputs: Tensor) -> Tensor:
            value = loss(outputs, wanted[number])
            if not isinstance(value, Tensor) or value.numel() != 1:
                raise GradientError(f"[Pipeline] the loss must be a tensor of one number, got {value!r}")
            begin, stop = bounds[number]
            share = 1.0 if is_sum else (stop - begin) / len(inputs)
            return value if share == 1.0 else value * share

        passage = self._passage(inputs.detach(), bounds, gradients=True, end=end)
        passage.give_gradients([None] * len(bounds))
        with _gradients_aside(self._learned()) as parameters:
            passage.run(schedule_of(self.schedule, len(self.stages), len(bounds)))
            gradients = [parameter.grad for parameter in parameters]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        passage.randomness.advance()
        total, *others = (value for value in passage.outputs if value is not None)
        for value in others:
            total = total + value
        return total

    def forward(self, inputs: Tensor) -> Tensor:
        """The model's outputs for a batch, on the last stage's device.

        Raises:
            DeviceLostError: a device was lost, and with it its layers.
            DeviceError: a device did not finish a step within the group's timeout; or one is gone already.
        """
        bounds, parameters = self._bounds(inputs), self._learned()
        history = tape.state.enabled and any(map(tape.wants_gradient, (inputs, *parameters)))
        passage = self._passage(
            inputs.detach(), bounds, gradients=history, input_gradient=history and inputs.requires_grad
        )
        passage.run(only("forward", len(self.stages), len(bounds)))
        passage.randomness.advance()
        results = [value for value in passage.outputs if value is not None]
        output = cat(results) if len(results) > 1 else results[0]
        if history:
            self._add_node(inputs, parameters, passage, results, output)
        return output

    def _add_node(
        self,
        inputs: Tensor,
        parameters: Sequence[Parameter],
        passage: Passage,
        results: Sequence[Tensor],
        output: Tensor,
    ) -> None:
        """Let gradients of the output flow back through the stages."""
        source, last = inputs.device, output.device
        bounds = list(pairwise(accumulate((len(result) for result in results), initial=0)))
        count = len(self.stages)

        def backward(grads: Sequence[Any], saved: Any, needs: Any) -> list[Any]:
            if tape.state.enabled:
                raise GradientError("[Pipeline] its gradients cannot be differentiated again")
            passage.give_gradients(_pieces(grads[0], bounds, last))
            with _gradients_aside(parameters):
                passage.run(only("backward", count, len(bounds)))
                gradients = [parameter.grad for parameter in parameters]
            pieces = [piece.to(source) for piece in passage.input_gradients if piece is not None]
            return [cat(pieces) if pieces else None, *gradients]

        tape.add_node("pipeline", (inputs, *parameters), (output,), backward, single_use=True)

    def _learned(self) -> list[Parameter]:
        found = {id(p): p for stage in self.stages for p in stage.parameters}
        return list(found.values())

    def _bounds(self, inputs: Tensor) -> list[tuple[int, int]]:
        """The bounds of micro-batches, as even as possible.

        Raises:
            ShapeError: there is no input.
            DeviceError: a device is gone.
        """
        for stage in self.stages:
            if stage.device in self.group.retired:
                raise DeviceError(
                    f"[Pipeline] {stage} is lost ({self.group.retired[stage.device]}); load the last "
                    "checkpoint into a new model, and make a pipeline on the devices that are left"
                )
        if not isinstance(inputs, Tensor) or not inputs.ndim or not len(inputs):
            shape = inputs.shape if isinstance(inputs, Tensor) else type(inputs).__name__
            raise ShapeError(f"[Pipeline] expected a tensor of inputs along its first axis, got {shape}")
        sizes = [len(part) for part in np.array_split(np.arange(len(inputs)), self.micro_batches)]
        return list(pairwise(accumulate(filter(None, sizes), initial=0)))

    def _passage(self, inputs: Tensor, bounds: Sequence[tuple[int, int]], **options: Any) -> Passage:
        pieces = _pieces(inputs, bounds, self.stages[0].device)
        return Passage(self.stages, self.group, pieces, checkpoint=self.checkpoint, **options)


def _pieces(batch: Tensor, bounds: Sequence[tuple[int, int]], device: Device) -> list[Tensor]:
    """The micro-batches of a batch, on their way to a device."""
    return [batch[begin:stop].to(device, non_blocking=True) for begin, stop in bounds]


@contextlib.contextmanager
def _gradients_aside(parameters: Sequence[Parameter]) -> Iterator[Sequence[Parameter]]:
    """Within, no parameter has a gradient; afterwards each has what it had before."""
    before = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    try:
        yield parameters
    finally:
        for parameter, gradient in zip(parameters, before, strict=True):
            parameter.grad = gradient
