"""Hooks of optimizers: functions of the user that run before or after a step, saving or loading."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from dl4all.ops.core.removable_handle import RemovableHandle, add_hook

Hooks = dict[int, Callable[..., Any]]

KINDS = (
    "step_pre", "step_post",
    "state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post",
)  # fmt: skip
EVERY_STEP: dict[str, Hooks] = {"step_pre": {}, "step_post": {}}
"""The hooks of all optimizers' steps."""


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` before each step of every optimizer.

    Args:
        hook: may return other ``(args, kwargs)`` for the step.
    """
    return add_hook(EVERY_STEP["step_pre"], hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` after each step of every optimizer."""
    return add_hook(EVERY_STEP["step_post"], hook)


def hooked_step(step: Callable[..., Any]) -> Callable[..., Any]:
    """A method ``step`` that calls the hooks of its optimizer.

    A step within a step, as where a subclass calls its parent's, is a part of it and calls none.
    """

    @functools.wraps(step)
    def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
        own = self.__dict__.get("_hooks")
        if (
            own is None
            or self.__dict__.get("_steps")
            or not (own["step_pre"] or own["step_post"] or EVERY_STEP["step_pre"] or EVERY_STEP["step_post"])
        ):
            return step(self, *args, **kwargs)
        before = (*EVERY_STEP["step_pre"].values(), *own["step_pre"].values())
        after = (*own["step_post"].values(), *EVERY_STEP["step_post"].values())
        self._begin_hooked_step()
        try:
            for hook in before:
                changed = hook(self, args, kwargs)
                if changed is not None:
                    args, kwargs = changed
            result = step(self, *args, **kwargs)
        finally:
            self._steps = False
        for hook in after:
            hook(self, args, kwargs)
        return result

    return hooked
