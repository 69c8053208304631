"""Modules that are the same in several processes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dl4all.autograd import no_grad
from dl4all.distributed.process_group.group import ProcessGroup
from dl4all.errors import DistError
from dl4all.nn.module import Module
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor


def check_alike(name: str, group: ProcessGroup, module: Module) -> None:
    """
    Raises:
        DistError: the processes' modules differ in a parameter or buffer.
    """
    own = [
        f"{path}, {tensor.dtype} of shape {tuple(tensor.shape)}"
        + ("" if tensor.requires_grad else ", no gradient")
        for path, tensor in [*module.named_parameters(), *module.named_buffers()]
    ]
    first, *others = group.gather_objects(name, own)
    for rank, other in enumerate(others, 1):
        if other == first:
            continue
        count = min(len(first), len(other))
        at = next((n for n in range(count) if first[n] != other[n]), count)
        here, there = (one[at] if at < len(one) else "nothing more" for one in (first, other))
        raise DistError(
            f"[{name}] the processes have different modules: rank {group.ranks[0]} has {here}, where rank "
            f"{group.ranks[rank]} has {there}; make the same module in all of them"
        )


@no_grad()
def broadcast(name: str, group: ProcessGroup, tensors: Sequence[Tensor], source: int = 0) -> None:
    """Give all processes the elements that one has, by default the first."""
    arrays = [np.array(tensor.detach().numpy(), order="C") for tensor in tensors]
    if not arrays:
        return
    # Together, as bytes: a message of its own for each bias would cost more than the bias.
    whole = np.concatenate([array.reshape(-1).view(np.uint8) for array in arrays])
    group.broadcast(name, whole, source)
    if group.rank() == source:
        return
    offset = 0
    for tensor, array in zip(tensors, arrays, strict=True):
        piece = whole[offset : offset + array.nbytes].copy().view(array.dtype).reshape(array.shape)
        tensor.copy_(from_numpy(piece, "cpu"))
        offset += array.nbytes
