"""Exponential moving average of parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.kernels.multi_tensor import MultiTensor
from dl4all.ops.core.tensor_base import TensorBase, from_host
from dl4all.ops.memory.copy import fresh_copy, overwrite
from dl4all.optim.step.host_step import update_jobs
from dl4all.optim.step.kernels import UpdateRule, no_kernel_of
from dl4all.scheduler import fallback, listeners
from dl4all.scheduler.device.device import Device
from dl4all.tensor.arguments import checked_state
from dl4all.tensor.tensor import Tensor

AVERAGE = UpdateRule("ema", "", "weight", "p = p + weight * (g - p)")
"""The parameter is in the gradient's place, its average in the parameter's."""


def move_averages(pairs: Sequence[tuple[Tensor, Tensor]], weight: float, plans: MultiTensor) -> None:
    """Move averages towards parameters, in few launches.

    Args:
        pairs: a parameter and its average, of the same shape, dtype and device.
        weight: of the parameters in the new averages.
        plans: the caller's.
    """
    jobs_by_device: dict[Device, list[tuple[Tensor, Tensor]]] = {}
    for p, mean in pairs:
        if 0 in p.shape:
            continue
        cause = None if p.device.is_host else no_kernel_of(p, mean)
        if cause is not None:
            with fallback.on_host("EMA", p.device, cause):
                _move_on_host(mean, p, weight)
        else:
            jobs_by_device.setdefault(p.device, []).append((p, mean))
    for device, jobs in jobs_by_device.items():
        if device.is_host:
            update_jobs("EMA", AVERAGE, jobs, (weight,))
            continue
        refused = AVERAGE.launch(device, jobs, (weight,), plans, device)
        for number, error in refused.items():
            (p, mean), cause = jobs[number], fallback.refused(device, error, "float32")
            with fallback.on_host("EMA", device, cause):
                _move_on_host(mean, p, weight)


class EMA:
    """The exponential moving average of parameters, which often generalizes better than the last ones.

    Polyak and Juditsky, SIAM J. Control Optim. 30 (1992), with recent parameters weighted most.

    Args:
        params: tensors, such as ``module.parameters()``.
        decay: the share of the average that an update keeps.

    Raises:
        ArgumentError: `decay` is not from 0 to 1, or there are no parameters.

    Example:
        >>> import dl4all as dl
        >>> w = dl.nn.Parameter(dl.tensor([0.0]))
        >>> ema = dl.optim.EMA([w], decay=0.75)
        >>> _ = dl.nn.init.ones_(w)
        >>> ema.update()
        >>> with ema.averaged():
        ...     w.tolist()
        [0.25]
        >>> w.tolist()
        [1.0]
    """

    # Not among the attributes that a compiled function depends on: replays count updates, too.
    __slots__ = ("__dict__", "__weakref__", "updates")

    def __init__(self, params: Iterable[Tensor], decay: float = 0.999) -> None:
        if not 0 <= decay <= 1:
            raise ArgumentError(f"[EMA] expected a decay from 0 to 1, got {decay}")
        self.params = list(params)
        if not self.params:
            raise ArgumentError("[EMA] got no parameters; pass module.parameters()")
        self.decay = decay
        self.updates: int = 0
        self.shadow: list[Tensor] = [_copy(p) for p in self.params]
        self._plans = MultiTensor()

    def update(self) -> None:
        """Move the average towards the current parameters."""
        for number, (p, mean) in enumerate(zip(self.params, self.shadow, strict=True)):
            if mean.device is not p.device:  # the network was moved
                self.shadow[number] = mean.to(p.device)
        move_averages(list(zip(self.params, self.shadow, strict=True)), 1.0 - self.decay, self._plans)
        self._count()
        listeners.vary("EMA", (), self._count)

    def _count(self) -> tuple[int, ...]:
        """Count an update."""
        self.updates += 1
        return ()

    def copy_to(self, params: Iterable[Tensor] | None = None) -> None:
        """Write the average into the parameters, or into others of the same shapes."""
        for p, mean in zip(self.params if params is None else params, self.shadow, strict=True):
            overwrite(p, mean)

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """A context in which the parameters are the average; afterwards they are exactly what they were."""
        before = [_copy(p) for p in self.params]
        self.copy_to()
        try:
            yield
        finally:
            for p, old in zip(self.params, before, strict=True):
                overwrite(p, old)

    def state_dict(self) -> dict[str, Any]:
        """The average, the decay and the number of updates; the tensors share the average's memory."""
        return {"decay": self.decay, "updates": self.updates, "shadow": list(self.shadow)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a copy of what :meth:`state_dict` returned. Nothing changes unless everything fits.

        Raises:
            ArgumentError: it is no state of an average, or its shapes are not those of the parameters.
        """
        saved = self._check_state(state_dict)
        self.shadow = [
            from_host(Tensor, array.astype(p.dtype), p.device, copy=True)
            for p, array in zip(self.params, saved, strict=True)
        ]
        self.decay, self.updates = float(state_dict["decay"]), int(state_dict["updates"])

    def _check_state(self, state_dict: Any) -> list[npt.NDArray[Any]]:
        """The averages of a state.

        Raises:
            ArgumentError: it cannot be loaded.
        """
        found = checked_state("EMA", state_dict, ("shadow", "decay", "updates"))
        if not isinstance(found["shadow"], (list, tuple)):
            raise ArgumentError(
                f"[EMA] the state's shadow must be a list, got {type(found['shadow']).__name__}"
            )
        saved = [np.asarray(t.on_host() if isinstance(t, TensorBase) else t) for t in found["shadow"]]
        mine, theirs = [p.shape for p in self.params], [array.shape for array in saved]
        if mine != theirs:
            raise ArgumentError(f"[EMA] the parameters have shapes {mine}, the state's {theirs}")
        if any(kind_of(array.dtype) not in "biuf" for array in saved):
            raise ArgumentError("[EMA] the state's averages must be numbers")
        try:
            valid = 0 <= float(found["decay"]) <= 1 and int(found["updates"]) >= 0
        except (TypeError, ValueError, OverflowError):
            valid = False
        if not valid:
            raise ArgumentError(
                f"[EMA] the state's decay {found['decay']!r:.100} must be from 0 to 1, its updates "
                f"{found['updates']!r:.100} a count"
            )
        return saved


def _copy(tensor: Tensor) -> Tensor:
    copied: Tensor = fresh_copy(tensor)  # type: ignore[assignment]
    return copied


def _move_on_host(mean: Tensor, p: Tensor, weight: float) -> None:
    """Move the average of a parameter of another device in NumPy."""
    average = mean.on_host()
    AVERAGE.update(average, p.on_host(), [], weight)
    overwrite(mean, from_host(Tensor, average, p.device, copy=False))
