"""Which token comes next."""

from __future__ import annotations

import math
from collections.abc import Callable

from dl4all.errors import ArgumentError
from dl4all.functions.sorting.sort_and_search import topk
from dl4all.tensor.random import rand_like
from dl4all.tensor.tensor import Tensor

Sampler = Callable[[Tensor], Tensor]


def make_sampler(temp: float = 0.0, top_p: float = 1.0, min_p: float = 0.0, top_k: int = 0) -> Sampler:
    """A function of scores (N, vocabulary) that chooses a token (N,) on their device.

    A token is drawn by the Gumbel-max trick: the largest of scores and noise. Names are MLX-LM's.

    Args:
        temp: by which scores are divided; with 0 the largest is taken.
        top_p: draw from the most likely tokens that have this probability together.
        min_p: draw from those whose probability is at least this part of the largest one.
        top_k: draw from so many, the most likely ones; 0 for all.

    Raises:
        ArgumentError: a number is out of its range.

    Example:
        >>> import dl4all as dl
        >>> dl.llm.make_sampler()(dl.tensor([[1.0, 5.0, 3.0]])).tolist()
        [1]
    """
    wrong = {
        "temp": not 0 <= temp < math.inf,
        "top_p": not 0 < top_p <= 1,
        "min_p": not 0 <= min_p <= 1,
        "top_k": top_k < 0 or top_k != int(top_k),
    }
    if any(wrong.values()):
        name = next(name for name, is_wrong in wrong.items() if is_wrong)
        raise ArgumentError(f"[make_sampler] {name}={locals()[name]} is out of its range")

    def sampler(scores: Tensor) -> Tensor:
        if temp == 0:
            return scores.argmax(-1)
        scores = scores.float() / temp
        if top_k and top_k < scores.shape[-1]:
            least = topk(scores, int(top_k), -1)[0][:, -1:]
            scores = scores.masked_fill(scores < least, -math.inf)
        if top_p < 1:
            order, _ = topk(scores, scores.shape[-1], -1)
            parts = order.softmax(-1)
            inside = (parts.cumsum(-1) - parts) < top_p  # before it there is less than top_p
            least = order.masked_fill(inside.logical_not(), math.inf).amin(-1, keepdim=True)
            scores = scores.masked_fill(scores < least, -math.inf)
        if min_p > 0:
            least = scores.amax(-1, keepdim=True) + math.log(min_p)
            scores = scores.masked_fill(scores < least, -math.inf)
        noise = -(-(rand_like(scores).clamp(min=1e-20)).log()).log()
        return (scores + noise).argmax(-1)

    return sampler
