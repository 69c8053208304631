"""Batch, layer, group, instance and RMS normalization."""

from __future__ import annotations

from dl4all.ops.normalization.batch_normalization import batch_norm_apply as batch_norm_apply
from dl4all.ops.normalization.batch_normalization import batch_norm_backward as batch_norm_backward

# Written by tools/exports.py from the @export declarations in dl4all/ops; run it after changing them.
from dl4all.ops.normalization.batch_normalization import batch_norm_stats as batch_norm_stats
from dl4all.ops.normalization.batch_normalization import batch_norm_sums as batch_norm_sums
from dl4all.ops.normalization.functional import batch_norm as batch_norm
from dl4all.ops.normalization.functional import group_norm as group_norm
from dl4all.ops.normalization.functional import instance_norm as instance_norm
from dl4all.ops.normalization.functional import layer_norm as layer_norm
from dl4all.ops.normalization.functional import normalize as normalize
from dl4all.ops.normalization.functional import rms_norm as rms_norm
from dl4all.ops.normalization.given_statistics import normalized_backward as normalized_backward
from dl4all.ops.normalization.given_statistics import normalized_sums as normalized_sums
from dl4all.ops.normalization.group_normalization import grouped_norm as grouped_norm
from dl4all.ops.normalization.group_normalization import grouped_norm_backward as grouped_norm_backward
from dl4all.ops.normalization.group_normalization import grouped_norm_statistics as grouped_norm_statistics
from dl4all.ops.normalization.group_normalization import grouped_norm_sums as grouped_norm_sums

__all__ = [
    "batch_norm",
    "batch_norm_apply",
    "batch_norm_backward",
    "batch_norm_stats",
    "batch_norm_sums",
    "group_norm",
    "grouped_norm",
    "grouped_norm_backward",
    "grouped_norm_statistics",
    "grouped_norm_sums",
    "instance_norm",
    "layer_norm",
    "normalize",
    "normalized_backward",
    "normalized_sums",
    "rms_norm",
]
