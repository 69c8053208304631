"""Muon."""

from __future__ import annotations

import math
from typing import Any

from dl4all.errors import ArgumentError
from dl4all.optim.optimizer import Optimizer, ParamsT
from dl4all.optim.state.options import check_not_negative, number
from dl4all.tensor.tensor import Tensor

MOST_STEPS = 99
ADJUSTMENTS = (None, "original", "match_rms_adamw")


class Muon(Optimizer):
    """Muon: steps along the mean gradient of a matrix, made nearly orthogonal.

    Jordan, "Muon: An optimizer for hidden layers in neural networks" (2024). For matrices only; give biases
    and embeddings to :class:`AdamW`. The orthogonal matrix comes of Newton and Schulz's iteration, rounded to
    bfloat16 as PyTorch's is, which computes in float32 here.

    Args:
        params: matrices, or dicts that are groups of them.
        lr: the learning rate, a number or a tensor of one element.
        weight_decay: each step shrinks the parameter by this times the learning rate.
        momentum: decay rate of the mean of gradients.
        nesterov: use Nesterov momentum.
        ns_coefficients: the coefficients of the iteration's polynomial of degree 5.
        eps: the least norm by which the mean is divided.
        ns_steps: the number of iterations, at most 99.
        adjust_lr_fn: how the rate depends on the shape: ``"original"``, the default, or
            ``"match_rms_adamw"``, which takes the rates of AdamW.

    Raises:
        ArgumentError: an option is out of its range, or a parameter is no matrix.

    Example:
        >>> import dl4all as dl
        >>> w = dl.tensor([[1.0, 0.0], [0.0, 2.0]]).requires_grad_()
        >>> optimizer = dl.optim.Muon([w], lr=0.5, weight_decay=0)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> [[round(x, 1) for x in row] for row in w.tolist()]
        [[0.4, 0.0], [0.0, 1.7]]
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        options = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, options)

    def _check(self, group: dict[str, Any]) -> None:
        check_not_negative("Muon", group, "lr", "weight_decay", "momentum", "eps")
        if group["adjust_lr_fn"] not in ADJUSTMENTS:
            raise ArgumentError(
                f"[Muon] adjust_lr_fn must be None, 'original' or 'match_rms_adamw', "
                f"got {group['adjust_lr_fn']!r}"
            )
        if len(group["ns_coefficients"]) != 3:
            raise ArgumentError(f"[Muon] expected 3 ns_coefficients, got {group['ns_coefficients']}")
        if not 0 <= group["ns_steps"] <= MOST_STEPS:
            raise ArgumentError(f"[Muon] ns_steps must be from 0 to {MOST_STEPS}, got {group['ns_steps']}")
        for p in group["params"]:
            if p.ndim != 2:
                raise ArgumentError(
                    f"[Muon] expected matrices as parameters, got one of shape {p.shape}; give it to AdamW"
                )

    def _step(self, group: dict[str, Any], _: int) -> None:
        lr, momentum = number(group["lr"]), group["momentum"]
        for p in group["params"]:
            g = p.grad
            if g is None or not p.numel():
                continue
            state = self.state[p]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = g.new_zeros(g.shape)
            mean = state["momentum_buffer"].lerp_(g, 1.0 - momentum)
            update = _orthogonal(g.lerp(mean, momentum) if group["nesterov"] else mean, group)
            p.mul_(1.0 - lr * group["weight_decay"])
            p.sub_(update.to(p.dtype), alpha=lr * _rate_factor(p, group["adjust_lr_fn"]))


def _orthogonal(update: Tensor, group: dict[str, Any]) -> Tensor:
    """A nearly orthogonal matrix of float32 whose singular vectors are those of a matrix."""
    a, b, c = group["ns_coefficients"]
    x = _rounded(update)
    is_tall = x.shape[0] > x.shape[1]
    if is_tall:
        x = x.T
    x = _rounded(x / _rounded(x.norm()).clamp(min=group["eps"]))
    for _ in range(group["ns_steps"]):
        gram = _rounded(x @ x.T)
        polynomial = _rounded(gram.addmm(gram, gram, beta=b, alpha=c))
        x = _rounded(x.addmm(polynomial, x, beta=a))
    return x.T if is_tall else x


def _rounded(x: Tensor) -> Tensor:
    """float32 rounded to the precision of bfloat16."""
    return x.bfloat16().float()


def _rate_factor(p: Tensor, adjustment: str | None) -> float:
    """The factor of the rate that depends on a matrix's shape."""
    rows, columns = p.shape
    if adjustment == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1.0, rows / columns))
