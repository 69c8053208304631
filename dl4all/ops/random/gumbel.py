"""Gumbel-softmax: differentiable sampling of categories."""

from __future__ import annotations

from dl4all.ops.core.exports import export
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.elementwise.arithmetic import true_divide
from dl4all.ops.elementwise.comparison import clamp_min
from dl4all.ops.elementwise.transcendental import log, log1p
from dl4all.ops.indexing.gather_scatter import scatter
from dl4all.ops.random.distributions import uniform_
from dl4all.ops.reduce.extrema import argmax
from dl4all.ops.reduce.softmax_function import softmax


@export("F")
def gumbel_softmax(
    logits: Array, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Array:
    """Sample from categories with a gradient: softmax of logits with Gumbel noise (arXiv:1611.01144).

    Args:
        logits: floats.
        tau: the temperature; the smaller it is, the closer the result is to one-hot.
        hard: return one-hot samples, with the gradient of the soft ones.
        eps: has no effect, as in PyTorch.
        dim: the axis of the categories.

    Raises:
        ArgumentError: there is no such axis.

    Example:
        >>> import dl4all as dl
        >>> sorted(dl.nn.functional.gumbel_softmax(dl.zeros(3), hard=True).tolist())
        [0.0, 0.0, 1.0]
    """
    uniform = uniform_(empty(type(logits).result_class, logits.shape, logits.dtype, logits.device))
    # The smallest number that the generator gives beside 0 is 2^-24; 0 would become an infinite score.
    exponential = clamp_min(-log1p(-uniform), 2.0**-25)
    soft = softmax(true_divide(logits - log(exponential), tau), dim)
    if not hard:
        return soft
    chosen = argmax(soft, dim, True)
    return scatter(soft.detach() * 0.0, dim, chosen, 1.0) - soft.detach() + soft
