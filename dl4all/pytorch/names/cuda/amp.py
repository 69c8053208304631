"""``torch.cuda.amp``: mixed precision on what is called cuda, the accelerator."""

from __future__ import annotations

import functools
from typing import Any

from dl4all import amp

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]

custom_fwd = functools.partial(amp.custom_fwd, device_type="cuda")
custom_bwd = functools.partial(amp.custom_bwd, device_type="cuda")


class autocast(amp.autocast):
    """:class:`dl4all.amp.autocast` for the accelerator; without one nothing, with a warning."""

    def __init__(
        self, enabled: bool = True, dtype: Any = "float16", cache_enabled: bool | None = True
    ) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """:class:`dl4all.amp.GradScaler` for the accelerator; switched off without one, with a warning."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
