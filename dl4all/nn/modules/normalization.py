"""Normalization layers."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.nn import functional, init
from dl4all.nn.module import Module
from dl4all.nn.parameter import Parameter
from dl4all.ops import fill_
from dl4all.ops.core.strides import sizes
from dl4all.ops.core.tensor_base import DTypeLike
from dl4all.ops.core.untracked import Untracked
from dl4all.scheduler import listeners
from dl4all.tensor.arguments import DeviceLike
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor


class _Counter(Untracked):
    """Counts in a tensor of one int without waiting for its device: it remembers the value written last."""

    def __init__(self) -> None:
        self._written: tuple[Any, int, int] | None = None  # storage, its version, value

    def __reduce__(self) -> tuple[type[_Counter], tuple[()]]:
        return _Counter, ()  # a copy starts without a remembered value

    def next(self, tensor: Tensor) -> int:
        """Add 1; returns the value, which is no longer true in replays of a compiled graph."""
        if listeners.captured():
            self._captured(tensor, [])
            return self._value(tensor)
        value = self._value(tensor) + 1
        fill_(tensor, value)
        self._written = tensor.storage, tensor.storage.version, value
        return value

    def next_share(self, tensor: Tensor) -> float:
        """Add 1; returns 1 over the value, which compiled graphs compute anew for each of their calls."""
        if not listeners.captured():
            return 1 / self.next(tensor)
        [share] = self._captured(tensor, [1 / (self._value(tensor) + 1)])
        return share

    def _captured(self, tensor: Tensor, shares: list[float]) -> Sequence[float]:
        with listeners.suspended():
            self.next(tensor)
        return listeners.vary("batch norm", shares, partial(self._count_replay, tensor, len(shares)))

    def _count_replay(self, tensor: Tensor, shares: int) -> list[float]:
        """Add 1, in memory when somebody reads it: a dispatch for it would take longer than all else here."""
        storage, value = tensor.storage, self._value(tensor) + 1
        storage.version += 1
        self._written = storage, storage.version, value
        # Not the storage itself: it would keep itself alive.
        storage.pending = partial(self._write, weakref.ref(storage), tensor.dtype, tensor.device)
        return [1 / value] * shares

    def _write(self, reference: weakref.ref[Any], dtype: Any, device: Any) -> None:
        storage, written = reference(), self._written
        assert storage is not None  # who asks for its contents holds it
        storage.pending = None
        if written is not None and written[:2] == (storage, storage.version):
            with listeners.suspended():
                fill_(Tensor(storage, (), dtype, device), written[2])
            self._written = storage, storage.version, written[2]

    def _value(self, tensor: Tensor) -> int:
        last = self._written
        if last is not None and last[:2] == (tensor.storage, tensor.storage.version):
            return last[2]
        with listeners.suspended():
            return int(tensor.item())


class _ChannelNorm(Module):
    """Base class of batch and instance normalization: parameters and statistics of each channel."""

    ranks: ClassVar[tuple[int, ...]]  # how many axes an input may have
    weight: Any  # of these five each is a tensor, or None
    bias: Any
    running_mean: Any
    running_var: Any
    num_batches_tracked: Any

    def __init__(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        device: DeviceLike | None,
        dtype: DTypeLike,
        bias: bool,
    ) -> None:
        super().__init__()
        if num_features < 0:
            raise ArgumentError(f"[{type(self).__name__}] cannot have {num_features} channels")
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self.weight = Parameter(init.ones((num_features,))) if affine else None
        self.bias = Parameter(init.zeros((num_features,))) if affine and bias else None
        self.running_mean = self.running_var = self.num_batches_tracked = None
        if track_running_stats:
            self.register_buffer("running_mean", init.zeros((num_features,)))
            self.register_buffer("running_var", init.ones((num_features,)))
            self.register_buffer("num_batches_tracked", from_numpy(np.zeros((), np.int64)))
        self._place(device, dtype)

    def _check(self, x: Tensor) -> None:
        if x.ndim not in self.ranks:
            ranks = " or ".join(map(str, self.ranks))
            raise ShapeError(f"[{type(self).__name__}] expected an input of {ranks} axes, got {x.shape}")

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class BatchNorm(_ChannelNorm):
    """Batch normalization, whatever the number of axes."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)
        self._batches = _Counter()

    def forward(self, input: Tensor) -> Tensor:
        self._check(input)
        batch_statistics = self.training or self.running_mean is None
        tracking = self.training and self.num_batches_tracked is not None
        momentum = self._next_momentum() if tracking else 0.0
        mean, var = (
            (self.running_mean, self.running_var) if tracking or not batch_statistics else (None, None)
        )
        return functional.batch_norm(
            input, mean, var, self.weight, self.bias, batch_statistics, momentum, self.eps
        )

    def _next_momentum(self) -> float:
        """Count a batch; returns its share in the running statistics."""
        if self.momentum is None:
            return self._batches.next_share(self.num_batches_tracked)
        self._batches.next(self.num_batches_tracked)
        return self.momentum


