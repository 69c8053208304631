"""Handles of registered hooks, for tensors, modules and optimizers alike."""

from __future__ import annotations

import itertools
from typing import Any, TypeVar

H = TypeVar("H")
_keys = itertools.count()


def add_hook(hooks: dict[int, H], hook: H, *, first: bool = False) -> RemovableHandle:
    """Add a hook behind the others, or in front of them.

    >>> hooks = {}
    >>> handles = [add_hook(hooks, name, first=name == "c") for name in "abc"]
    >>> handles[0].remove()
    >>> list(hooks.values())
    ['c', 'b']
    """
    key = next(_keys)
    if first:  # the dict itself stays: replicas share it
        others = dict(hooks)
        hooks.clear()
        hooks[key] = hook
        hooks.update(others)
    else:
        hooks[key] = hook
    return RemovableHandle(hooks, key)


class RemovableHandle:
    """Removes a hook: by ``remove()``, by a call of the handle, or at the end of a ``with`` block.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.Linear(2, 2)
        >>> handle = layer.register_forward_hook(lambda module, inputs, output: output + 1)
        >>> handle.remove()
    """

    def __init__(self, hooks: dict[int, Any], key: int) -> None:
        self._hooks, self.id = hooks, key

    def remove(self) -> None:
        """Remove the hook, if it is still there."""
        self._hooks.pop(self.id, None)

    __call__ = remove

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()
