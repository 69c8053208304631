"""The functions behind the layers, where PyTorch has them."""

from __future__ import annotations

# Written by tools/exports.py from the @export declarations in dl4all/ops; run it after changing them.
from dl4all import ops
from dl4all.ops import adaptive_avg_pool1d as adaptive_avg_pool1d
from dl4all.ops import adaptive_avg_pool2d as adaptive_avg_pool2d
from dl4all.ops import adaptive_avg_pool3d as adaptive_avg_pool3d
from dl4all.ops import adaptive_max_pool1d as adaptive_max_pool1d
from dl4all.ops import adaptive_max_pool1d_with_indices as adaptive_max_pool1d_with_indices
from dl4all.ops import adaptive_max_pool2d as adaptive_max_pool2d
from dl4all.ops import adaptive_max_pool2d_with_indices as adaptive_max_pool2d_with_indices
from dl4all.ops import adaptive_max_pool3d as adaptive_max_pool3d
from dl4all.ops import adaptive_max_pool3d_with_indices as adaptive_max_pool3d_with_indices
from dl4all.ops import affine_grid as affine_grid
from dl4all.ops import alpha_dropout as alpha_dropout
from dl4all.ops import avg_pool1d as avg_pool1d
from dl4all.ops import avg_pool2d as avg_pool2d
from dl4all.ops import avg_pool3d as avg_pool3d
from dl4all.ops import batch_norm as batch_norm
from dl4all.ops import bilinear as bilinear
from dl4all.ops import binary_cross_entropy as binary_cross_entropy
from dl4all.ops import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from dl4all.ops import celu as celu
from dl4all.ops import channel_shuffle as channel_shuffle
from dl4all.ops import conv1d as conv1d
from dl4all.ops import conv2d as conv2d
from dl4all.ops import conv3d as conv3d
from dl4all.ops import conv_transpose1d as conv_transpose1d
from dl4all.ops import conv_transpose2d as conv_transpose2d
from dl4all.ops import conv_transpose3d as conv_transpose3d
from dl4all.ops import cosine_embedding_loss as cosine_embedding_loss
from dl4all.ops import cosine_similarity as cosine_similarity
from dl4all.ops import cross_entropy as cross_entropy
from dl4all.ops import ctc_loss as ctc_loss
from dl4all.ops import dropout as dropout
from dl4all.ops import dropout1d as dropout1d
from dl4all.ops import dropout2d as dropout2d
from dl4all.ops import dropout3d as dropout3d
from dl4all.ops import elu as elu
from dl4all.ops import embedding as embedding
from dl4all.ops import embedding_bag as embedding_bag
from dl4all.ops import feature_alpha_dropout as feature_alpha_dropout
from dl4all.ops import fold as fold
from dl4all.ops import gaussian_nll_loss as gaussian_nll_loss
from dl4all.ops import gelu as gelu
from dl4all.ops import glu as glu
from dl4all.ops import grid_sample as grid_sample
from dl4all.ops import group_norm as group_norm
from dl4all.ops import gumbel_softmax as gumbel_softmax
from dl4all.ops import hardshrink as hardshrink
from dl4all.ops import hardsigmoid as hardsigmoid
from dl4all.ops import hardswish as hardswish
from dl4all.ops import hardtanh as hardtanh
from dl4all.ops import hinge_embedding_loss as hinge_embedding_loss
from dl4all.ops import huber_loss as huber_loss
from dl4all.ops import instance_norm as instance_norm
from dl4all.ops import interpolate as interpolate
from dl4all.ops import kl_div as kl_div
from dl4all.ops import l1_loss as l1_loss
from dl4all.ops import layer_norm as layer_norm
from dl4all.ops import leaky_relu as leaky_relu
from dl4all.ops import linear as linear
from dl4all.ops import local_response_norm as local_response_norm
from dl4all.ops import log_softmax as log_softmax
from dl4all.ops import logsigmoid as logsigmoid
from dl4all.ops import lp_pool1d as lp_pool1d
from dl4all.ops import lp_pool2d as lp_pool2d
from dl4all.ops import lp_pool3d as lp_pool3d
from dl4all.ops import margin_ranking_loss as margin_ranking_loss
from dl4all.ops import max_pool1d as max_pool1d
from dl4all.ops import max_pool1d_with_indices as max_pool1d_with_indices
from dl4all.ops import max_pool2d as max_pool2d
from dl4all.ops import max_pool2d_with_indices as max_pool2d_with_indices
from dl4all.ops import max_pool3d as max_pool3d
from dl4all.ops import max_pool3d_with_indices as max_pool3d_with_indices
from dl4all.ops import max_unpool1d as max_unpool1d
from dl4all.ops import max_unpool2d as max_unpool2d
from dl4all.ops import max_unpool3d as max_unpool3d
from dl4all.ops import mish as mish
from dl4all.ops import mse_loss as mse_loss
from dl4all.ops import multi_head_attention_forward as multi_head_attention_forward
from dl4all.ops import multi_margin_loss as multi_margin_loss
from dl4all.ops import multilabel_margin_loss as multilabel_margin_loss
from dl4all.ops import multilabel_soft_margin_loss as multilabel_soft_margin_loss
from dl4all.ops import nll_loss as nll_loss
from dl4all.ops import normalize as normalize
from dl4all.ops import one_hot as one_hot
from dl4all.ops import pad as pad
from dl4all.ops import pairwise_distance as pairwise_distance
from dl4all.ops import pdist as pdist
from dl4all.ops import pixel_shuffle as pixel_shuffle
from dl4all.ops import pixel_unshuffle as pixel_unshuffle
from dl4all.ops import poisson_nll_loss as poisson_nll_loss
from dl4all.ops import prelu as prelu
from dl4all.ops import relu as relu
from dl4all.ops import relu6 as relu6
from dl4all.ops import rms_norm as rms_norm
from dl4all.ops import rrelu as rrelu
from dl4all.ops import scaled_dot_product_attention as scaled_dot_product_attention
from dl4all.ops import selu as selu
from dl4all.ops import sigmoid as sigmoid
from dl4all.ops import silu as silu
from dl4all.ops import smooth_l1_loss as smooth_l1_loss
from dl4all.ops import soft_margin_loss as soft_margin_loss
from dl4all.ops import softmax as softmax
from dl4all.ops import softmin as softmin
from dl4all.ops import softplus as softplus
from dl4all.ops import softshrink as softshrink
from dl4all.ops import softsign as softsign
from dl4all.ops import tanh as tanh
from dl4all.ops import tanhshrink as tanhshrink
from dl4all.ops import threshold as threshold
from dl4all.ops import triplet_margin_loss as triplet_margin_loss
from dl4all.ops import triplet_margin_with_distance_loss as triplet_margin_with_distance_loss
from dl4all.ops import unfold as unfold
from dl4all.ops import upsample as upsample
from dl4all.ops import upsample_bilinear as upsample_bilinear
from dl4all.ops import upsample_nearest as upsample_nearest

