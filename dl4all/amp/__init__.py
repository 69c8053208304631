"""Mixed precision under PyTorch's names.

├── gradient_scaler.py   GradScaler
└── autocast_mode.py     autocast, its defaults, custom_fwd and custom_bwd
"""

from __future__ import annotations

from dl4all.amp.autocast_mode import (
    autocast,
    clear_autocast_cache,
    custom_bwd,
    custom_fwd,
    get_autocast_dtype,
    is_autocast_available,
    is_autocast_enabled,
    set_autocast_dtype,
)
from dl4all.amp.gradient_scaler import GradScaler

__all__ = [
    "GradScaler",
    "autocast",
    "clear_autocast_cache",
    "custom_bwd",
    "custom_fwd",
    "get_autocast_dtype",
    "is_autocast_available",
    "is_autocast_enabled",
    "set_autocast_dtype",
]
