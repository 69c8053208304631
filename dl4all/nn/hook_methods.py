"""Methods of modules that add hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dl4all.nn import hooks
from dl4all.nn.hooks import Hook, Hooks
from dl4all.ops.core.removable_handle import RemovableHandle


class HookMethods:
    """Methods that add hooks to a module; a part of :class:`dl4all.nn.Module`."""

    _call_hooks: Hooks
    _state_hooks: Hooks

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Call ``hook(module, inputs, output)`` after ``forward``; a result other than None is the output.

        Args:
            hook: the function.
            prepend: call it before the module's other hooks.
            with_kwargs: call ``hook(module, inputs, kwargs, output)``.
            always_call: call it after an exception, too, with None for the output.

        Returns:
            A handle whose ``remove()`` removes the hook.

        Example:
            >>> import dl4all as dl
            >>> layer, shapes = dl.nn.Linear(2, 3), []
            >>> handle = layer.register_forward_hook(lambda module, inputs, y: shapes.append(y.shape))
            >>> _ = layer(dl.ones(5, 2, device="cpu"))
            >>> handle.remove()
            >>> shapes
            [(5, 3)]
        """
        made = Hook("forward", hook, with_kwargs, always_call)
        return hooks.register(self._call_hooks, made, prepend=prepend)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, inputs)`` before ``forward``; a result other than None replaces the inputs.

        Args:
            hook: the function.
            prepend: call it before the module's other hooks.
            with_kwargs: call ``hook(module, inputs, kwargs)``, which returns None or ``(inputs, kwargs)``.

        Returns:
            A handle whose ``remove()`` removes the hook.
        """
        made = Hook("forward_pre", hook, with_kwargs)
        return hooks.register(self._call_hooks, made, prepend=prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` when the gradients of the inputs are computed.

        Both are tuples, with None for what has no gradient. A result other than None replaces `grad_input`.

        Returns:
            A handle whose ``remove()`` removes the hook.

        Example:
            >>> import dl4all as dl
            >>> layer, norms = dl.nn.ReLU(), []
            >>> _ = layer.register_full_backward_hook(lambda m, gi, go: norms.append(gi[0].tolist()))
            >>> layer(dl.tensor([-1.0, 2.0], requires_grad=True)).sum().backward()
            >>> norms
            [[0.0, 1.0]]
        """
        return hooks.register(self._call_hooks, Hook("backward", hook), prepend=prepend)

    register_backward_hook = register_full_backward_hook

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, grad_output)`` before the module's gradients are computed.

        A result other than None replaces `grad_output`.

        Returns:
            A handle whose ``remove()`` removes the hook.
        """
        return hooks.register(self._call_hooks, Hook("backward_pre", hook), prepend=prepend)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, prefix, keep_vars)`` before ``state_dict`` collects this module's tensors."""
        return hooks.register(self._state_hooks, Hook("state_dict_pre", hook))

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata)`` after ``state_dict``, to change it."""
        return hooks.register(self._state_hooks, Hook("state_dict", hook))

    _register_state_dict_hook = register_state_dict_post_hook

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
        error_msgs)`` before ``load_state_dict``; it may change the dict and add errors."""
        return hooks.register(self._state_hooks, Hook("load_state_dict_pre", hook, with_kwargs=True))

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        return hooks.register(self._state_hooks, Hook("load_state_dict_pre", hook, with_kwargs=with_module))

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, incompatible_keys)`` after ``load_state_dict``; it may change the two lists."""
        return hooks.register(self._state_hooks, Hook("load_state_dict_post", hook))
