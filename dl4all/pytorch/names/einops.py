"""Layers of einops; its functions, such as ``einops.rearrange``, take this library's tensors as they are.

The layers of ``einops.layers.torch`` are modules of PyTorch. These have the same parameters and state, and
are modules of this library. They need the package ``einops``.

>>> import dl4all as dl
>>> from dl4all.einops import Rearrange
>>> tuple(Rearrange("b (h w) c -> b c h w", h=2)(dl.rand(1, 6, 5)).shape)
(1, 5, 2, 3)
"""

from __future__ import annotations

from typing import Any

from einops.layers import RearrangeMixin, ReduceMixin
from einops.layers._einmix import _EinmixMixin

from dl4all import nn
from dl4all.ops import einsum
from dl4all.tensor.creation import empty
from dl4all.tensor.tensor import Tensor

__all__ = ["EinMix", "Rearrange", "Reduce"]


class Rearrange(RearrangeMixin, nn.Module):
    """The layer of ``einops.rearrange``.

    Args:
        pattern: the axes before and after, such as ``"b c h w -> b (h w) c"``.
        axes_lengths: the sizes of axes that the input does not tell.

    Shape:
        As the pattern says; any dtype.

    Raises:
        EinopsError: the pattern is none, or does not fit the input.

    Example:
        >>> import dl4all as dl
        >>> tuple(Rearrange("b c h w -> b (h w) c")(dl.rand(2, 3, 4, 5)).shape)
        (2, 20, 3)
    """

    def forward(self, input: Tensor) -> Tensor:
        result: Tensor = self._apply_recipe(input)  # type: ignore[no-untyped-call]
        return result


class Reduce(ReduceMixin, nn.Module):
    """The layer of ``einops.reduce``.

    Args:
        pattern: the axes before and after; those that are missing after are reduced.
        reduction: ``"mean"``, ``"sum"``, ``"max"``, ``"min"``, ``"prod"``, ``"any"`` or ``"all"``.
        axes_lengths: the sizes of axes that the input does not tell.

    Shape:
        As the pattern says; any dtype, floats for a mean.

    Raises:
        EinopsError: the pattern is none, or does not fit the input.

    Example:
        >>> import dl4all as dl
        >>> tuple(Reduce("b c (h 2) (w 2) -> b c h w", "max")(dl.rand(2, 3, 4, 6)).shape)
        (2, 3, 2, 3)
    """

    def forward(self, input: Tensor) -> Tensor:
        result: Tensor = self._apply_recipe(input)  # type: ignore[no-untyped-call]
        return result


class EinMix(_EinmixMixin, nn.Module):
    """A linear layer along any axes: rearranges, multiplies with weights by ``einsum`` and adds a bias.

    Args:
        pattern: the axes before and after, such as ``"t b c -> b t (head c_out)"``.
        weight_shape: the axes of the weights, such as ``"c head c_out"``.
        bias_shape: the axes of the bias; None for no bias.
        axes_lengths: the sizes of the weights' axes, and of those that the input does not tell.

    Shape:
        As the pattern says; float32.

    Raises:
        EinopsError: an axis has no size, or the patterns do not fit each other or the input.

    Example:
        >>> import dl4all as dl
        >>> mix = EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=3, d=5)
        >>> tuple(mix(dl.rand(2, 7, 3)).shape)
        (2, 7, 5)
    """

    einsum_pattern: str

    def _create_parameters(
        self, weight_shape: list[int], weight_bound: float, bias_shape: list[int] | None, bias_bound: float
    ) -> None:
        self.weight = nn.Parameter(empty(*weight_shape).uniform_(-weight_bound, weight_bound))
        self.bias = (
            None if bias_shape is None else nn.Parameter(empty(*bias_shape).uniform_(-bias_bound, bias_bound))
        )

    def _create_rearrange_layers(
        self,
        pre_reshape_pattern: str | None,
        pre_reshape_lengths: dict[str, Any] | None,
        post_reshape_pattern: str | None,
        post_reshape_lengths: dict[str, Any] | None,
    ) -> None:
        self.pre_rearrange = _rearrangement(pre_reshape_pattern, pre_reshape_lengths)
        self.post_rearrange = _rearrangement(post_reshape_pattern, post_reshape_lengths)

    def forward(self, input: Tensor) -> Tensor:
        if self.pre_rearrange is not None:
            input = self.pre_rearrange(input)
        result: Tensor = einsum(self.einsum_pattern, input, self.weight)
        if self.bias is not None:
            result = result + self.bias
        return result if self.post_rearrange is None else self.post_rearrange(result)


def _rearrangement(pattern: str | None, lengths: dict[str, Any] | None) -> Rearrange | None:
    return None if pattern is None else Rearrange(pattern, **(lengths or {}))
