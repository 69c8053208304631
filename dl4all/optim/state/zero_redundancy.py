"""An optimizer whose state is spread over processes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.autograd import enable_grad, no_grad
from dl4all.distributed.membership import group_of
from dl4all.distributed.ownership import owners
from dl4all.distributed.process_group.group import ProcessGroup
from dl4all.errors import ArgumentError
from dl4all.optim.optimizer import Optimizer, ParamsT
from dl4all.optim.state.saved_state import checked_groups
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

NAME = "ZeroRedundancyOptimizer"


class ZeroRedundancyOptimizer(Optimizer):
    """Each process keeps an optimizer's state for a part of the parameters, and updates them for all.

    Adam's state is twice the size of the parameters; of it a process keeps a part of ``1 / world size``. The
    result is that of the optimizer alone, to the last bit. Gradients must be those of all processes, as
    :class:`dl4all.nn.parallel.DistributedDataParallel` makes them. Samyam Rajbhandari et al., "ZeRO: Memory
    Optimizations Toward Training Trillion Parameter Models" (2020), stage 1; the interface is PyTorch's.

    Args:
        params: as for the optimizer; the same in all processes.
        optimizer_class: such as :class:`dl4all.optim.AdamW`.
        process_group: by default all processes.
        parameters_as_bucket_view, overlap_with_ddp: PyTorch's; the former changes nothing.
        defaults: options of the optimizer.

    Raises:
        ArgumentError: no optimizer of the library, or one of options that it does not take.
        DistError: the processes give other parameters, or there is no group.

    Example:
        >>> import dl4all as dl
        >>> dl.distributed.init_process_group(rank=0, world_size=1, init_method="tcp://127.0.0.1:29519")
        >>> net = dl.nn.Linear(4, 2)
        >>> optimizer = dl.optim.ZeroRedundancyOptimizer(net.parameters(), dl.optim.AdamW, lr=0.1)
        >>> net(dl.ones(3, 4)).sum().backward()
        >>> optimizer.step()
        >>> optimizer.consolidate_state_dict()
        >>> len(optimizer.state_dict()["state"])
        2
        >>> dl.distributed.destroy_process_group()
    """

    def __init__(
        self,
        params: ParamsT,
        optimizer_class: type[Optimizer],
        process_group: ProcessGroup | None = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if not (isinstance(optimizer_class, type) and issubclass(optimizer_class, Optimizer)):
            raise ArgumentError(f"[{NAME}] expected a class of dl.optim, got {optimizer_class!r}")
        if overlap_with_ddp:
            raise ArgumentError(
                f"[{NAME}] overlap_with_ddp needs hooks of PyTorch's reducer; leave it out: buckets leave "
                "during the backward pass as they are"
            )
        self.process_group = group_of(NAME, process_group)
        whole = optimizer_class(params, **defaults)  # checks options; it makes no state before a step
        super().__init__([dict(group) for group in whole.param_groups], whole.defaults)
        shapes = [(p.shape, str(p.dtype)) for p in self._parameters()]
        self.process_group.agree(NAME, f"{optimizer_class.__name__} of {shapes}")
        self._owners = owners(
            [p.numel() * p.dtype.itemsize for p in self._parameters()], self.process_group.size()
        )
        self.optim = optimizer_class(self._own_groups(), **defaults)
        """The optimizer of this process's part."""
        self.state = self.optim.state
        self._consolidated: dict[str, Any] | None = None

    def _own_groups(self) -> list[dict[str, Any]]:
        """The groups with this process's parameters alone."""
        rank, owner = self.process_group.rank(), iter(self._owners)
        return [
            {**_options(group), "params": [p for p in group["params"] if next(owner) == rank]}
            for group in self.param_groups
        ]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if hasattr(self, "_owners"):
            raise ArgumentError(f"[{NAME}] parameters are shared out when it is made; give all of them then")
        super().add_param_group(param_group)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update this process's parameters, and take the others' from the processes that have updated them.

        Raises:
            DistNetworkError: a process has ended, or does not come in time.
            GradientError: as for the optimizer.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for own, group in zip(self.optim.param_groups, self.param_groups, strict=True):
            own.update(_options(group))
        self.optim.step()
        self.state, self._consolidated = self.optim.state, None
        self._exchange()
        return loss

    @no_grad()
    def _exchange(self) -> None:
        """Give this process's parameters to the others, and take theirs."""
        group = self.process_group
        if group.size() == 1:
            return
        group.agree(f"{NAME}.step", "")
        parts: list[list[Tensor]] = [[] for _ in range(group.size())]
        for p, owner in zip(self._parameters(), self._owners, strict=True):
            parts[owner].append(p)
        pending = []
        for owner, tensors in enumerate(parts):
            if not tensors:
                continue
            taken = owner != group.rank()
            flat = _empty(tensors) if taken else _bytes_of(tensors)
            start = functools.partial(group.transport.broadcast, flat, owner)
            finish = functools.partial(_write, tensors, flat) if taken else (lambda: None)
            pending.append(group.begin(NAME, start, finish))
        for work in pending:
            work.wait()

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Bring the state of all processes to one, whose :meth:`state_dict` is that of the optimizer alone.

        All processes call it.

        Args:
            to: the rank.

        Raises:
            ArgumentError: there is no such rank.
            DistNetworkError: a process has ended, or does not come in time.
        """
        index = self.process_group.rank_of(f"{NAME}.consolidate_state_dict", to)
        own = self.optim.state_dict()["state"]
        mine = [n for n, owner in enumerate(self._owners) if owner == self.process_group.rank()]
        arrays = {
            mine[n]: {name: _saved(value) for name, value in values.items()} for n, values in own.items()
        }
        gathered = self.process_group.gather_objects(f"{NAME}.consolidate_state_dict", arrays)
        if self.process_group.rank() != index:
            return
        state = {number: values for part in gathered for number, values in part.items()}
        self._consolidated = {
            number: {
                name: from_numpy(value, "cpu") if isinstance(value, np.ndarray) else value
                for name, value in state[number].items()
            }
            for number in sorted(state)
        }

    def state_dict(self) -> dict[str, Any]:
        """The state of all processes, in the process to which it was consolidated since the last step.

        Raises:
            ArgumentError: it was not.
        """
        if self._consolidated is None:
            raise ArgumentError(
                f"[{NAME}] call consolidate_state_dict(to=...) in all processes after the last step, and "
                "state_dict() in the one that it names"
            )
        numbers = {p: number for number, p in enumerate(self._parameters())}
        groups = [{**group, "params": [numbers[p] for p in group["params"]]} for group in self.param_groups]
        return {"state": self._consolidated, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state of the optimizer alone, or of this class at any number of processes; all call it.

        Raises:
            ArgumentError: it does not fit; nothing has changed then.
        """
        groups, saved = checked_groups(NAME, state_dict)
        merged = self._merged_groups(groups)
        order = [n for group in groups for n in group["params"]]
        mine = [n for n, owner in zip(order, self._owners, strict=True) if owner == self.process_group.rank()]
        own_numbers = {n: number for number, n in enumerate(mine)}
        own_groups, begin = [], 0
        for own, other in zip(self.optim.param_groups, merged, strict=True):
            end = begin + len(own["params"])
            own_groups.append({**_options(other), "params": [*range(begin, end)]})
            begin = end
        own_state = {own_numbers[n]: values for n, values in saved.items() if n in own_numbers}
        self.optim.load_state_dict({"state": own_state, "param_groups": own_groups})
        for group, options in zip(self.param_groups, merged, strict=True):
            group.update(options)
        self.state, self._consolidated = self.optim.state, None


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: option for name, option in group.items() if name not in ("params", "param_names")}


def _saved(value: Any) -> Any:
    return np.array(value.detach().numpy()) if isinstance(value, Tensor) else value


def _empty(tensors: Sequence[Tensor]) -> npt.NDArray[np.uint8]:
    return np.empty(sum(p.numel() * p.dtype.itemsize for p in tensors), np.uint8)


def _bytes_of(tensors: Sequence[Tensor]) -> npt.NDArray[np.uint8]:
    """The elements of several tensors."""
    return np.concatenate(
        [np.ascontiguousarray(p.detach().numpy()).reshape(-1).view(np.uint8) for p in tensors]
    )


def _write(tensors: Sequence[Tensor], flat: npt.NDArray[np.uint8]) -> None:
    """Fill tensors with such bytes."""
    begin = 0
    for p in tensors:
        end = begin + p.numel() * p.dtype.itemsize
        with no_grad():
            p.copy_(from_numpy(flat[begin:end].copy().view(p.dtype).reshape(p.shape), "cpu"))
        begin = end