relu_ = ops.in_place(ops.relu)
leaky_relu_ = ops.in_place(ops.leaky_relu)
elu_ = ops.in_place(ops.elu)
selu_ = ops.in_place(ops.selu)
celu_ = ops.in_place(ops.celu)
hardtanh_ = ops.in_place(ops.hardtanh)
threshold_ = ops.in_place(ops.threshold)
rrelu_ = ops.in_place(ops.rrelu)

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_with_indices",
    "affine_grid",
    "alpha_dropout",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "celu_",
    "channel_shuffle",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "ctc_loss",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "elu",
    "elu_",
    "embedding",
    "embedding_bag",
    "feature_alpha_dropout",
    "fold",
    "gaussian_nll_loss",
    "gelu",
    "glu",
    "grid_sample",
    "group_norm",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hardtanh_",
    "hinge_embedding_loss",
    "huber_loss",
    "instance_norm",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "leaky_relu_",
    "linear",
    "local_response_norm",
    "log_softmax",
    "logsigmoid",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "margin_ranking_loss",
    "max_pool1d",
    "max_pool1d_with_indices",
    "max_pool2d",
    "max_pool2d_with_indices",
    "max_pool3d",
    "max_pool3d_with_indices",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "mish",
    "mse_loss",
    "multi_head_attention_forward",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "pdist",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll_loss",
    "prelu",
    "relu",
    "relu6",
    "relu_",
    "rms_norm",
    "rrelu",
    "rrelu_",
    "scaled_dot_product_attention",
    "selu",
    "selu_",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
    "threshold_",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
    "unfold",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]