class BatchNorm1d(BatchNorm):
    """Batch normalization of vectors or sequences (Ioffe and Szegedy, arXiv:1502.03167).

    Training uses the mean and the variance of the batch, and moves the running statistics towards them;
    after ``eval()`` the running statistics are used. Without `track_running_stats` the batch's always are.

    Args:
        num_features: how many channels there are.
        eps: added to the variance, to keep the square root away from 0.
        momentum: the weight of a batch in the running statistics; None for the average over all batches.
        affine: whether there are a weight and a bias for each channel.
        track_running_stats: whether there are running statistics.
        device, dtype: of the parameters and statistics; by default the default device and float32.
        bias: False leaves the bias out.

    Shape:
        (N, num_features) or (N, num_features, L), the same out.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.BatchNorm1d(1)(dl.tensor([[1.0], [5.0]], device="cpu")).detach().numpy().round(3).tolist()
        [[-1.0], [1.0]]
    """

    ranks = (2, 3)


class BatchNorm2d(BatchNorm):
    """Batch normalization of images, see :class:`BatchNorm1d`.

    Shape:
        (N, num_features, H, W), the same out.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.BatchNorm2d(4)(dl.rand(2, 4, 12, 10)).shape
        (2, 4, 12, 10)
    """

    ranks = (4,)


class BatchNorm3d(BatchNorm):
    """Batch normalization of volumes, see :class:`BatchNorm1d`.

    Shape:
        (N, num_features, D, H, W), the same out.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.BatchNorm3d(4)(dl.rand(1, 4, 6, 8, 8)).shape
        (1, 4, 6, 8, 8)
    """

    ranks = (5,)


class SyncBatchNorm(BatchNorm):
    """Batch normalization over the samples of all processes: here there is one, with all of them.

    Args:
        num_features, eps, momentum, affine, track_running_stats: as for :class:`BatchNorm1d`.
        process_group: None.
        device, dtype, bias: as for :class:`BatchNorm1d`, too.

    Shape:
        (N, num_features, ...), the same out.

    Raises:
        ArgumentError: there is a process group; several devices normalize together by ``dl.parallel``.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.SyncBatchNorm(3)(dl.rand(4, 3, 5)).shape
        (4, 3, 5)
    """

    ranks = (2, 3, 4, 5)

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
        *,
        bias: bool = True,
    ) -> None:
        _check_group(process_group)
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """The module with such layers in place of its batch normalization; they share its tensors.

        Example:
            >>> import dl4all as dl
            >>> net = dl.nn.Sequential(dl.nn.Conv2d(1, 2, 1), dl.nn.BatchNorm2d(2))
            >>> type(dl.nn.SyncBatchNorm.convert_sync_batchnorm(net)[1]).__name__
            'SyncBatchNorm'
        """
        _check_group(process_group)
        if isinstance(module, BatchNorm):
            made = cls(module.num_features, module.eps, module.momentum, False, False)
            vars(made).update(vars(module))
            return made
        for name, child in list(module.named_children()):
            setattr(module, name, cls.convert_sync_batchnorm(child, process_group))
        return module


def _check_group(process_group: Any) -> None:
    if process_group is not None:
        raise ArgumentError(
            "[SyncBatchNorm] there are no process groups; several devices normalize together by "
            "dl.parallel(model, devices)"
        )


_BatchNorm, _NormBase = BatchNorm, _ChannelNorm  # PyTorch's names, which isinstance is asked with


