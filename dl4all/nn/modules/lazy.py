"""Layers that take the number of their inputs from their first call."""

from __future__ import annotations

from typing import Any, ClassVar

from dl4all.autograd import no_grad
from dl4all.errors import ShapeError
from dl4all.nn.module import Module
from dl4all.nn.modules.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from dl4all.nn.modules.linear import Linear
from dl4all.nn.modules.normalization import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from dl4all.nn.parameter import Parameter, UninitializedBuffer, UninitializedParameter, is_lazy
from dl4all.tensor.tensor import Tensor


class LazyModuleMixin(Module):
    """Makes a layer without its first argument, and becomes it when the first input shows its value.

    A subclass names the class that it becomes, its first argument, and where an input shows it.
    """

    cls_to_become: ClassVar[Any]
    first: ClassVar[str]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        least = kwargs.get("groups", 1) if self.first == "in_channels" else 1
        made = self.cls_to_become(least, *args, **kwargs)
        vars(self).update(vars(made), **{self.first: 0})
        self._lazy_arguments = args, kwargs
        for name, tensor in made._own_state(""):
            options: dict[str, Any] = {"dtype": tensor.dtype, "device": tensor.device}
            if isinstance(tensor, Parameter):
                setattr(self, name, UninitializedParameter(tensor.requires_grad, **options))
            elif tensor.ndim:  # the counter of batches has its shape
                vars(self)[name] = UninitializedBuffer(**options)

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or a buffer has no shape yet."""
        return any(is_lazy(tensor) for _, tensor in self._own_state(""))

    def inputs_of(self, input: Tensor) -> int:
        """The kind of the first argument, by an input."""
        return input.shape[1]

    @no_grad()
    def initialize_parameters(self, input: Tensor) -> None:
        """Find the shapes, make the initial values, and become the layer."""
        size = self.inputs_of(input)
        args, kwargs = self._lazy_arguments
        made = self.cls_to_become(size, *args, **kwargs)
        for name, tensor in made._own_state(""):
            own: Any = getattr(self, name)
            if is_lazy(own):
                own.materialize(tensor.shape)
                own.copy_(tensor.to(own.device, own.dtype))
        vars(self)[self.first] = size
        del self._lazy_arguments
        self.__class__ = self.cls_to_become

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Any:
        self.initialize_parameters(input)
        return self.forward(input, *args, **kwargs)  # of the class that it has become


class LazyLinear(LazyModuleMixin, Linear):
    """:class:`Linear` whose `in_features` is the size of the last axis of its first input.

    Args:
        out_features, bias, device, dtype: as for :class:`Linear`.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.LazyLinear(3)
        >>> layer(dl.ones(5, 2, device="cpu")).shape, layer.weight.shape
        ((5, 3), (3, 2))
    """

    cls_to_become = Linear
    first = "in_features"

    def inputs_of(self, input: Tensor) -> int:
        return input.shape[-1]


class _LazyConv(LazyModuleMixin):
    """A convolution whose `in_channels` is that of its first input."""

    first = "in_channels"
    axes: ClassVar[int]

    def inputs_of(self, input: Tensor) -> int:
        if input.ndim not in (self.axes + 1, self.axes + 2):
            raise ShapeError(
                f"[{type(self).__name__}] expected an input of {self.axes + 1} or {self.axes + 2} axes, got "
                f"{input.shape}"
            )
        return input.shape[-self.axes - 1]


class LazyConv1d(_LazyConv, Conv1d):
    """:class:`Conv1d` whose `in_channels` is that of its first input; the other arguments are the same.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.LazyConv1d(6, 3)
        >>> layer(dl.rand(2, 4, 12)).shape, layer.in_channels
        ((2, 6, 10), 4)
    """

    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """:class:`Conv2d` whose `in_channels` is that of its first input; the other arguments are the same.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.LazyConv2d(4, kernel_size=3)
        >>> layer(dl.ones(1, 2, 5, 5, device="cpu")).shape, type(layer).__name__
        ((1, 4, 3, 3), 'Conv2d')
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """:class:`Conv3d` whose `in_channels` is that of its first input; the other arguments are the same.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.LazyConv3d(6, 3)
        >>> layer(dl.rand(1, 4, 6, 8, 8)).shape, layer.in_channels
        ((1, 6, 4, 6, 6), 4)
    """

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConv, ConvTranspose1d):
    """:class:`ConvTranspose1d` whose `in_channels` is that of its first input.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.LazyConvTranspose1d(6, 2, stride=2)
        >>> layer(dl.rand(2, 4, 12)).shape, layer.in_channels
        ((2, 6, 24), 4)
    """

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConv, ConvTranspose2d):
    """:class:`ConvTranspose2d` whose `in_channels` is that of its first input.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.LazyConvTranspose2d(6, 2, stride=2)
        >>> layer(dl.rand(2, 4, 12, 10)).shape, layer.in_channels
        ((2, 6, 24, 20), 4)
    """

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConv, ConvTranspose3d):
    """:class:`ConvTranspose3d` whose `in_channels` is that of its first input.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.LazyConvTranspose3d(6, 2, stride=2)
        >>> layer(dl.rand(1, 4, 6, 8, 8)).shape, layer.in_channels
        ((1, 6, 12, 16, 16), 4)
    """

    cls_to_become = ConvTranspose3d


class _LazyNorm(LazyModuleMixin):
    """A normalization whose `num_features` is that of its first input."""

    first = "num_features"


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """:class:`BatchNorm1d` whose `num_features` is that of its first input.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.LazyBatchNorm1d()
        >>> layer(dl.rand(2, 4, 12)).shape, layer.num_features
        ((2, 4, 12), 4)
    """

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """:class:`BatchNorm2d` whose `num_features` is that of its first input.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.LazyBatchNorm2d()
        >>> layer(dl.rand(2, 4, 12, 10)).shape, layer.num_features
        ((2, 4, 12, 10), 4)
    """

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """:class:`BatchNorm3d` whose `num_features` is that of its first input.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.LazyBatchNorm3d()
        >>> layer(dl.rand(1, 4, 6, 8, 8)).shape, layer.num_features
        ((1, 4, 6, 8, 8), 4)
    """

    cls_to_become = BatchNorm3d


class _LazyInstanceNorm(_LazyNorm):
    """An instance normalization, whose inputs may be without the axis of samples."""

    def inputs_of(self, input: Tensor) -> int:
        return input.shape[0] if input.ndim == self.cls_to_become.ranks[0] else input.shape[1]


class LazyInstanceNorm1d(_LazyInstanceNorm, InstanceNorm1d):
    """:class:`InstanceNorm1d` whose `num_features` is that of its first input.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.LazyInstanceNorm1d()
        >>> layer(dl.rand(2, 4, 12)).shape, layer.num_features
        ((2, 4, 12), 4)
    """

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyInstanceNorm, InstanceNorm2d):
    """:class:`InstanceNorm2d` whose `num_features` is that of its first input.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.LazyInstanceNorm2d()
        >>> layer(dl.rand(2, 4, 12, 10)).shape, layer.num_features
        ((2, 4, 12, 10), 4)
    """

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyInstanceNorm, InstanceNorm3d):
    """:class:`InstanceNorm3d` whose `num_features` is that of its first input.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.LazyInstanceNorm3d()
        >>> layer(dl.rand(1, 4, 6, 8, 8)).shape, layer.num_features
        ((1, 4, 6, 8, 8), 4)
    """

    cls_to_become = InstanceNorm3d
