"""The way of a batch's micro-batches through the stages of a pipeline, forward and back.

Each step of a schedule is a task of the stream of its stage's device. It waits for what the neighbour hands
over, and hands over itself: a task's result would be kept until the batch is through.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from dl4all.autograd import backward, set_grad_enabled
from dl4all.errors import CancelledError, DeviceError, DeviceLostError
from dl4all.multi_device.pipeline.shared_parameters import add_gradients, in_place_of_shared, stand_ins_of
from dl4all.multi_device.pipeline.stage import Kept, Randomness, Stage, compute, tail_of
from dl4all.multi_device.schedule import Kind, Schedule, StageStep
from dl4all.runtime.profiler.phase import phase
from dl4all.runtime.simulated import clock
from dl4all.runtime.simulated.backend import Hang
from dl4all.runtime.threads import Condition
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.streams.group import DeviceGroup
from dl4all.scheduler.streams.task import Task
from dl4all.tensor.tensor import Tensor

Handed = tuple[Tensor | None, float]
"""A result that a stage gives to the next one, and the virtual time at which it has it."""


class Passage:
    """The micro-batches of one batch on their way through the stages.

    Args:
        stages: all stages.
        group: its streams run the steps, and its timeout limits each of them.
        inputs: the micro-batches, on the first stage's device.
        gradients: whether the way back is to follow.
        input_gradient: whether the gradient of the inputs is wanted, too.
        checkpoint: whether stages compute their activations again on the way back.
        end: ``end(micro_batch, result)`` makes of the last stage's result what the gradient flows back from.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        group: DeviceGroup,
        inputs: Sequence[Tensor],
        *,
        gradients: bool = False,
        input_gradient: bool = False,
        checkpoint: bool = False,
        end: Callable[[int, Tensor], Tensor] | None = None,
    ) -> None:
        self.stages, self.group, self.count = stages, group, len(inputs)
        self.randomness = Randomness(len(inputs))
        self.outputs: list[Tensor | None] = [None] * len(inputs)  # of the last stage, or of `end`
        self.input_gradients: list[Tensor | None] = [None] * len(inputs)
        self._gradients, self._checkpoint, self._end = gradients, checkpoint, end
        learned = [input_gradient, *(any(p.requires_grad for p in stage.parameters) for stage in stages)]
        self._wants_input_gradient = [any(learned[: stage.index + 1]) for stage in stages]
        self._stand_ins = stand_ins_of(stages)
        self._kept: dict[tuple[int, int], Kept] = {}  # by stage and micro-batch
        self._changed = Condition()
        self._handed: dict[tuple[int, StageStep], Handed] = {}  # by the stage that it comes from
        self._busy: dict[Stage, StageStep] = {}  # stages that have what they need
        self._left = 0  # steps
        self._failure: tuple[BaseException, Stage | None] | None = None
        self._given_up: set[Stage] = set()  # whose devices do not answer
        self._enter("forward", inputs)

    def give_gradients(self, gradients: Sequence[Tensor | None]) -> None:
        """The gradients of the outputs, on the last stage's device; None is 1, for the result of `end`."""
        self._enter("backward", gradients)

    def _enter(self, kind: Kind, values: Sequence[Tensor | None]) -> None:
        outside = -1 if kind == "forward" else len(self.stages)
        for number, value in enumerate(values):
            self._handed[outside, StageStep(kind, number)] = value, clock.now()

    # In the caller's thread

    def run(self, schedule: Schedule) -> None:
        """Run every step, and wait for them.

        Raises:
            DeviceLostError: a device was lost. The group goes on without it.
            DeviceError: a device did not finish a step within the group's timeout; the same.
            Exception: what a layer raised, or the loss.
        """
        with in_place_of_shared(self._stand_ins):
            self._run(schedule)
        add_gradients(self._stand_ins)

    def _run(self, schedule: Schedule) -> None:
        self._left = sum(map(len, schedule))
        tasks: list[tuple[Stage, Task]] = []
        try:
            for steps in itertools.zip_longest(*schedule):  # no step needs one that is submitted later
                for stage, step in zip(self.stages, steps, strict=True):
                    if step is not None:
                        name = f"{step.kind} {step.micro_batch} of stage {stage.index}"
                        stream = self.group.stream(stage.device)
                        tasks.append((stage, stream.submit(self._run_step, stage, step, name=name)))
            self._watch()
        except BaseException as error:
            self._fail(error, None)
            raise
        finally:
            self._end_tasks(tasks)
        if self._failure is not None:
            cause, where = self._failure
            self._retire(cause, where)
            raise cause

    def _watch(self) -> None:
        """Wait for the last step, unless a device does not finish one in time."""
        timeout = self.group.timeout
        while (left := self._left) and self._failure is None:
            if self._changed.wait_for(lambda: self._left != left or self._failure is not None, timeout):
                continue
            with self._changed.lock:
                # Simulated devices are late by their own clock.
                late = [stage for stage in self._busy if stage.device.simulated is None]
                if late and self._left == left and self._failure is None:
                    self._fail(self._too_late(late[0]), late[0])

    def _too_late(self, stage: Stage) -> DeviceError:
        step = self._busy[stage]
        self._given_up.add(stage)
        return DeviceError(
            f"[pipeline] {stage} did not finish {step.kind} of micro-batch {step.micro_batch} within "
            f"{self.group.timeout} seconds; give the group a longer timeout if the device is well"
        )

    def _end_tasks(self, tasks: Sequence[tuple[Stage, Task]]) -> None:
        """Wait for what runs: nothing may still change gradients when the caller goes on."""
        for stage, task in tasks:
            if self._failure is not None:
                task.cancel()
            if stage not in self._given_up or task.on_virtual_clock:
                task.wait(None if self._failure is None else self.group.timeout)
        if self._failure is not None:
            self._kept.clear()
            self._handed.clear()

    def _retire(self, error: BaseException, stage: Stage | None) -> None:
        """Let the group go on without devices that are lost, or do not answer."""
        gone = {stage.device for stage in self._given_up}
        if stage is not None and isinstance(error, (DeviceLostError, Hang)):  # maybe of a copy's target
            around = self.stages[max(0, stage.index - 1) : stage.index + 2]
            gone |= {near.device for near in around if _is_gone(near.device)}
        for device in gone:
            self.group.retire(device, str(error))

    # In the threads of the stages

    def _run_step(self, stage: Stage, step: StageStep) -> None:
        value = self._take(stage, step)
        try:
            begun = _begin(stage.device)
            with phase(step.kind):
                way = self._forward if step.kind == "forward" else self._backward
                result = way(stage, step.micro_batch, value)
                del value
                if stage.device.simulated is not None:
                    clock.advance_to(stage.device.simulated.computed_until)  # not ahead of its device
                    if clock.now() > begun + self.group.timeout:
                        raise self._too_late(stage)
                handed = self._send(stage, step, result)
        except BaseException as error:
            self._fail(error, stage)
            raise
        with self._changed.lock:
            self._handed[stage.index, step] = handed, clock.now()
            self._left -= 1
            del self._busy[stage]
            self._changed.notify_all()

    def _take(self, stage: Stage, step: StageStep) -> Tensor | None:
        """Wait for what the neighbour hands over.

        Raises:
            CancelledError: that will not come.
        """
        source = stage.index + (-1 if step.kind == "forward" else 1), step
        self._changed.wait_for(lambda: source in self._handed or self._failure is not None)
        with self._changed.lock:
            if self._failure is not None:
                raise CancelledError(f"[pipeline] {stage}: another stage has failed")
            value, when = self._handed.pop(source)
            self._busy[stage] = step
        clock.advance_to(when)
        return value

    def _fail(self, error: BaseException, stage: Stage | None) -> None:
        with self._changed.lock:
            if self._failure is None:
                self._failure = error, stage
            if stage is not None:
                self._busy.pop(stage, None)
            self._changed.notify_all()

    def _forward(self, stage: Stage, number: int, x: Tensor | None) -> Tensor:
        assert x is not None
        with set_grad_enabled(self._gradients):
            source, result = compute(
                stage,
                x,
                number,
                self.randomness,
                input_gradient=self._gradients and self._wants_input_gradient[stage.index],
                checkpoint=self._checkpoint,
            )
            if self._end is not None and stage is self.stages[-1]:
                result = self._end(number, result)
            if self._gradients:
                self._kept[stage.index, number] = Kept(source, tail_of(result))
        return result.detach()

    def _backward(self, stage: Stage, number: int, gradient: Tensor | None) -> Tensor | None:
        kept = self._kept.pop((stage.index, number))
        own = gradient is None and self._end is not None and stage is self.stages[-1]
        if kept.tail is not None and (own or gradient is not None):
            backward(kept.tail, gradient)
        return None if kept.source is None else kept.source.grad

    def _send(self, stage: Stage, step: StageStep, result: Tensor | None) -> Tensor | None:
        """Hand a result to the neighbour's device, or keep it where there is none."""
        forward = step.kind == "forward"
        neighbour = stage.index + (1 if forward else -1)
        if 0 <= neighbour < len(self.stages):
            target = self.stages[neighbour].device
            return None if result is None else result.to(target, non_blocking=True)
        (self.outputs if forward else self.input_gradients)[step.micro_batch] = result
        return None


def _begin(device: Device) -> float:
    """The virtual time at which a device begins what it is given now."""
    return clock.now() if device.simulated is None else max(clock.now(), device.simulated.computed_until)


def _is_gone(device: Device) -> bool:
    try:
        device.synchronize()
    except (DeviceLostError, Hang):
        return True
    return False
