"""Which layers of a chain each device gets, by predicted time and memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from dl4all.allocator.allocator import amount
from dl4all.errors import OutOfMemoryError
from dl4all.multi_device.pipeline.chain import ChainLayer, inseparable
from dl4all.multi_device.pipeline.layer_cost import LayerCost, layer_costs
from dl4all.multi_device.pipeline.ordered_partition import ordered_partition
from dl4all.multi_device.placement.partition import UnitRange
from dl4all.multi_device.placement.stage_costs import usable_memory
from dl4all.multi_device.schedule import most_alive, schedule_of
from dl4all.scheduler.cost.cost_model import speeds
from dl4all.scheduler.device.device import Device
from dl4all.tensor.tensor import Tensor

OPTIMIZER_TENSORS = 2  # that an optimizer keeps for each parameter: Adam's; others keep fewer
LOSS_TENSORS = 2  # of the size of the outputs: cross entropy's probabilities and gradient

StageBytes = Callable[[int, int, int], int]
"""``stage_bytes(start, stop, after)``: what a stage of these layers needs, with so many stages after it."""


def partition(
    chain: Sequence[ChainLayer],
    devices: Sequence[Device],
    micro_batch: Tensor,
    micro_batches: int,
    schedule: str,
    *,
    checkpoint: bool,
) -> list[UnitRange]:
    """The stages with which a batch is predicted to be done soonest, within the devices' memory.

    Args:
        chain: the layers.
        devices: in the order of the stages; some may be left out.
        micro_batch: the input, of the largest size.
        micro_batches: how many there are in a batch.
        schedule: its name.
        checkpoint: whether stages compute their activations again on the way back.

    Raises:
        OutOfMemoryError: the model does not fit.
        ArgumentError: a layer does not run where nothing is computed.
    """
    costs = layer_costs(chain, micro_batch)
    stage_bytes = memory_of(costs, micro_batch, micro_batches, schedule, checkpoint=checkpoint)
    rates = [speeds(device) for device in devices]
    works = [cost.forward * (2.0 if checkpoint else 1.0) + cost.backward for cost in costs]
    moved = [cost.output for cost in costs]
    parts = ordered_partition(
        [[work.seconds(rate) for work in works] for rate in rates],
        [usable_memory(device) for device in devices],
        stage_bytes,
        micro_batches,
        sending=[[rate.download(nbytes) + rate.upload(nbytes) for nbytes in moved] for rate in rates],
        receiving=[[rate.upload(nbytes) + rate.download(nbytes) for nbytes in moved] for rate in rates],
        uncut=inseparable(chain),
    )
    if parts is None:
        learned = sum(cost.learned for cost in costs) * (2 + OPTIMIZER_TENSORS)
        largest = max(range(len(chain)), key=lambda layer: stage_bytes(layer, layer + 1, 0))
        room = ", ".join(f"{device} {amount(usable_memory(device))}" for device in devices)
        raise OutOfMemoryError(
            f"[pipeline] the model does not fit: parameters with their gradients and {OPTIMIZER_TENSORS} "
            f"tensors of an optimizer are {amount(learned)}, activations of {micro_batches} micro-batches "
            f"{amount(micro_batches * sum(cost.kept for cost in costs))}, the largest layer alone needs "
            f"{amount(stage_bytes(largest, largest + 1, 0))} ({chain[largest].name}); there are {room}. Use "
            "more devices, more micro_batches, or checkpoint=True"
        )
    return parts


def check_memory(
    parts: Sequence[UnitRange],
    chain: Sequence[ChainLayer],
    devices: Sequence[Device],
    micro_batch: Tensor,
    micro_batches: int,
    schedule: str,
    *,
    checkpoint: bool,
) -> None:
    """Refuse stages that do not fit. Arguments as in :func:`partition`.

    Raises:
        OutOfMemoryError: one needs more than its device has.
        ArgumentError: a layer does not run where nothing is computed.
    """
    costs = layer_costs(chain, micro_batch)
    stage_bytes = memory_of(costs, micro_batch, micro_batches, schedule, checkpoint=checkpoint)
    for number, (start, stop, index) in enumerate(parts):
        device, needed = devices[index], stage_bytes(start, stop, len(parts) - 1 - number)
        if needed > usable_memory(device):
            raise OutOfMemoryError(
                f"[pipeline] stage {number}, {chain[start].name} to {chain[stop - 1].name}, needs "
                f"{amount(needed)}, and {device} has {amount(usable_memory(device))}; move layers to another "
                "stage, or use more micro_batches or checkpoint=True"
            )


def memory_of(
    costs: Sequence[LayerCost], micro_batch: Tensor, micro_batches: int, schedule: str, *, checkpoint: bool
) -> StageBytes:
    """The memory of stages for parameters, gradients, an optimizer, and activations; targets come on top.

    While the gradients of one micro-batch are computed, the sum of those before it is kept, too.
    """
    copies = 1 + min(micro_batches, 2) + OPTIMIZER_TENSORS  # of each parameter

    @functools.cache
    def alive(after: int) -> int:
        return most_alive(schedule_of(schedule, after + 1, micro_batches)[0])

    @functools.cache
    def stage_bytes(start: int, stop: int, after: int) -> int:
        layers = costs[start:stop]
        parameters = sum(cost.learned * copies + cost.constant for cost in layers)
        kept = sum(cost.kept for cost in layers)
        temporary = max(cost.temporary for cost in layers)
        if start:  # one more may have arrived; layers that keep the input have counted it
            counted = not (checkpoint or costs[start - 1].keeps_output)
            inputs = costs[start - 1].output * (1 if counted else alive(after) + 1)
        else:  # all are there from the beginning
            inputs = micro_batch.numel() * micro_batch.dtype.itemsize * micro_batches
        outputs = layers[-1].output * alive(after)  # their gradients may have arrived
        activations = kept + outputs if checkpoint else kept * alive(after)
        loss = 0 if after else LOSS_TENSORS * outputs
        return parameters + inputs + activations + temporary + loss

    return stage_bytes
