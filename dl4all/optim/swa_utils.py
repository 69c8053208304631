"""Stochastic weight averaging: averages of networks, the schedule for them, and their batch normalization."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from dl4all.autograd import no_grad
from dl4all.errors import ArgumentError
from dl4all.nn.module import Module
from dl4all.nn.modules.normalization import BatchNorm
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.kernels.multi_tensor import MultiTensor
from dl4all.optim.ema import move_averages
from dl4all.optim.lr_scheduler.base import LRScheduler, per_group
from dl4all.optim.optimizer import Optimizer
from dl4all.optim.state.options import number
from dl4all.tensor.arguments import DeviceLike
from dl4all.tensor.creation import tensor
from dl4all.tensor.tensor import Tensor

Average = Callable[[Any, Any, Any], Any]
"""Of an average, a parameter and the number of networks in the average, or of lists of these."""

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


class AveragedModel(Module):
    """A copy of a network whose parameters are the average of those that the network had.

    Izmailov et al., arXiv:1803.05407.

    Args:
        model: the network.
        device: of the average; by default where the network is.
        avg_fn: gives the new average of an average, a parameter and the number of networks so far.
        multi_avg_fn: changes a list of averages in place, of one device and dtype, given a list of parameters
            and the number of networks. Without either all networks count alike.
        use_buffers: average the buffers too; otherwise they are the network's last ones.

    Raises:
        ArgumentError: both functions are given.

    Example:
        >>> import dl4all as dl
        >>> net = dl.nn.Linear(1, 1, bias=False)
        >>> average = dl.optim.swa_utils.AveragedModel(net)
        >>> for value in (1.0, 2.0, 6.0):
        ...     _ = dl.nn.init.constant_(net.weight, value)
        ...     average.update_parameters(net)
        >>> average.module.weight.tolist(), average.n_averaged.item()
        ([[3.0]], 3)
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: DeviceLike | None = None,
        avg_fn: Average | None = None,
        multi_avg_fn: Average | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ArgumentError("[AveragedModel] pass avg_fn or multi_avg_fn, not both")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, device="cpu" if device is None else device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers
        self._plans = MultiTensor()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take the network's parameters into the average.

        Args:
            model: a network as the one that was copied.
        """
        with no_grad():
            count = int(self.n_averaged.item())
            pairs = [
                (mean.detach(), p.detach().to(mean.device))
                for mean, p in zip(self._averaged(self.module), self._averaged(model), strict=True)
            ]
            if count == 0:
                for mean, p in pairs:
                    mean.copy_(p)
            elif self.avg_fn is not None:
                for mean, p in pairs:
                    mean.copy_(self.avg_fn(mean, p, self.n_averaged.to(mean.device)))
            else:
                self._update_groups(pairs, count)
            if not self.use_buffers:
                for own, other in zip(self.module.buffers(), model.buffers(), strict=True):
                    own.copy_(other.to(own.device))
            self.n_averaged.add_(1)

    def _averaged(self, model: Module) -> Iterable[Tensor]:
        if self.use_buffers:
            return itertools.chain(model.parameters(), model.buffers())
        return model.parameters()

    def _update_groups(self, pairs: Sequence[tuple[Tensor, Tensor]], count: int) -> None:
        """Update averages of the same device and dtype together."""
        groups: dict[Any, list[tuple[Tensor, Tensor]]] = {}
        for mean, p in pairs:
            groups.setdefault((mean.device, mean.dtype.name), []).append((mean, p))
        for (device, _), group in groups.items():
            means, params = [mean for mean, _ in group], [p for _, p in group]
            if self.multi_avg_fn is not None:
                self.multi_avg_fn(means, params, self.n_averaged.to(device))
            else:
                _move_lists(means, params, 1.0 / (count + 1), self._plans)


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """The function ``avg_fn`` of an exponential moving average.

    Raises:
        ArgumentError: the decay is not from 0 to 1.

    Example:
        >>> import dl4all as dl
        >>> net = dl.nn.Linear(2, 3)
        >>> average = dl.optim.swa_utils.get_ema_avg_fn(0.9)
        >>> averaged = dl.optim.swa_utils.AveragedModel(net, avg_fn=average)
        >>> averaged.update_parameters(net)
        >>> averaged(dl.rand(4, 2)).shape
        (4, 3)
    """
    _check_decay(decay)

    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        with no_grad():
            return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Average:
    """The function ``multi_avg_fn`` of an exponential moving average: one launch for all parameters.

    Raises:
        ArgumentError: the decay is not from 0 to 1.

    Example:
        >>> import dl4all as dl
        >>> net = dl.nn.Linear(2, 3)
        >>> average = dl.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        >>> averaged = dl.optim.swa_utils.AveragedModel(net, multi_avg_fn=average)
        >>> averaged.update_parameters(net)
        >>> averaged(dl.rand(4, 2)).shape
        (4, 3)
    """
    _check_decay(decay)
    plans = MultiTensor()

    def ema_update(ema_param_list: Sequence[Tensor], current_param_list: Sequence[Tensor], _: Any) -> None:
        _move_lists(ema_param_list, current_param_list, 1.0 - decay, plans)

    return ema_update


def get_swa_avg_fn() -> Average:
    """The function ``avg_fn`` of an average in which all networks count alike.

    Example:
        >>> import dl4all as dl
        >>> net = dl.nn.Linear(2, 3)
        >>> average = dl.optim.swa_utils.get_swa_avg_fn()
        >>> averaged = dl.optim.swa_utils.AveragedModel(net, avg_fn=average)
        >>> averaged.update_parameters(net)
        >>> averaged(dl.rand(4, 2)).shape
        (4, 3)
    """

    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        with no_grad():
            updated: Tensor = averaged_param + (current_param - averaged_param) / (num_averaged + 1)
            return updated

    return swa_update


def get_swa_multi_avg_fn() -> Average:
    """The function ``multi_avg_fn`` of an average in which all networks count alike.

    Example:
        >>> import dl4all as dl
        >>> net = dl.nn.Linear(2, 3)
        >>> average = dl.optim.swa_utils.get_swa_multi_avg_fn()
        >>> averaged = dl.optim.swa_utils.AveragedModel(net, multi_avg_fn=average)
        >>> averaged.update_parameters(net)
        >>> averaged(dl.rand(4, 2)).shape
        (4, 3)
    """
    plans = MultiTensor()

    def swa_update(
        averaged_param_list: Sequence[Tensor], current_param_list: Sequence[Tensor], num_averaged: Any
    ) -> None:
        _move_lists(averaged_param_list, current_param_list, 1.0 / (number(num_averaged) + 1.0), plans)

    return swa_update


def _check_decay(decay: float) -> None:
    if not 0 <= decay <= 1:
        raise ArgumentError(f"[get_ema_avg_fn] expected a decay from 0 to 1, got {decay}")


def _move_lists(
    averages: Sequence[Tensor], params: Sequence[Tensor], weight: float, plans: MultiTensor
) -> None:
    pairs = list(zip(params, averages, strict=True))
    with no_grad():
        move_averages([(p, mean) for p, mean in pairs if kind_of(mean.dtype) == "f"], weight, plans)
        for p, mean in pairs:
            if kind_of(mean.dtype) != "f":
                mean.copy_(mean + (p - mean) * weight)


def update_bn(loader: Iterable[Any], model: Module, device: DeviceLike | None = None) -> None:
    """Compute the running statistics of a network's batch normalization anew, by one pass over data.

    Args:
        loader: gives batches: tensors, or tuples whose first entry is the network's input.
        model: the network, such as an :class:`AveragedModel`.
        device: to which batches are brought before.

    Example:
        >>> import dl4all as dl
        >>> norm = dl.nn.BatchNorm1d(1)
        >>> dl.optim.swa_utils.update_bn([dl.tensor([[1.0], [3.0]]), dl.tensor([[5.0], [7.0]])], norm)
        >>> norm.running_mean.tolist()
        [4.0]
    """
    layers = [layer for layer in model.modules() if isinstance(layer, BatchNorm)]
    if not layers:
        return
    was_training, momenta = model.training, [layer.momentum for layer in layers]
    with no_grad():
        for layer in layers:
            if layer.num_batches_tracked is not None:
                layer.running_mean.fill_(0.0)
                layer.running_var.fill_(1.0)
                layer.num_batches_tracked.fill_(0)
            layer.momentum = None
        model.train()
        try:
            for batch in loader:
                x = batch[0] if isinstance(batch, (list, tuple)) else batch
                model(x if device is None else x.to(device))
        finally:
            for layer, momentum in zip(layers, momenta, strict=True):
                layer.momentum = momentum
            model.train(was_training)


class SWALR(LRScheduler):
    """Anneals the rate to a constant one, at which the networks that are averaged are trained.

    Args:
        optimizer: the optimizer whose rates are set.
        swa_lr: the last rate, or one for each group.
        anneal_epochs: the number of epochs until it is reached.
        anneal_strategy: ``"cos"`` or ``"linear"``, the shape of the curve.
        last_epoch: as in :class:`~dl4all.optim.lr_scheduler.LRScheduler`.

    Raises:
        ArgumentError: an option is out of its range.

    Example:
        >>> import dl4all as dl
        >>> optimizer = dl.optim.SGD([dl.zeros(1)], lr=1.0)
        >>> scheduler = dl.optim.swa_utils.SWALR(optimizer, 0.5, anneal_epochs=2, anneal_strategy="linear")
        >>> rates = []
        >>> for epoch in range(4):
        ...     rates += scheduler.get_last_lr()
        ...     scheduler.step()
        >>> rates
        [1.0, 0.75, 0.5, 0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | Sequence[float],
        anneal_epochs: int = 10,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        last_epoch: int = -1,
    ) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(f"[SWALR] anneal_strategy must be 'cos' or 'linear', got {anneal_strategy!r}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ArgumentError(f"[SWALR] anneal_epochs must be a count from 0 on, got {anneal_epochs}")
        rates = per_group("SWALR", "of swa_lr", swa_lr, optimizer)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["swa_lr"] = rate
        self.anneal_epochs, self._anneal_strategy = anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_epoch)

    def _next_rate(self, lr: float, base: float, group: int) -> float:
        step, last = self._step_count - 1, self.optimizer.param_groups[group]["swa_lr"]
        step = max(1, step) if self.anneal_epochs == 0 else step
        before, share = self._share(step - 1), self._share(step)
        start = last if before == 1 else (lr - before * last) / (1 - before)
        return float(last * share + start * (1 - share))

    def _share(self, step: int) -> float:
        """The part of the way to the last rate that is gone after a step."""
        share = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return share if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * share)) / 2
