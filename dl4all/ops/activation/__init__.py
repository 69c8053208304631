"""Activation functions."""

from __future__ import annotations

from dl4all.ops.activation.piecewise import celu as celu
from dl4all.ops.activation.piecewise import elu as elu
from dl4all.ops.activation.piecewise import elu_backward as elu_backward
from dl4all.ops.activation.piecewise import elu_output_backward as elu_output_backward
from dl4all.ops.activation.piecewise import hardsigmoid as hardsigmoid
from dl4all.ops.activation.piecewise import hardsigmoid_backward as hardsigmoid_backward
from dl4all.ops.activation.piecewise import hardswish as hardswish
from dl4all.ops.activation.piecewise import hardswish_backward as hardswish_backward
from dl4all.ops.activation.piecewise import hardtanh as hardtanh
from dl4all.ops.activation.piecewise import hardtanh_backward as hardtanh_backward
from dl4all.ops.activation.piecewise import leaky_relu as leaky_relu
from dl4all.ops.activation.piecewise import leaky_relu_backward as leaky_relu_backward
from dl4all.ops.activation.piecewise import prelu as prelu

# Written by tools/exports.py from the @export declarations in dl4all/ops; run it after changing them.
from dl4all.ops.activation.piecewise import relu as relu
from dl4all.ops.activation.piecewise import relu6 as relu6
from dl4all.ops.activation.piecewise import relu_backward as relu_backward
from dl4all.ops.activation.piecewise import selu as selu
from dl4all.ops.activation.piecewise import threshold as threshold
from dl4all.ops.activation.smooth import gelu as gelu
from dl4all.ops.activation.smooth import gelu_exact as gelu_exact
from dl4all.ops.activation.smooth import gelu_exact_backward as gelu_exact_backward
from dl4all.ops.activation.smooth import gelu_tanh as gelu_tanh
from dl4all.ops.activation.smooth import gelu_tanh_backward as gelu_tanh_backward
from dl4all.ops.activation.smooth import glu as glu
from dl4all.ops.activation.smooth import logsigmoid as logsigmoid
from dl4all.ops.activation.smooth import mish as mish
from dl4all.ops.activation.smooth import sigmoid as sigmoid
from dl4all.ops.activation.smooth import sigmoid_backward as sigmoid_backward
from dl4all.ops.activation.smooth import silu as silu
from dl4all.ops.activation.smooth import silu_backward as silu_backward
from dl4all.ops.activation.smooth import softplus as softplus
from dl4all.ops.activation.smooth import softplus_backward as softplus_backward
from dl4all.ops.activation.smooth import softsign as softsign

__all__ = [
    "celu",
    "elu",
    "elu_backward",
    "elu_output_backward",
    "gelu",
    "gelu_exact",
    "gelu_exact_backward",
    "gelu_tanh",
    "gelu_tanh_backward",
    "glu",
    "hardsigmoid",
    "hardsigmoid_backward",
    "hardswish",
    "hardswish_backward",
    "hardtanh",
    "hardtanh_backward",
    "leaky_relu",
    "leaky_relu_backward",
    "logsigmoid",
    "mish",
    "prelu",
    "relu",
    "relu6",
    "relu_backward",
    "selu",
    "sigmoid",
    "sigmoid_backward",
    "silu",
    "silu_backward",
    "softplus",
    "softplus_backward",
    "softsign",
    "threshold",
]
