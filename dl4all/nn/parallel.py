"""Modules over several devices and processes under PyTorch's names."""

from __future__ import annotations

from dl4all.multi_device.data_parallel.distributed import DistributedDataParallel
from dl4all.nn.modules.data_parallel import DataParallel, data_parallel

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel"]
