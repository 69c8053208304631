"""``autocast``: a block that computes products in 16 bits, and what leaves their range in float32."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from dl4all.errors import ArgumentError
from dl4all.ops.core import tape
from dl4all.ops.core.autocast import within
from dl4all.ops.core.dtypes import BFLOAT16, FLOAT16, FLOATING, HALVES, checked_dtype
from dl4all.ops.core.tensor_base import DTypeLike, TensorBase
from dl4all.scheduler.device.current import cuda_devices
from dl4all.scheduler.device.current import device as open_device

F = TypeVar("F", bound=Callable[..., Any])

ELSEWHERE = ("cuda", "hpu", "mps", "mtia", "xla", "xpu")
"""Types of PyTorch's devices that are not here: PyTorch warns of them, and computes as without the block."""

_default_dtypes: dict[str, Any] = {"cpu": BFLOAT16}
"""By the type of device; for others it is float16, as for PyTorch's accelerators."""


def _known_type(device_type: str) -> str | None:
    """The type of dl4all's devices that a name means; None where there are no such devices.

    Raises:
        UnknownDeviceError: no device is called that.
    """
    name = str(device_type).partition(":")[0]
    if name == "cuda":
        return next(iter(cuda_devices()), "").partition(":")[0] or None
    if name in ELSEWHERE:
        return None
    return open_device(str(device_type)).name.partition(":")[0]


