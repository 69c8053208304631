"""``GradScaler``: a loss times a large number, so that small gradients survive in float16."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from dl4all.amp.autocast_mode import is_autocast_available
from dl4all.errors import ArgumentError, GradientError
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.optim.optimizer import Optimizer
from dl4all.optim.step.gradient_scale import unscale
from dl4all.scheduler.device.device import Device
from dl4all.tensor.arguments import checked_state
from dl4all.tensor.creation import tensor

STATE = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")


class GradScaler:
    """Scales a loss up, unscales the gradients, skips steps with infinite ones, and adapts the scale.

    ``scaler.scale(loss).backward()``, ``scaler.step(optimizer)``, ``scaler.update()`` in each step, as with
    PyTorch's. For devices that are not here it is switched off with a warning, as PyTorch does.

    Args:
        device: the type of device that is trained on.
        init_scale: the first scale.
        growth_factor: what the scale is multiplied by after `growth_interval` steps without infinity or nan.
        backoff_factor: what it is multiplied by after a step with one.
        growth_interval: how many steps.
        enabled: whether it does anything; losses pass unchanged otherwise, and steps are always made.

    Raises:
        ArgumentError: a factor is on the wrong side of 1.

    Example:
        >>> import dl4all as dl
        >>> w = dl.nn.Parameter(dl.ones(2, device="cpu"))
        >>> scaler, optimizer = dl.amp.GradScaler("cpu", init_scale=4.0), dl.optim.SGD([w], lr=0.5)
        >>> scaler.scale((w * w).sum()).backward()
        >>> w.grad.tolist()
        [8.0, 8.0]
        >>> scaler.step(optimizer)
        >>> scaler.update()
        >>> w.tolist(), scaler.get_scale()
        ([0.0, 0.0], 4.0)
    """

    def __init__(
        self,
        device: str | Device = "auto",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if enabled and str(device) != "auto" and not is_autocast_available(str(device)):
            warnings.warn(
                f"[GradScaler] there are no {device} devices: it is switched off", UserWarning, stacklevel=2
            )
            enabled = False
        if not growth_factor > 1.0 or not 0.0 < backoff_factor < 1.0:
            raise ArgumentError(
                "[GradScaler] expected growth_factor above 1 and backoff_factor between 0 and 1, "
                f"got {growth_factor} and {backoff_factor}"
            )
        self._enabled = enabled
        self._scale = float(init_scale)
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._good_steps = 0
        self._found: dict[int, bool] = {}  # by optimizer: whether an unscaled gradient was infinite or nan
        self._stepped: set[int] = set()

    def scale(self, outputs: Any) -> Any:
        """A loss, or several in lists or tuples, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, TensorBase):
            return outputs * self._scale  # type: ignore[operator]  # of Tensor
        return type(outputs)(self.scale(output) for output in outputs)

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of an optimizer's parameters by the scale, before they are clipped.

        Raises:
            GradientError: that was done since the last :meth:`update`, or gradients are of float16.
        """
        if not self._enabled:
            return
        if id(optimizer) in self._found:
            raise GradientError("[unscale_] these gradients were unscaled since the last update()")
        self._found[id(optimizer)] = self._unscaled(optimizer)

    def _unscaled(self, optimizer: Optimizer) -> bool:
        by_device: dict[Device, list[Any]] = {}
        infinite = False
        for gradient in _gradients(optimizer):
            if gradient.dtype == np.float16:
                raise GradientError(
                    "[unscale_] gradients of float16 lose what the scale has saved; keep the parameters in "
                    "float32 and compute within dl.autocast(..., dtype=dl.float16)"
                )
            if gradient.dtype == np.float32 and gradient.is_contiguous() and gradient.numel():
                by_device.setdefault(gradient.device, []).append(gradient)
            else:
                infinite |= not bool(gradient.isfinite().all())
                gradient.mul_(1.0 / self._scale)
        for device, gradients in by_device.items():
            found = tensor(0.0, "float32", device)
            unscale(gradients, tensor(1.0 / self._scale, "float32", device), found)
            infinite |= bool(found.item())
        return infinite

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """``optimizer.step`` with unscaled gradients, unless one of them is infinite or nan.

        Returns:
            What the optimizer's step returns; None if it was skipped.

        Raises:
            GradientError: it was called since the last :meth:`update`.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if id(optimizer) in self._stepped:
            raise GradientError("[step] the optimizer has stepped since the last update()")
        if id(optimizer) not in self._found:
            self.unscale_(optimizer)
        self._stepped.add(id(optimizer))
        return None if self._found[id(optimizer)] else optimizer.step(*args, **kwargs)

    def update(self, new_scale: float | TensorBase | None = None) -> None:
        """Adapt the scale to what the gradients since the last call were, or set another one.

        Raises:
            GradientError: there were no gradients.
        """
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)  # type: ignore[arg-type]  # of Tensor
        elif not self._found:
            raise GradientError("[update] no gradients were unscaled; call step(optimizer) before")
        elif any(self._found.values()):
            self._scale *= self._backoff_factor
            self._good_steps = 0
        else:
            self._good_steps += 1
            if self._good_steps == self._growth_interval:
                self._scale *= self._growth_factor
                self._good_steps = 0
        self._found.clear()
        self._stepped.clear()

    def get_scale(self) -> float:
        """The scale; 1 if nothing is scaled."""
        return self._scale if self._enabled else 1.0

    def is_enabled(self) -> bool:
        """Whether anything is scaled."""
        return self._enabled

    def get_growth_factor(self) -> float:
        """The factor by which the scale grows after steps without infinity or nan."""
        return self._growth_factor

    def get_backoff_factor(self) -> float:
        """The factor by which the scale shrinks after a step with one."""
        return self._backoff_factor

    def get_growth_interval(self) -> int:
        """After how many steps the scale grows."""
        return self._growth_interval

    def state_dict(self) -> dict[str, Any]:
        """The scale and its settings under PyTorch's names; empty if nothing is scaled."""
        if not self._enabled:
            return {}
        values = (
            self._scale, self._growth_factor, self._backoff_factor, self._growth_interval, self._good_steps,
        )  # fmt: skip
        return dict(zip(STATE, values, strict=True))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state of :meth:`state_dict`.

        Raises:
            ArgumentError: it is no such state, or empty: of a scaler that was switched off.
        """
        if not self._enabled:
            return
        state = checked_state("GradScaler", state_dict, STATE)
        self._scale, self._good_steps = float(state["scale"]), int(state["_growth_tracker"])
        self._growth_factor, self._backoff_factor = state["growth_factor"], state["backoff_factor"]
        self._growth_interval = int(state["growth_interval"])


def _gradients(optimizer: Optimizer) -> Iterator[Any]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                yield parameter.grad
