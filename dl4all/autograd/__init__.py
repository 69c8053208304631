"""Automatic differentiation."""

from __future__ import annotations

from dl4all.autograd.activation_checkpoint import checkpoint
from dl4all.autograd.backward_pass import backward, grad
from dl4all.autograd.function import Function
from dl4all.autograd.functional import hessian, hvp, jacobian, jvp, vjp
from dl4all.autograd.grad_mode import (
    detect_anomaly,
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from dl4all.autograd.gradient_check import gradcheck, gradgradcheck
from dl4all.autograd.variable import Variable
from dl4all.autograd.vectorizing_map import vmap

__all__ = [
    "Function",
    "Variable",
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
