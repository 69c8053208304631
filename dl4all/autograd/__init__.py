"""Gradients of anything that was computed with tensors."""

from __future__ import annotations

from dl4all.autograd.api import backward, grad
from dl4all.autograd.check import gradcheck, gradgradcheck
from dl4all.autograd.function import Function
from dl4all.autograd.functional import hessian, hvp, jacobian, jvp, vjp
from dl4all.autograd.mapping import vmap
from dl4all.autograd.modes import (
    detect_anomaly,
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from dl4all.autograd.recompute import checkpoint

__all__ = [
    "Function",
    "backward",
    "checkpoint",
    "detect_anomaly",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "hessian",
    "hvp",
    "inference_mode",
    "is_grad_enabled",
    "jacobian",
    "jvp",
    "no_grad",
    "set_grad_enabled",
    "vjp",
    "vmap",
]
