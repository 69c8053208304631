"""Random numbers and dropout."""

from __future__ import annotations

from dl4all.ops.random.dropout_variants import alpha_dropout as alpha_dropout

# Written by tools/exports.py from the @export declarations in dl4all/ops; run it after changing them.
from dl4all.ops.random.dropout_variants import dropout1d as dropout1d
from dl4all.ops.random.dropout_variants import dropout3d as dropout3d
from dl4all.ops.random.dropout_variants import feature_alpha_dropout as feature_alpha_dropout
from dl4all.ops.random.dropout_variants import gumbel_softmax as gumbel_softmax
from dl4all.ops.random.generator import bernoulli_ as bernoulli_
from dl4all.ops.random.generator import dropout as dropout
from dl4all.ops.random.generator import dropout2d as dropout2d
from dl4all.ops.random.generator import normal_ as normal_
from dl4all.ops.random.generator import random_dropout as random_dropout
from dl4all.ops.random.generator import uniform_ as uniform_

__all__ = [
    "alpha_dropout",
    "bernoulli_",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "feature_alpha_dropout",
    "gumbel_softmax",
    "normal_",
    "random_dropout",
    "uniform_",
]
