"""A module on one device under the name of PyTorch's for several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dl4all.errors import ArgumentError
from dl4all.nn.module import Module
from dl4all.scheduler.device.current import device as open_device
from dl4all.tensor.arguments import DeviceLike

ADVICE = "several devices compute one model by dl.parallel(model, dl.DeviceGroup([...]))"


class DataParallel(Module):
    """A module on one device, under the name and with the ``module`` attribute of PyTorch's.

    Args:
        module: what is called.
        device_ids: one device that the module is on, or none.
        output_device: the same one.
        dim: the axis of samples.

    Raises:
        ArgumentError: several devices are named; the message says what to use.

    Example:
        >>> import dl4all as dl
        >>> net = dl.nn.DataParallel(dl.nn.Linear(3, 2))
        >>> net(dl.ones(4, 3, device="cpu")).shape, list(net.state_dict())
        ((4, 2), ['module.weight', 'module.bias'])
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[DeviceLike | int] | None = None,
        output_device: DeviceLike | int | None = None,
        dim: int = 0,
    ) -> None:
        super().__init__()
        _check_devices("DataParallel", device_ids)
        self.module, self.dim = module, dim
        self.device_ids = list(device_ids or ())

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Sequence[DeviceLike | int] | None = None,
    output_device: DeviceLike | int | None = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """Call a module on its device, as :class:`DataParallel` does.

    Raises:
        ArgumentError: several devices are named.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.parallel.data_parallel(dl.nn.Linear(3, 2), dl.ones(4, 3, device="cpu")).shape
        (4, 2)
    """
    _check_devices("data_parallel", device_ids)
    return module(*(inputs if isinstance(inputs, tuple) else (inputs,)), **(module_kwargs or {}))


def _check_devices(name: str, device_ids: Sequence[DeviceLike | int] | None) -> None:
    if device_ids is not None and len(device_ids) > 1:
        raise ArgumentError(f"[{name}] expected one device, got {list(device_ids)}: {ADVICE}")
    for device in device_ids or ():
        if not isinstance(device, int):
            open_device(device)
