"""The name of ``torch.utils.data.distributed``."""

from __future__ import annotations

from dl4all.data import DistributedSampler

__all__ = ["DistributedSampler"]
