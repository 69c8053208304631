"""A model split by layers over devices, or over processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from dl4all.distributed.process_group.group import ProcessGroup
from dl4all.errors import ArgumentError
from dl4all.multi_device.group_module import check_parts
from dl4all.multi_device.pipeline.chain import ChainLayer, Split, chain_of, inseparable, starts_by_hand
from dl4all.multi_device.pipeline.module import Pipeline
from dl4all.multi_device.pipeline.process_pipeline import ProcessPipeline
from dl4all.multi_device.pipeline.stage import Stage
from dl4all.multi_device.pipeline.stage_partition import check_memory, partition
from dl4all.multi_device.placement.partition import UnitRange
from dl4all.multi_device.schedule import schedule_of
from dl4all.nn.module import Module
from dl4all.scheduler.device.current import device as open_device
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.streams.group import DeviceGroup
from dl4all.tensor.tensor import Tensor


def pipeline(
    model: Module,
    group: DeviceGroup | ProcessGroup,
    *,
    micro_batches: int = 4,
    schedule: Literal["1f1b", "gpipe"] = "1f1b",
    split: Split = "auto",
    checkpoint: bool = False,
    example: Tensor | None = None,
    device: str | Device | None = None,
) -> Pipeline:
    """Split a model by layers over the devices of a group, for models too large for one of them.

    The layers move to their devices; parameters stay the same objects, so that an optimizer may be made
    before or after. A batch is divided into micro-batches, and while one stage works on one of them, the
    others work on others.

    Args:
        model: an ``nn.Sequential``, or a module with a method ``layers()`` that returns a list of (name,
            layer), each of which takes what the one before returned; most of ``dl.models`` have one.
        group: the devices, in the order of the stages; or a process group, each of whose processes calls this
            with the same model, and has a stage.
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
        device: with a process group, that of this process's stage; by default the one that the model is on.
            ``split="auto"`` takes all processes' for alike.

    Returns:
        A :class:`Pipeline`; with a process group a
        :class:`dl4all.multi_device.pipeline.process_pipeline.ProcessPipeline`.

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
    chain = chain_of(model)
    if isinstance(group, ProcessGroup):
        first = next(iter(model.parameters()), None)
        own = open_device(device or ("cpu" if first is None else first.device))
        devices: Sequence[Device] = [own] * group.size()
    else:
        devices = group.alive
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
    options: dict[str, Any] = {"micro_batches": micro_batches, "schedule": schedule, "checkpoint": checkpoint}
    if isinstance(group, ProcessGroup):
        return ProcessPipeline(model, stages, group, **options)
    return Pipeline(model, stages, group, **options)


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
