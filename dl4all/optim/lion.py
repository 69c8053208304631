"""Lion: steps of one size."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.optim.optimizer import Constants, Kernels, NDArray, Optimizer, Params, at_least_0, below_1

LION = Kernels("lion", 1)


class Lion(Optimizer):
    """Each element takes a step of the learning rate along the sign of a mean of gradients.

    Chen et al., arXiv:2302.06675. It keeps half of Adam's state.

    Args:
        params: tensors, or groups of them.
        lr: the learning rate; a third to a tenth of Adam's.
        betas: the weight of the mean in the step, and what is left of it with each step.
        weight_decay: times the learning rate is the share that each step takes off the parameter.
        maximize: climb instead.

    Raises:
        ArgumentError: an option is out of its range.

    Example:
        >>> import dl4all as dl
        >>> w = dl.tensor([1.0, -3.0]).requires_grad_()
        >>> optimizer = dl.optim.Lion([w], lr=0.25)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w.tolist()
        [0.75, -2.75]
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize}
        )

    def _check(self, group: dict[str, Any]) -> None:
        at_least_0("Lion", group, "lr", "weight_decay")
        below_1("Lion", "betas", *group["betas"])

    def _parts(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("exp_avg",)

    def _constants(self, group: dict[str, Any], step: int) -> Constants:
        beta1, beta2 = group["betas"]
        return (
            -1.0 if group["maximize"] else 1.0, 1.0 - group["lr"] * group["weight_decay"],
            float(group["lr"]), float(beta1), 1.0 - beta1, float(beta2), 1.0 - beta2,
        )  # fmt: skip

    def _kernels(self, group: dict[str, Any]) -> Kernels:
        return LION

    def _update(self, group: dict[str, Any], p: NDArray, g: NDArray, parts: list[NDArray], *c: Any) -> None:
        sign, shrink, lr, beta1, fresh1, beta2, fresh2 = c
        g = sign * g
        mean = parts[0]
        p *= shrink
        p -= lr * np.sign(beta1 * mean + fresh1 * g)
        mean *= beta2
        mean += fresh2 * g