class _InstanceNorm(_ChannelNorm):
    """Instance normalization, whatever the number of axes."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Tensor) -> Tensor:
        self._check(input)
        if input.ndim == self.ranks[0]:
            return self._normalize(input.unsqueeze(0)).squeeze(0)
        return self._normalize(input)

    def _normalize(self, x: Tensor) -> Tensor:
        batch_statistics = self.training or not self.track_running_stats
        return functional.instance_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            batch_statistics,
            self.momentum or 0.0,
            self.eps,
        )


class InstanceNorm1d(_InstanceNorm):
    """Instance normalization: each channel of each sequence by its own mean and variance.

    Args:
        num_features: how many channels there are.
        eps: added to the variance, to keep the square root away from 0.
        momentum: the weight of a batch in the running statistics.
        affine: whether there are a weight and a bias for each channel.
        track_running_stats: whether there are running statistics, which are used after ``eval()``.
        device, dtype: of the parameters and statistics; by default the default device and float32.
        bias: False leaves the bias out.

    Shape:
        (N, num_features, L) or (num_features, L), the same out.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.InstanceNorm1d(4)(dl.rand(2, 4, 12)).shape
        (2, 4, 12)
    """

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Instance normalization: each channel of each image by its own statistics, see :class:`InstanceNorm1d`.

    Shape:
        (N, num_features, H, W) or without N, the same out.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.InstanceNorm2d(4)(dl.rand(2, 4, 12, 10)).shape
        (2, 4, 12, 10)
    """

    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance normalization: each channel of each volume by its own statistics, see :class:`InstanceNorm1d`.

    Shape:
        (N, num_features, D, H, W) or without N, the same out.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.InstanceNorm3d(4)(dl.rand(1, 4, 6, 8, 8)).shape
        (1, 4, 6, 8, 8)
    """

    ranks = (4, 5)


class GroupNorm(Module):
    """Group normalization: groups of channels of each sample by their own mean and variance.

    Args:
        num_groups: into how many groups the channels are split.
        num_channels: how many channels there are.
        eps: added to the variance, to keep the square root away from 0.
        affine: whether there are a weight and a bias for each channel.
        device, dtype: of the parameters and statistics; by default the default device and float32.
        bias: False leaves the bias out.

    Shape:
        (N, num_channels, ...), the same out.

    Raises:
        ArgumentError: the channels do not divide evenly into the groups.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.GroupNorm(2, 4)(dl.rand(2, 4, 6)).shape
        (2, 4, 6)
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ArgumentError(f"[GroupNorm] {num_channels} channels do not split into {num_groups} groups")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self.weight = Parameter(init.ones((num_channels,))) if affine else None
        self.bias = Parameter(init.zeros((num_channels,))) if affine and bias else None
        self._place(device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LayerNorm(Module):
    """Layer normalization: the last axes together by their mean and variance.

    Args:
        normalized_shape: the sizes of these axes, or the size of the last axis.
        eps: added to the variance, to keep the square root away from 0.
        elementwise_affine: whether there are a weight and a bias for each element.
        device, dtype: of the parameters and statistics; by default the default device and float32.
        bias: False leaves the bias out.

    Shape:
        (..., *normalized_shape), the same out.

    Example:
        >>> import dl4all as dl
        >>> [round(v, 2) for v in dl.nn.LayerNorm(2)(dl.tensor([1.0, 3.0])).tolist()]
        [-1.0, 1.0]
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _sizes(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.weight = Parameter(init.ones(self.normalized_shape)) if elementwise_affine else None
        self.bias = Parameter(init.zeros(self.normalized_shape)) if elementwise_affine and bias else None
        self._place(device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """RMS normalization: the last axes together by the root of the mean of their squares.

    Args:
        normalized_shape: the sizes of these axes, or the size of the last axis.
        eps: added to the mean of the squares; None for the distance from 1 to the dtype's next number.
        elementwise_affine: whether there is a weight for each element.
        device, dtype: of the weight; by default the default device and float32.

    Shape:
        (..., *normalized_shape), the same out.

    Example:
        >>> import dl4all as dl
        >>> [round(v, 4) for v in dl.nn.RMSNorm(2)(dl.tensor([3.0, 4.0])).tolist()]
        [0.8485, 1.1314]
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _sizes(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.weight = Parameter(init.ones(self.normalized_shape)) if elementwise_affine else None
        self._place(device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class LocalResponseNorm(Module):
    """:func:`~dl4all.nn.functional.local_response_norm` as a layer.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.LocalResponseNorm(2)(dl.rand(1, 4, 3, 3)).shape
        (1, 4, 3, 3)
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return functional.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


def _sizes(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    return sizes("normalized_shape", (normalized_shape,))
