"""Losses."""

from __future__ import annotations

# Written by tools/exports.py from the @export declarations in dl4all/ops; run it after changing them.
from dl4all.ops.loss.classification import cross_entropy as cross_entropy
from dl4all.ops.loss.classification import nll_loss as nll_loss
from dl4all.ops.loss.cross_entropy_ops import cross_entropy_backward as cross_entropy_backward
from dl4all.ops.loss.cross_entropy_ops import cross_entropy_each as cross_entropy_each
from dl4all.ops.loss.cross_entropy_ops import nll_backward as nll_backward
from dl4all.ops.loss.cross_entropy_ops import nll_each as nll_each
from dl4all.ops.loss.ctc import ctc_loss as ctc_loss
from dl4all.ops.loss.elementwise_losses import binary_cross_entropy as binary_cross_entropy
from dl4all.ops.loss.elementwise_losses import (
    binary_cross_entropy_with_logits as binary_cross_entropy_with_logits,
)
from dl4all.ops.loss.elementwise_losses import huber_loss as huber_loss
from dl4all.ops.loss.elementwise_losses import kl_div as kl_div
from dl4all.ops.loss.elementwise_losses import l1_loss as l1_loss
from dl4all.ops.loss.elementwise_losses import mse_loss as mse_loss
from dl4all.ops.loss.elementwise_losses import smooth_l1_loss as smooth_l1_loss
from dl4all.ops.loss.likelihood import gaussian_nll_loss as gaussian_nll_loss
from dl4all.ops.loss.likelihood import poisson_nll_loss as poisson_nll_loss
from dl4all.ops.loss.margin import multi_margin_loss as multi_margin_loss
from dl4all.ops.loss.margin import multilabel_margin_loss as multilabel_margin_loss
from dl4all.ops.loss.margin import multilabel_soft_margin_loss as multilabel_soft_margin_loss
from dl4all.ops.loss.margin import soft_margin_loss as soft_margin_loss
from dl4all.ops.loss.margin import triplet_margin_loss as triplet_margin_loss
from dl4all.ops.loss.margin import triplet_margin_with_distance_loss as triplet_margin_with_distance_loss
from dl4all.ops.loss.similarity import cosine_embedding_loss as cosine_embedding_loss
from dl4all.ops.loss.similarity import cosine_similarity as cosine_similarity
from dl4all.ops.loss.similarity import hinge_embedding_loss as hinge_embedding_loss
from dl4all.ops.loss.similarity import margin_ranking_loss as margin_ranking_loss

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "cross_entropy_backward",
    "cross_entropy_each",
    "ctc_loss",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "margin_ranking_loss",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_backward",
    "nll_each",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]
