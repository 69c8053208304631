"""Gradient descent with momentum."""

from __future__ import annotations

from typing import Any

from dl4all.errors import ArgumentError
from dl4all.optim.optimizer import Constants, Kernels, NDArray, Optimizer, Params, at_least_0

PLAIN = Kernels("sgd", 0)
MOMENTUM = Kernels("sgd", 1)


class SGD(Optimizer):
    """Gradient descent: ``p -= lr * g``, where with momentum g is a decaying sum of gradients.

    Sutskever et al., ICML 2013, in PyTorch's form.

    Args:
        params: tensors, or groups of them.
        lr: the learning rate.
        momentum: what is left of the sum with each step.
        dampening: by how much less than a whole gradient is added to the sum.
        weight_decay: times the parameter is added to the gradient.
        nesterov: look one step ahead along the momentum.
        maximize: climb instead.

    Raises:
        ArgumentError: an option is negative, or `nesterov` comes without momentum or with dampening.

    Example:
        >>> import dl4all as dl
        >>> w = dl.tensor([1.0, 2.0]).requires_grad_()
        >>> optimizer = dl.optim.SGD([w], lr=0.5)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w.tolist()
        [0.0, 0.0]
    """

    _counts = False

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        options = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
        }
        super().__init__(params, options)

    def _check(self, group: dict[str, Any]) -> None:
        at_least_0("SGD", group, "lr", "momentum", "weight_decay")
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise ArgumentError("[SGD] nesterov needs a momentum and no dampening")

    def _parts(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] else ()

    def _constants(self, group: dict[str, Any], step: int) -> Constants:
        fresh = 1.0 if step == 1 else 1.0 - group["dampening"]
        return (
            -1.0 if group["maximize"] else 1.0, float(group["weight_decay"]), float(group["lr"]),
            float(group["momentum"]), fresh, int(group["nesterov"]),
        )  # fmt: skip

    def _kernels(self, group: dict[str, Any]) -> Kernels:
        return MOMENTUM if group["momentum"] else PLAIN

    def _update(self, group: dict[str, Any], p: NDArray, g: NDArray, parts: list[NDArray], *c: Any) -> None:
        sign, weight_decay, lr, momentum, fresh, nesterov = c
        g = g if sign == 1 else -g
        if weight_decay:
            g = g + weight_decay * p
        if parts:
            buffer = parts[0]
            buffer *= momentum
            buffer += g if fresh == 1 else fresh * g
            g = g + momentum * buffer if nesterov else buffer
        p -= lr * g
