"""PyTorch's ``torch.utils``: data, checkpoint, tensorboard and model_zoo, as scripts import them."""

from __future__ import annotations

from dl4all.pytorch.names.utils import checkpoint, data, model_zoo, tensorboard

__all__ = ["checkpoint", "data", "model_zoo", "tensorboard"]
