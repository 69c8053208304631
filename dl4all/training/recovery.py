"""The last consistent state of a training run on the host, for when the device that trains is lost."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dl4all.errors import DeviceError, DeviceLostError, OutOfMemoryError
from dl4all.multi_device.data_parallel.copies import give_memory
from dl4all.multi_device.data_parallel.module import DataParallel
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.random.generator import State, default_generator
from dl4all.runtime.simulated.backend import Hang

if TYPE_CHECKING:
    from dl4all.training.trainer import Trainer

T = TypeVar("T")

EVERY = 32  # batches after which a state is taken: more cost more to compute again, fewer more copies

TRIES = 3  # where the primary device's memory does not suffice


class Recovery:
    """Takes states of a trainer, and goes back to the last one when the primary device of its group is lost.

    The batches since then are computed again, with the same random numbers, on the devices that are left. So
    the run goes on as if nothing had happened.

    Args:
        trainer: what to take states of.
        network: its model on several devices.
        state: from :func:`state_of`, before the model was moved to them.
    """

    def __init__(self, trainer: Trainer, network: DataParallel, state: dict[str, Any]) -> None:
        self._trainer, self._network, self._group = trainer, network, network.group
        self._state = state
        self._since: list[tuple[Any, Any, State]] = []  # batches on the host, and random states before them

    def begin(self) -> None:
        """Take the state in which an epoch begins."""
        self._state |= _host_state_of(self._trainer)
        self._state["optimizer"]["param_groups"] = self._trainer.optimizer.state_dict()["param_groups"]
        self._guard(self._take)

    def end(self, finish: Callable[[], T]) -> T:
        """Finish an epoch, and take the state behind it."""

        def finish_and_take() -> T:
            result = finish()
            self._take(clear=False)
            return result

        result = self._guard(finish_and_take, computed=len(self._since))
        self._since.clear()
        return result

    def batch(self, inputs: Any, targets: Any) -> None:
        """Train with a batch."""
        inputs, targets = _on_host(inputs), _on_host(targets)
        self._since.append((inputs, targets, default_generator().get_state()))

        def train() -> None:
            self._trainer._train_batch(inputs, targets)
            if len(self._since) >= EVERY and not self._trainer._pending:
                self._take()

        self._guard(train, computed=len(self._since) - 1)

    def call(self, function: Callable[[], T]) -> T:
        """Do something else with the trainer's devices."""
        return self._guard(function, computed=len(self._since))

    def _guard(self, function: Callable[[], T], computed: int = 0) -> T:
        """Call a function; where the primary device is lost meanwhile, go back and call it again.

        Args:
            function: may be called several times.
            computed: how many of the batches since the last state were computed before.
        """
        failed, failures = False, 0
        random = default_generator().get_state()
        while True:
            primary = self._group.primary
            try:
                if failed:
                    self._restore()
                    for inputs, targets, state in self._since[:computed]:
                        default_generator().set_state(state)
                        self._trainer._train_batch(inputs, targets)
                    default_generator().set_state(random)
                return function()
            except (DeviceLostError, Hang) as error:
                if self._group.primary is primary:
                    self._group.retire(primary, str(error))
            except OutOfMemoryError:
                failures += 1
                if failures > TRIES:
                    raise
                self._network.relieve(primary)
            failed = True
            if not len(self._group):
                raise DeviceError("[Trainer] no device is left to train on")
            gc.collect()  # errors' tracebacks hold what was computed

    def _take(self, *, clear: bool = True) -> None:
        """Copy the state to the host. Only between two steps of the optimizer."""
        self._state = state_of(self._trainer)
        if clear:
            self._since.clear()

    def _restore(self) -> None:
        trainer, state = self._trainer, self._state
        trainer.device = self._group.primary
        own = trainer.model.state_dict(keep_vars=True)
        for name, array in state["model"].items():
            give_memory(own[name], array, trainer.device)
        trainer._zero_gradients()
        trainer.optimizer.load_state_dict(state["optimizer"])
        for part in ("scheduler", "ema", "scaler"):
            if state[part] is not None:
                getattr(trainer, part).load_state_dict(state[part])
        trainer._totals.load_state_dict(state["totals"])
        trainer._pending, trainer.step = 0, state["step"]
        trainer.model.train()


def state_of(trainer: Trainer) -> dict[str, Any]:
    """The state from which a run goes on, on the host."""
    return {
        "model": {name: np.array(tensor.numpy()) for name, tensor in trainer.model.state_dict().items()},
        "optimizer": copied(trainer.optimizer.state_dict()),
        "ema": None if trainer.ema is None else copied(trainer.ema.state_dict()),
        **_host_state_of(trainer),
    }


def _host_state_of(trainer: Trainer) -> dict[str, Any]:
    """The part of the state that is on the host anyway."""
    return {
        "scheduler": None if trainer.scheduler is None else copied(trainer.scheduler.state_dict()),
        "scaler": trainer.scaler.state_dict() or None,
        "totals": trainer._totals.state_dict(),
        "step": trainer.step,
    }


def _on_host(value: Any) -> Any:
    """A batch whose tensors survive the loss of a device."""
    if isinstance(value, TensorBase) and not value.device.is_cpu:
        return np.array(value.on_host())
    return value


def copied(value: Any) -> Any:
    """The same structure with arrays in place of tensors."""
    if isinstance(value, TensorBase):
        return np.array(value.on_host())
    if isinstance(value, dict):
        return {key: copied(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(copied(part) for part in value)
    return value
