"""The parts of a model that a step over several devices works with."""

from __future__ import annotations

from typing import NamedTuple

from dl4all.multi_device.snapshot import Snapshot
from dl4all.nn.module import Module, Parameter
from dl4all.nn.modules.normalization import BatchNorm
from dl4all.tensor.tensor import Tensor


class ModelParts(NamedTuple):
    """The modules and tensors of a model, for as long as the snapshot holds."""

    snapshot: Snapshot
    training: bool
    modes: list[tuple[Module, bool]]  # which modules are in training
    parameters: list[Parameter]
    buffers: list[Tensor]  # other than the statistics of batch normalization
    unseen: frozenset[int]  # identities of statistics that their layers do not look at

    @classmethod
    def of(cls, model: Module) -> ModelParts:
        """The parts of a model now."""
        modules = list(model.modules())
        norms = [module for module in modules if isinstance(module, BatchNorm)]
        statistics = {id(tensor) for norm in norms for tensor in norm.buffers()}
        return cls(
            Snapshot([model]),
            model.training,
            [(module, module.training) for module in modules],
            list(model.parameters()),
            [buffer for buffer in model.buffers() if id(buffer) not in statistics],
            # Frozen layers look at them, whatever the model does.
            frozenset(id(tensor) for norm in norms if norm.training for tensor in norm.buffers()),
        )
