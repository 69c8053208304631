"""``torch.fft``: not here, because there are no complex numbers; each name says so."""

from __future__ import annotations

__all__: list[str] = []
