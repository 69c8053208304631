"""The names of ``torch.utils.data.dataloader``."""

from __future__ import annotations

from dl4all.data import DataLoader, default_collate, default_convert, get_worker_info

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]
