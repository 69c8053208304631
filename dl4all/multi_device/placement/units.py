"""The parts that a model can be cut into, and what each of them takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dl4all.multi_device.trace.work_trace import LOSS, ModuleWork, WorkTrace
from dl4all.runtime.work import WorkCounts


@dataclass(frozen=True)
class Unit:
    """Consecutive modules that stay together. Work and activations are of one micro-batch."""

    name: str
    modules: tuple[str, ...]
    """Paths of the modules that are called, each once."""
    forward: WorkCounts
    backward: WorkCounts
    accumulation: WorkCounts
    """Adding the gradients of a micro-batch to those of earlier ones."""
    update: WorkCounts
    """The optimizer's step."""
    parameters: int
    gradients: int
    optimizer: int
    buffers: int
    saved: int
    """Activations that stay until the backward pass."""
    peak: int
    """The most that the unit's activations and temporary results take at once."""
    handed: int
    """Bytes that go on to the next unit."""
    keeps_handed: bool
    """Whether they are among what is saved; otherwise those who use them count them."""

    @property
    def static(self) -> int:
        """Bytes that are there whatever the batch."""
        return self.parameters + self.gradients + self.optimizer + self.buffers


def units(trace: WorkTrace, optimizer_bytes_per_parameter: float) -> list[Unit]:
    """The smallest parts that a model can be cut into, in their order; the loss belongs to the last.

    Args:
        trace: of one micro-batch.
        optimizer_bytes_per_parameter: what the optimizer keeps for each number that is trained.
    """
    if not trace.training:
        optimizer_bytes_per_parameter = 0.0
    return [_unit(part, trace.training, optimizer_bytes_per_parameter) for part in _parts(trace.modules)]


def _parts(modules: Sequence[ModuleWork]) -> list[list[ModuleWork]]:
    """The modules between the cuts; what is done between calls of modules stays with the call before it."""
    parts: list[list[ModuleWork]] = [[]]
    for index, module in enumerate(modules):
        parts[-1].append(module)
        following = modules[index + 1] if index + 1 < len(modules) else None
        later = following is not None and not following.kind and following.cut is not None
        if module.cut is not None and not later and any(each.kind for each in parts[-1]):
            parts.append([])
    if len(parts) > 1 and not any(module.kind for module in parts[-1]):
        behind = parts.pop()
        parts[-1] += behind
    return parts


def _unit(part: Sequence[ModuleWork], training: bool, optimizer_bytes: float) -> Unit:
    trained = [nbytes for module in part for nbytes in module.trained] if training else []
    state = round(optimizer_bytes * sum(module.trained_elements for module in part))
    saved, peak = 0, 0
    for module in part:
        saved += module.saved
        peak = max(peak, saved + module.workspace)
    paths = dict.fromkeys(module.path for module in part if module.path not in ("", LOSS))
    return Unit(
        name=_common(list(paths)),
        modules=tuple(paths),
        forward=sum((module.forward for module in part), WorkCounts()),
        backward=sum((module.backward for module in part), WorkCounts()),
        accumulation=WorkCounts(len(trained), 3.0 * sum(trained)),
        # Reads and writes the parameters and the state, and reads the gradients.
        update=WorkCounts(len(trained), 3.0 * sum(trained) + 2.0 * state),
        parameters=sum(module.parameters for module in part),
        gradients=sum(trained),
        optimizer=state,
        buffers=sum(module.buffers for module in part),
        saved=saved,
        peak=peak,
        handed=part[-1].cut or 0,
        keeps_handed=part[-1].keeps_output,
    )


def _common(paths: Sequence[str]) -> str:
    """The path above several modules, or the first and the last.

    >>> _common(["layer1.0.conv1", "layer1.0.bn1"]), _common(["conv1"]), _common(["pool", "fc"]), _common([])
    ('layer1.0', 'conv1', 'pool to fc', '')
    """
    if len(paths) < 2:
        return "".join(paths)
    words = [path.split(".") for path in paths]
    shared = []
    for column in zip(*words, strict=False):
        if len(set(column)) > 1:
            break
        shared.append(column[0])
    return ".".join(shared) or f"{paths[0]} to {paths[-1]}"
