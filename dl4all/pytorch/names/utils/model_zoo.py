"""``torch.utils.model_zoo``, an old name of :mod:`dl4all.hub`."""

from __future__ import annotations

from dl4all.pytorch.names.hub import load_state_dict_from_url

load_url = load_state_dict_from_url

__all__ = ["load_url"]