class autocast(contextlib.ContextDecorator):
    """A block, or a decorator, of mixed precision.

    Within it products of matrices, convolutions and attention take operands of 16 bits, and give such
    results: half the bytes. Losses, norms, powers, logarithms and sums take or give float32. Other ops
    compute in what they are given. Parameters stay float32, and so do their gradients. The backward pass
    belongs outside of the block; float16 needs a :class:`GradScaler`, bfloat16 does not.

    Args:
        device_type: ``"cpu"``, ``"vulkan"``, ``"kompute"``; ``"cuda"`` is the accelerator, and ``"auto"``
            the device that is chosen. Tensors elsewhere stay as they are. For the types of PyTorch's devices
            that are not here, a warning says that nothing changes.
        dtype: float16 or bfloat16; by default what :func:`get_autocast_dtype` gives. Others switch it off,
            with a warning.
        enabled: False leaves an outer block for the time of this one.
        cache_enabled: whether what a parameter is cast to is kept until the outermost block ends.

    Raises:
        UnknownDeviceError: no device has such a type.
        DTypeError: `dtype` is no dtype.

    Example:
        >>> import dl4all as dl
        >>> layer, x = dl.nn.Linear(3, 2, device="cpu"), dl.ones(1, 3, device="cpu")
        >>> with dl.autocast("cpu", dtype=dl.bfloat16):
        ...     (layer(x).dtype, layer(x).softmax(1).dtype, layer.weight.dtype)
        (dtype(bfloat16), dtype('float32'), dtype('float32'))
    """

    def __init__(
        self,
        device_type: str,
        dtype: DTypeLike = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        known = _known_type(device_type)
        if known is None and enabled:
            self._warn(f"there are no {device_type} devices")
        self.device = known or str(device_type)
        self.fast_dtype = (
            get_autocast_dtype(self.device) if dtype is None else checked_dtype("autocast", dtype)
        )
        if enabled and known is not None and self.fast_dtype not in HALVES:
            self._warn(f"{self.fast_dtype} is neither float16 nor bfloat16")
        self._enabled = enabled and known is not None and self.fast_dtype in HALVES
        self._caches = True if cache_enabled is None else cache_enabled
        self._blocks: list[contextlib.AbstractContextManager[None]] = []

    @staticmethod
    def _warn(why: str) -> None:
        warnings.warn(f"[autocast] {why}: it is switched off", UserWarning, stacklevel=3)

    def __enter__(self) -> autocast:
        dtypes = {name: one for name, one in tape.state.autocast.items() if name != self.device}
        if self._enabled:
            dtypes[self.device] = self.fast_dtype
        block = within(dtypes, self._caches)
        block.__enter__()
        self._blocks.append(block)
        return self

    def __exit__(self, *error: Any) -> None:
        self._blocks.pop().__exit__(*error)


def is_autocast_available(device_type: str) -> bool:
    """Whether there are devices of a type, each of which computes in mixed precision.

    Example:
        >>> import dl4all as dl
        >>> dl.amp.is_autocast_available("cpu"), dl.amp.is_autocast_available("mps")
        (True, False)
    """
    return _known_type(device_type) is not None


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether a block of :class:`autocast` is entered for a type of device; by default for any.

    Example:
        >>> import dl4all as dl
        >>> with dl.autocast("cpu"):
        ...     dl.amp.is_autocast_enabled("cpu"), dl.amp.is_autocast_enabled()
        (True, True)

    Example:
        >>> import dl4all as dl
        >>> dl.is_autocast_enabled()
        False
    """
    entered = tape.state.autocast
    return bool(entered) if device_type is None else _known_type(device_type) in entered


def get_autocast_dtype(device_type: str) -> Any:
    """The dtype of blocks that name none: bfloat16 on the CPU, else float16, or what was set.

    Example:
        >>> import dl4all as dl
        >>> dl.get_autocast_dtype("cpu")
        dtype(bfloat16)
    """
    return _default_dtypes.get(_known_type(device_type) or str(device_type), FLOAT16)


def set_autocast_dtype(device_type: str, dtype: DTypeLike) -> None:
    """Set the dtype of blocks that name none, for a type of device and all threads.

    Raises:
        ArgumentError: it is neither float16 nor bfloat16.
        DTypeError: it is no dtype.

    Example:
        >>> import dl4all as dl
        >>> dl.set_autocast_dtype("cpu", dl.bfloat16)
    """
    wanted = checked_dtype("set_autocast_dtype", dtype)
    if wanted not in HALVES:
        raise ArgumentError(f"[set_autocast_dtype] expected float16 or bfloat16, got {wanted}")
    _default_dtypes[_known_type(device_type) or str(device_type)] = wanted


def clear_autocast_cache() -> None:
    """Drop what parameters were cast to in this thread's blocks.

    Example:
        >>> import dl4all as dl
        >>> dl.clear_autocast_cache()
    """
    if tape.state.casts:
        tape.state.casts.clear()


def custom_fwd(
    fwd: F | None = None, *, device_type: str = "auto", cast_inputs: DTypeLike = None
) -> Any:  # with the type of the function, or a decorator
    """Decorate ``forward`` of a :class:`dl4all.autograd.Function` that is used within :class:`autocast`.

    Args:
        fwd: the function, whose first argument is the context.
        device_type: as of the block.
        cast_inputs: what float operands become; the function then computes as without a block. Without it
            the function's ops follow the block.

    Example:
        >>> import dl4all as dl
        >>> class Double(dl.autograd.Function):
        ...     @staticmethod
        ...     @dl.amp.custom_fwd(device_type="cpu", cast_inputs=dl.float32)
        ...     def forward(ctx, x):
        ...         return x * 2
        ...     @staticmethod
        ...     @dl.amp.custom_bwd(device_type="cpu")
        ...     def backward(ctx, grad):
        ...         return grad * 2
        >>> with dl.autocast("cpu"):
        ...     Double.apply(dl.ones(2, device="cpu").bfloat16()).dtype
        dtype('float32')
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        ctx._autocast = tape.state.autocast
        if cast_inputs is None or not is_autocast_enabled(device_type):
            return fwd(ctx, *args, **kwargs)
        dtype = checked_dtype("custom_fwd", cast_inputs)
        ctx._autocast = {}
        with within({}):
            given = {name: _cast(value, dtype) for name, value in kwargs.items()}
            return fwd(ctx, *(_cast(value, dtype) for value in args), **given)

    return forward


def custom_bwd(bwd: F | None = None, *, device_type: str = "auto") -> Any:  # as custom_fwd
    """Decorate ``backward`` to compute in the precision that :func:`custom_fwd` computed in.

    Example:
        >>> import dl4all as dl
        >>> dl.amp.custom_bwd(lambda ctx, grad: grad, device_type="cpu").__name__
        '<lambda>'
    """
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        with within(getattr(ctx, "_autocast", {})):
            return bwd(ctx, *args, **kwargs)

    return backward


def _cast(value: Any, dtype: Any) -> Any:
    return value.to(dtype) if isinstance(value, TensorBase) and value.dtype in FLOATING else value  # type: ignore[attr-defined]
