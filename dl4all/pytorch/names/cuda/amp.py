"""``torch.cuda.amp``: mixed precision on CUDA devices, which are not here, so that both are switched off."""

from __future__ import annotations

from typing import Any

from dl4all import amp

__all__ = ["GradScaler", "autocast"]


class autocast(amp.autocast):
    """:class:`dl4all.amp.autocast` for CUDA: nothing, with a warning if it is switched on."""

    def __init__(
        self, enabled: bool = True, dtype: Any = "float16", cache_enabled: bool | None = True
    ) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """:class:`dl4all.amp.GradScaler` for CUDA: switched off, with a warning if it was on."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
