"""Random numbers and dropout."""

from __future__ import annotations

from dl4all.ops.random.distributions import bernoulli_ as bernoulli_
from dl4all.ops.random.distributions import normal_ as normal_

# Written by tools/exports.py from the @export declarations in dl4all/ops; run it after changing them.
from dl4all.ops.random.distributions import uniform_ as uniform_
from dl4all.ops.random.dropout_functions import alpha_dropout as alpha_dropout
from dl4all.ops.random.dropout_functions import dropout as dropout
from dl4all.ops.random.dropout_functions import dropout1d as dropout1d
from dl4all.ops.random.dropout_functions import dropout2d as dropout2d
from dl4all.ops.random.dropout_functions import dropout3d as dropout3d
from dl4all.ops.random.dropout_functions import feature_alpha_dropout as feature_alpha_dropout
from dl4all.ops.random.dropout_functions import random_dropout as random_dropout
from dl4all.ops.random.gumbel import gumbel_softmax as gumbel_softmax

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
