"""Pooling and unpooling."""

from __future__ import annotations

from dl4all.ops.pool.avg_pool import adaptive_avg_pool2d as adaptive_avg_pool2d

# Written by tools/exports.py from the @export declarations in dl4all/ops; run it after changing them.
from dl4all.ops.pool.avg_pool import avg_pool2d as avg_pool2d
from dl4all.ops.pool.avg_pool import avg_pool_backward as avg_pool_backward
from dl4all.ops.pool.lp_pool import lp_pool1d as lp_pool1d
from dl4all.ops.pool.lp_pool import lp_pool2d as lp_pool2d
from dl4all.ops.pool.lp_pool import lp_pool3d as lp_pool3d
from dl4all.ops.pool.max_pool import max_pool_at as max_pool_at
from dl4all.ops.pool.max_pool import max_pool_backward as max_pool_backward
from dl4all.ops.pool.max_unpool import max_unpool1d as max_unpool1d
from dl4all.ops.pool.max_unpool import max_unpool2d as max_unpool2d
from dl4all.ops.pool.max_unpool import max_unpool3d as max_unpool3d
from dl4all.ops.pool.pool1d import adaptive_avg_pool1d as adaptive_avg_pool1d
from dl4all.ops.pool.pool1d import adaptive_max_pool1d as adaptive_max_pool1d
from dl4all.ops.pool.pool1d import adaptive_max_pool1d_with_indices as adaptive_max_pool1d_with_indices
from dl4all.ops.pool.pool1d import avg_pool1d as avg_pool1d
from dl4all.ops.pool.pool1d import max_pool1d as max_pool1d
from dl4all.ops.pool.pool1d import max_pool1d_with_indices as max_pool1d_with_indices
from dl4all.ops.pool.pool2d import adaptive_max_pool2d as adaptive_max_pool2d
from dl4all.ops.pool.pool2d import adaptive_max_pool2d_with_indices as adaptive_max_pool2d_with_indices
from dl4all.ops.pool.pool2d import max_pool2d as max_pool2d
from dl4all.ops.pool.pool2d import max_pool2d_with_indices as max_pool2d_with_indices
from dl4all.ops.pool.pool3d import adaptive_avg_pool3d as adaptive_avg_pool3d
from dl4all.ops.pool.pool3d import adaptive_max_pool3d as adaptive_max_pool3d
from dl4all.ops.pool.pool3d import adaptive_max_pool3d_with_indices as adaptive_max_pool3d_with_indices
from dl4all.ops.pool.pool3d import avg_pool3d as avg_pool3d
from dl4all.ops.pool.pool3d import max_pool3d as max_pool3d
from dl4all.ops.pool.pool3d import max_pool3d_with_indices as max_pool3d_with_indices

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
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "avg_pool_backward",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "max_pool1d",
    "max_pool1d_with_indices",
    "max_pool2d",
    "max_pool2d_with_indices",
    "max_pool3d",
    "max_pool3d_with_indices",
    "max_pool_at",
    "max_pool_backward",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
]
