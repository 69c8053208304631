"""Windows for the analysis of signals: hann, hamming, blackman, bartlett and kaiser."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dl4all.ops.core.limits import check_shape, host_memory, integer, real
from dl4all.ops.core.tensor_base import DTypeLike
from dl4all.tensor.arguments import DeviceLike, float_dtype
from dl4all.tensor.creation import tensor
from dl4all.tensor.tensor import Tensor

__all__ = ["bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"]

Places = npt.NDArray[np.float64]
"""The places of a window's elements, from -1 to 1."""


def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike | None = "auto",
    requires_grad: bool = False,
) -> Tensor:
    """The Hann window: one period of a cosine, from 0 to 1 and back.

    Args:
        window_length: the number of elements.
        periodic: whether the window is one period of a periodic function, as for spectra; otherwise it is
            symmetric, and ends as it begins.
        dtype: a floating dtype; the default one if not given.
        device: where the window lives.
        requires_grad: whether the window is to get a gradient.

    Raises:
        ArgumentError: the length is negative.
        DTypeError: the dtype is not floating.

    Example:
        >>> import dl4all as dl
        >>> dl.hann_window(4).tolist()
        [0.0, 0.5, 1.0, 0.5]
    """
    return _window("hann_window", window_length, periodic, _cosines(0.5, 0.5), dtype, device, requires_grad)


def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike | None = "auto",
    requires_grad: bool = False,
) -> Tensor:
    """The Hamming window, ``alpha + beta cos(pi x)`` for x from -1 to 1; arguments as :func:`hann_window`.

    Example:
        >>> import dl4all as dl
        >>> round(dl.hamming_window(4)[0].item(), 3)
        0.08
    """
    shape = _cosines(real("hamming_window", "alpha", alpha), real("hamming_window", "beta", beta))
    return _window("hamming_window", window_length, periodic, shape, dtype, device, requires_grad)


def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike | None = "auto",
    requires_grad: bool = False,
) -> Tensor:
    """The Blackman window, a sum of two cosines; arguments as for :func:`hann_window`.

    Example:
        >>> import dl4all as dl
        >>> round(dl.blackman_window(4)[1].item(), 3)
        0.34
    """
    shape = _cosines(0.42, 0.5, 0.08)
    return _window("blackman_window", window_length, periodic, shape, dtype, device, requires_grad)


def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike | None = "auto",
    requires_grad: bool = False,
) -> Tensor:
    """The Bartlett window, a triangle; arguments as for :func:`hann_window`.

    Example:
        >>> import dl4all as dl
        >>> dl.bartlett_window(4).tolist()
        [0.0, 0.5, 1.0, 0.5]
    """
    return _window(
        "bartlett_window", window_length, periodic, lambda x: 1 - abs(x), dtype, device, requires_grad
    )


def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike | None = "auto",
    requires_grad: bool = False,
) -> Tensor:
    """The Kaiser window with the shape `beta`, by Bessel functions; arguments as for :func:`hann_window`.

    Example:
        >>> import dl4all as dl
        >>> dl.kaiser_window(4, beta=0.0).tolist()
        [1.0, 1.0, 1.0, 1.0]
    """
    steepness = real("kaiser_window", "beta", beta)

    def shape(x: Places) -> Places:
        result: Places = np.i0(steepness * np.sqrt(np.maximum(1 - x * x, 0))) / np.i0(steepness)
        return result

    return _window("kaiser_window", window_length, periodic, shape, dtype, device, requires_grad)


def _cosines(*factors: float) -> Callable[[Places], Places]:
    """The sum of cosines with 0, 1, 2, ... half periods between the centre and an end."""

    def shape(x: Places) -> Places:
        result: Places = sum(factor * np.cos(np.pi * n * x) for n, factor in enumerate(factors))
        return result

    return shape


def _window(
    name: str,
    length: int,
    periodic: bool,
    shape: Callable[[Places], Places],
    dtype: DTypeLike,
    device: DeviceLike | None,
    requires_grad: bool,
) -> Tensor:
    """The window with a shape that is given as a function of the places.

    Raises:
        ArgumentError, DTypeError, OutOfMemoryError
    """
    check_shape(name, (integer(name, "window_length", length, least=0),))
    intervals = length if periodic else length - 1
    with host_memory(name):
        places = 2 * np.arange(length) / intervals - 1 if intervals > 0 and length > 1 else np.zeros(length)
        elements = shape(places).astype(float_dtype(dtype))
    window = tensor(elements, device=device)
    return window.requires_grad_() if requires_grad else window
