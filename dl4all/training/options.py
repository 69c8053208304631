"""The options of a Trainer, as far as they can be wrong by themselves."""

from __future__ import annotations

from typing import Any

from dl4all.errors import ArgumentError
from dl4all.ops.core.dtypes import BFLOAT16, FLOAT16

PRECISIONS = {"fp32": None, "fp16": FLOAT16, "bf16": BFLOAT16}
"""The dtypes of mixed precision."""


def check_numbers(
    accumulate: int, keep: int, clip_norm: float | None, sync_every: int, distributed: bool
) -> None:
    """
    Raises:
        ArgumentError: a number is out of range.
    """
    if accumulate < 1 or keep < 1 or (clip_norm is not None and clip_norm <= 0):
        raise ArgumentError(
            f"[Trainer] accumulate {accumulate} and keep {keep} must be at least 1, clip_norm "
            f"{clip_norm} more than 0"
        )
    if sync_every < 1 or (sync_every > 1 and not distributed):
        raise ArgumentError(
            f"[Trainer] sync_every must be at least 1, and needs distributed=True, got {sync_every}"
        )


def check_choices(
    scheduler_interval: str,
    precision: str,
    compile: bool,
    devices: Any,
    checkpoint_every: int | None,
    folder: Any,
) -> None:
    """
    Raises:
        ArgumentError: something is none of the choices, or excludes something else.
    """
    if scheduler_interval not in ("epoch", "step"):
        raise ArgumentError(
            f"[Trainer] scheduler_interval must be 'epoch' or 'step', got {scheduler_interval!r}"
        )
    if compile and devices is not None:
        raise ArgumentError("[Trainer] steps are compiled for one device; leave out compile or devices")
    if precision not in PRECISIONS:
        raise ArgumentError(f"[Trainer] precision must be one of {list(PRECISIONS)}, got {precision!r}")
    if checkpoint_every is not None and (checkpoint_every < 1 or folder is None):
        raise ArgumentError(
            f"[Trainer] checkpoint_every {checkpoint_every} must be at least 1, and needs a folder"
        )
