"""Tools for networks: limits on gradients, parametrizations, pruning, fusion of layers, packed sequences."""

from __future__ import annotations

from dl4all.nn.utils import fusion as fusion
from dl4all.nn.utils import parametrizations as parametrizations
from dl4all.nn.utils import parametrize as parametrize
from dl4all.nn.utils import prune as prune
from dl4all.nn.utils import rnn as rnn
from dl4all.nn.utils import stateless as stateless
from dl4all.nn.utils.fusion import fuse_conv_bn_eval as fuse_conv_bn_eval
from dl4all.nn.utils.fusion import fuse_conv_bn_weights as fuse_conv_bn_weights
from dl4all.nn.utils.fusion import fuse_linear_bn_eval as fuse_linear_bn_eval
from dl4all.nn.utils.fusion import fuse_linear_bn_weights as fuse_linear_bn_weights
from dl4all.nn.utils.gradient_clip import clip_grad_norm_ as clip_grad_norm_
from dl4all.nn.utils.gradient_clip import clip_grad_value_ as clip_grad_value_
from dl4all.nn.utils.gradient_clip import clip_grads_with_norm_ as clip_grads_with_norm_
from dl4all.nn.utils.gradient_clip import get_total_norm as get_total_norm
from dl4all.nn.utils.parameter_vector import parameters_to_vector as parameters_to_vector
from dl4all.nn.utils.parameter_vector import vector_to_parameters as vector_to_parameters
from dl4all.nn.utils.spectral_norm import remove_spectral_norm as remove_spectral_norm
from dl4all.nn.utils.spectral_norm import spectral_norm as spectral_norm
from dl4all.nn.utils.weight_norm import remove_weight_norm as remove_weight_norm
from dl4all.nn.utils.weight_norm import weight_norm as weight_norm

clip_grad_norm = clip_grad_norm_  # the old name

__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "prune",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "spectral_norm",
    "stateless",
    "vector_to_parameters",
    "weight_norm",
]
