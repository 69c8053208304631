"""PyTorch on any GPU: a device ``dlall`` for PyTorch's tensors, and a backend for ``torch.compile``.

Importing this module registers both with PyTorch::

    import torch
    import dl4all.torch

    model = torch.nn.Linear(4, 2).to("dlall")
    model(torch.randn(3, 4, device="dlall")).sum().backward()

``dlall`` is the device that ``auto`` takes, ``dlall:1`` and so on are the other ones. Everything is Python:
no extension is compiled. docs/pytorch.md says what runs natively and what falls back to the CPU.
"""

from __future__ import annotations

from dl4all.pytorch.device.versions import check as _check

_check()  # what follows uses what it looks for

from dl4all.pytorch.device.dispatch.fallback import COUNTS as fallbacks  # noqa: E402
from dl4all.pytorch.device.dispatch.fallback import set_mode as set_fallback  # noqa: E402
from dl4all.pytorch.device.setup import setup as _setup  # noqa: E402
from dl4all.pytorch.device.storage.interchange import from_dl4all, to_dl4all  # noqa: E402

_setup()

__all__ = ["fallbacks", "from_dl4all", "set_fallback", "to_dl4all"]
