"""Registration with PyTorch: the device type, its module ``torch.dlall``, the kernels."""

from __future__ import annotations

import torch
from torch.utils import backend_registration

from dl4all.pytorch.device import device_guard, device_module, distributed, frameworks, patches
from dl4all.pytorch.device.devices import NAME
from dl4all.pytorch.device.dispatch import autocast, fallback
from dl4all.pytorch.device.dispatch.registration import hidden_from_dynamo

_LIBRARY = torch.library.Library("_", "IMPL")


def setup() -> None:
    """Register everything, once for each process."""
    backend_registration._setup_privateuseone_for_python_backend(
        NAME, device_module, device_guard.Hooks(), device_guard.DeviceGuard()
    )
    _LIBRARY.fallback(hidden_from_dynamo(fallback.on_cpu), "PrivateUse1")
    for layout in ("Sparse", "SparseCsr", "Quantized"):
        _LIBRARY.fallback(hidden_from_dynamo(fallback.refused), f"{layout}PrivateUse1")

    import dl4all.pytorch.device.aten  # noqa: F401 - registers the kernels

    patches.patch()
    autocast.register()
    distributed.register()
    frameworks.register()
