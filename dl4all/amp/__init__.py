"""Mixed precision under PyTorch's names: the scaling of losses; ``autocast`` is there to be switched off.

├── gradient_scaler.py   GradScaler
└── autocast_mode.py     autocast
"""

from __future__ import annotations

from dl4all.amp.autocast_mode import autocast, is_autocast_available, is_autocast_enabled
from dl4all.amp.gradient_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "is_autocast_available", "is_autocast_enabled"]
