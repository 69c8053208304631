"""Pipelines: a model's layers on several devices, between which micro-batches are on their way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

from dl4all.errors import ArgumentError, DeviceError, GradientError
from dl4all.multi_device.group_module import GroupModule
from dl4all.multi_device.pipeline.micro_batches import Passage
from dl4all.multi_device.pipeline.pieces import bounds_of, gradients_aside, loss_of_piece, pieces_of
from dl4all.multi_device.pipeline.stage import Stage
from dl4all.multi_device.schedule import only, schedule_of
from dl4all.nn.module import Module, Parameter
from dl4all.ops import cat
from dl4all.ops.core import tape
from dl4all.ops.core.tensor_base import DTypeLike, TensorBase
from dl4all.scheduler.streams.group import DeviceGroup
from dl4all.tensor.arguments import DeviceLike, device_and_dtype
from dl4all.tensor.tensor import Tensor


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
        self._move_layers()

    def _move_layers(self) -> None:
        """Move the layers to their devices."""
        for stage in reversed(self.stages):  # what several share ends with the first of them
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
        end = loss_of_piece(inputs, targets, bounds, loss, self.stages[-1].device)
        passage = self._passage(inputs.detach(), bounds, gradients=True, end=end)
        passage.give_gradients([None] * len(bounds))
        with gradients_aside(self._learned()) as parameters:
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
            passage.give_gradients(pieces_of(grads[0], bounds, last))
            with gradients_aside(parameters):
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
        return bounds_of(inputs, self.micro_batches)

    def _passage(self, inputs: Tensor, bounds: Sequence[tuple[int, int]], **options: Any) -> Passage:
        pieces = pieces_of(inputs, bounds, self.stages[0].device)
        return Passage(self.stages, self.group, pieces, checkpoint=self.checkpoint, **options)
