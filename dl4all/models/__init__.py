"""Networks."""

from __future__ import annotations

from dl4all.models.resnet import ResNet, resnet18

__all__ = ["ResNet", "resnet18"]
