"""Steps that each process makes by itself, and the means of parameters between them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dl4all.autograd import no_grad
from dl4all.distributed.process_group.elastic_group import ElasticGroup
from dl4all.distributed.process_group.group import ProcessGroup
from dl4all.distributed.process_group.transport import ReduceOp
from dl4all.errors import ArgumentError
from dl4all.multi_device.data_parallel.distributed import DistributedDataParallel
from dl4all.ops.core.dtypes import HALVES
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

NAME = "Trainer"


class LocalSteps:
    """Takes the mean of all processes' parameters and buffers after some steps, by the rows of each.

    Of ints it takes the largest.

    Args:
        group: of the processes.
        tensors: the parameters and buffers.
        every: after how many steps.
    """

    def __init__(self, group: ProcessGroup, tensors: Sequence[Tensor], every: int) -> None:
        self._group, self._every = group, every
        self._tensors = tensors
        self.rows = 0
        """The rows of this process since the last mean."""

    @classmethod
    def of(cls, network: DistributedDataParallel, every: int) -> LocalSteps:
        """The local steps of a module that all processes have alike.

        Raises:
            ArgumentError: the processes come and go.
        """
        if isinstance(network.process_group, ElasticGroup):
            raise ArgumentError(
                "[Trainer] in an elastic launch every step is made by all: leave out sync_every"
            )
        tensors = [*network.module.parameters(), *network.module.buffers()]
        return cls(network.process_group, tensors, every)

    def step(self, number: int) -> None:
        """Take the mean, if it is the turn of this step."""
        if number % self._every == 0:
            self.settle()

    @no_grad()
    def settle(self) -> None:
        """Take the mean of what all have."""
        counts = [numbers[0] for numbers in self._group.agree(NAME, "a mean of parameters", [self.rows])]
        own, self.rows = self.rows, 0
        if self._group.size() == 1 or not sum(counts):  # nobody has had a row since the last one
            return
        for dtype in dict.fromkeys(tensor.dtype for tensor in self._tensors):  # in one order everywhere
            tensors = [tensor for tensor in self._tensors if tensor.dtype == dtype]
            wide = np.float32 if dtype in HALVES else np.uint8 if dtype.kind == "b" else dtype
            flat = np.concatenate([tensor.detach().numpy().reshape(-1).astype(wide) for tensor in tensors])
            counted = np.dtype(wide).kind != "f"  # as batches are by batch normalization
            if not counted:
                flat *= own / sum(counts)
            self._group.all_reduce(NAME, flat, ReduceOp.MAX if counted else ReduceOp.SUM).wait()
            offset = 0
            for tensor in tensors:
                piece = flat[offset : offset + tensor.numel()].reshape(tensor.shape)
                tensor.copy_(from_numpy(piece.astype(dtype), "cpu"))
                offset += tensor.numel()
