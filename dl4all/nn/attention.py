"""Names of ``torch.nn.attention``: PyTorch's ways to compute attention, of which none is chosen here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum

from dl4all.errors import ArgumentError

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(Enum):
    """PyTorch's ways to compute attention, for :func:`sdpa_kernel`."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends: Sequence[SDPBackend] | SDPBackend, set_priority: bool = False) -> Iterator[None]:
    """A context for the ways in which PyTorch may compute attention; it has no effect.

    Args:
        backends: one of PyTorch's ways, or several.
        set_priority: whether they are tried in the order given.

    Raises:
        ArgumentError: `backends` are none of :class:`SDPBackend`.

    Example:
        >>> import dl4all as dl
        >>> q = dl.rand(1, 2, 5, 4)
        >>> with sdpa_kernel([SDPBackend.MATH]):
        ...     tuple(dl.nn.functional.scaled_dot_product_attention(q, q, q).shape)
        (1, 2, 5, 4)
    """
    chosen = [backends] if isinstance(backends, SDPBackend) else backends
    if not all(isinstance(backend, SDPBackend) for backend in chosen):
        raise ArgumentError(f"[sdpa_kernel] expected SDPBackend or a list of them, got {backends!r}")
    yield
