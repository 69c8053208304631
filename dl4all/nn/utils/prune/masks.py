"""Weights of which some are kept at zero, as in ``torch.nn.utils.prune``.

A pruned parameter ``weight`` becomes the parameter ``weight_orig`` and the buffer ``weight_mask``;
``module.weight`` is their product, computed before each call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dl4all.autograd.grad_mode import no_grad
from dl4all.errors import ArgumentError, ShapeError
from dl4all.nn.hooks import computing
from dl4all.nn.module import Module
from dl4all.nn.parameter import Parameter
from dl4all.ops.core.removable_handle import RemovableHandle
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.random import rand
from dl4all.tensor.tensor import Tensor


class Pruning:
    """Computes a pruned weight before each call of its module.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.utils.prune.random_unstructured(dl.nn.Linear(2, 3), "weight", 2)
        >>> (hook,) = layer._forward_pre_hooks.values()
        >>> isinstance(hook.function, dl.nn.utils.prune.Pruning)
        True
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.handle: RemovableHandle | None = None

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(
            module, self.name, getattr(module, f"{self.name}_orig") * getattr(module, f"{self.name}_mask")
        )


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Keep the elements of a parameter at zero where a mask is 0.

    Args:
        module: whose parameter it is.
        name: the parameter's.
        mask: 0 or 1 for each element; what is pruned already stays so.

    Returns:
        The module.

    Raises:
        ShapeError: the mask has another shape.
        ArgumentError: there is no such parameter.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.Linear(2, 1)
        >>> _ = dl.nn.utils.prune.custom_from_mask(layer, "weight", dl.tensor([[1.0, 0.0]]))
        >>> (layer.weight == 0).tolist(), [name for name, _ in layer.named_parameters()]
        ([[False, True]], ['bias', 'weight_orig'])
    """
    return _pruned(module, name, mask.detach().numpy() != 0)


def identity(module: Module, name: str) -> Module:
    """Prune nothing: only the names change; returns the module.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.utils.prune.identity(dl.nn.Linear(2, 3), "weight")
        >>> dl.nn.utils.prune.is_pruned(layer), (layer.weight_mask == 1).all().item()
        (True, True)
    """
    return _pruned(module, name, np.ones(_values(module, name).shape, bool))


def random_unstructured(module: Module, name: str, amount: int | float) -> Module:
    """Prune random elements.

    Args:
        module, name: the parameter.
        amount: how many of those that are left: a number, or a fraction from 0.0 to 1.0.

    Returns:
        The module.

    Raises:
        ArgumentError: the amount is out of range.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.utils.prune.random_unstructured(dl.nn.Linear(2, 3), "weight", amount=2)
        >>> (layer.weight == 0).sum().item()
        2
    """
    return _by_scores(module, name, amount, rand(_values(module, name).shape, device="cpu").numpy())


def l1_unstructured(
    module: Module, name: str, amount: int | float, importance_scores: Tensor | None = None
) -> Module:
    """Prune the elements of the smallest magnitude, or of the lowest scores.

    Args:
        module, name: the parameter.
        amount: how many of those that are left: a number, or a fraction from 0.0 to 1.0.
        importance_scores: of each element, in place of its magnitude.

    Returns:
        The module.

    Raises:
        ArgumentError: the amount is out of range.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.Linear(10, 1)
        >>> _ = dl.nn.utils.prune.l1_unstructured(layer, "weight", amount=0.3)
        >>> int((layer.weight == 0).sum())
        3
    """
    scores = _values(module, name) if importance_scores is None else importance_scores.detach().numpy()
    return _by_scores(module, name, amount, np.abs(scores) if importance_scores is None else scores)


def random_structured(module: Module, name: str, amount: int | float, dim: int) -> Module:
    """Prune all elements at random indices along an axis; arguments as for :func:`ln_structured`.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.utils.prune.random_structured(dl.nn.Linear(2, 4), "weight", amount=1, dim=0)
        >>> (layer.weight == 0).all(1).sum().item()
        1
    """
    count = _values(module, name).shape[dim]
    return _by_slices(module, name, amount, dim, rand(count, device="cpu").numpy())


def ln_structured(
    module: Module,
    name: str,
    amount: int | float,
    n: float,
    dim: int,
    importance_scores: Tensor | None = None,
) -> Module:
    """Prune all elements at the indices along an axis whose norm is smallest.

    Args:
        module, name: the parameter.
        amount: how many indices: a number, or a fraction from 0.0 to 1.0.
        n: the exponent of the norm.
        dim: the axis.
        importance_scores: of each element, in place of its value.

    Returns:
        The module.

    Raises:
        ArgumentError: the amount is out of range.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.utils.prune.ln_structured(dl.nn.Linear(2, 4), "weight", amount=2, n=2, dim=0)
        >>> (layer.weight == 0).all(1).sum().item()
        2
    """
    scores = _values(module, name) if importance_scores is None else importance_scores.detach().numpy()
    rows = np.moveaxis(scores, dim, 0).reshape(scores.shape[dim], -1)
    return _by_slices(module, name, amount, dim, np.linalg.norm(rows, n, 1))


def semi_structured(module: Module, name: str, n: int = 2, m: int = 4, dim: int = 1) -> Module:
    """Prune all but the `n` largest of each `m` neighbours along an axis (Mishra et al., arXiv:2104.08378).

    Args:
        module, name: the parameter.
        n, m: how many of how many stay; where some of them are pruned already, those stay so.
        dim: the axis; for a weight of :class:`~dl4all.nn.Linear` and of convolutions 1, that of the inputs.

    Returns:
        The module.

    Raises:
        ArgumentError: it is not 0 <= n <= m, or the axis does not split into groups of `m`.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.utils.prune.semi_structured(dl.nn.Linear(8, 3), "weight")
        >>> (layer.weight == 0).reshape(3, 2, 4).sum(2).tolist()
        [[2, 2], [2, 2], [2, 2]]
    """
    values = np.moveaxis(_values(module, name), dim, -1)
    if not 0 <= n <= m or m < 1 or values.shape[-1] % m:
        raise ArgumentError(
            f"[semi_structured] expected 0 <= n <= m and an axis that splits into groups of m, got {n}, {m} "
            f"and {values.shape[-1]} elements"
        )
    groups = np.abs(values).reshape(*values.shape[:-1], -1, m)
    order = np.argsort(-groups, -1, kind="stable")
    kept = np.zeros(groups.shape, bool)
    np.put_along_axis(kept, order[..., :n], True, -1)
    return _pruned(module, name, np.moveaxis(kept.reshape(values.shape), -1, dim))


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: Any,
    importance_scores: dict[tuple[Module, str], Tensor] | None = None,
    *,
    amount: int | float,
) -> None:
    """Prune elements of several parameters as if they were one.

    Args:
        parameters: modules and names.
        pruning_method: :class:`L1Unstructured` or :class:`RandomUnstructured`.
        importance_scores: of the elements of each, in place of their values.
        amount: how many elements: a number, or a fraction from 0.0 to 1.0.

    Raises:
        ArgumentError: the amount is out of range, or there is no such method.

    Example:
        >>> import dl4all as dl
        >>> small, large = dl.nn.Linear(2, 3), dl.nn.Linear(4, 3)
        >>> prune = dl.nn.utils.prune
        >>> weights = [(small, "weight"), (large, "weight")]
        >>> prune.global_unstructured(weights, prune.L1Unstructured, amount=0.5)
        >>> ((small.weight == 0).sum() + (large.weight == 0).sum()).item()
        9
    """
    chosen = list(parameters)
    given = importance_scores or {}
    scores = [given[pair].detach().numpy() if pair in given else np.abs(_values(*pair)) for pair in chosen]
    if pruning_method is RandomUnstructured:
        scores = [rand(each.shape, device="cpu").numpy() for each in scores]
    elif pruning_method is not L1Unstructured:
        raise ArgumentError(
            f"[global_unstructured] expected L1Unstructured or RandomUnstructured, got {pruning_method!r}"
        )
    left = np.concatenate([_mask(*pair).reshape(-1) for pair in chosen])
    kept = _lowest_pruned(np.concatenate([each.reshape(-1) for each in scores]), left, amount)
    start = 0
    for pair, each in zip(chosen, scores, strict=True):
        _pruned(*pair, kept[start : start + each.size].reshape(each.shape))
        start += each.size


class L1Unstructured:
    """Names the method of :func:`l1_unstructured` for :func:`global_unstructured`.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.Linear(2, 3)
        >>> prune = dl.nn.utils.prune
        >>> prune.global_unstructured([(layer, "weight")], prune.L1Unstructured, amount=0.5)
        >>> (layer.weight == 0).sum().item()
        3
    """

    apply = staticmethod(l1_unstructured)


class RandomUnstructured:
    """Names the method of :func:`random_unstructured` for :func:`global_unstructured`.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.Linear(2, 3)
        >>> prune = dl.nn.utils.prune
        >>> prune.global_unstructured([(layer, "weight")], prune.RandomUnstructured, amount=2)
        >>> (layer.weight == 0).sum().item()
        2
    """

    apply = staticmethod(random_unstructured)


def is_pruned(module: Module) -> bool:
    """Whether a module, or one below it, has a pruned parameter.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.utils.prune.is_pruned(dl.nn.Linear(2, 3))
        False
    """
    return any(pruned_names(part) for part in module.modules())


def sparsity(module: Module, name: str) -> float:
    """The share of a parameter's elements that are pruned, from 0.0 to 1.0.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.utils.prune.l1_unstructured(dl.nn.Linear(4, 3), "weight", amount=3)
        >>> dl.nn.utils.prune.sparsity(layer, "weight")
        0.25
    """
    return 1 - float(_mask(module, name).mean())


def pruned_names(module: Module) -> list[str]:
    """The names of a module's own pruned parameters.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.utils.prune.identity(dl.nn.Linear(2, 3), "weight")
        >>> dl.nn.utils.prune.pruned_names(layer)
        ['weight']
    """
    return [
        hook.function.name
        for hook in module._forward_pre_hooks.values()
        if isinstance(hook.function, Pruning)
    ]


def recompute(module: Module, name: str) -> None:
    """Compute a pruned parameter from its elements and its mask, as each call of its module does.

    Raises:
        ArgumentError: it is not pruned.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.utils.prune.identity(dl.nn.Linear(2, 1), "weight")
        >>> with dl.no_grad():
        ...     _ = layer.weight_orig.fill_(3.0)
        >>> dl.nn.utils.prune.recompute(layer, "weight")
        >>> layer.weight.tolist()
        [[3.0, 3.0]]
    """
    _pruning_of(module, name)(module, ())


def _pruning_of(module: Module, name: str) -> Pruning:
    """
    Raises:
        ArgumentError: a parameter is not pruned.
    """
    pruning = computing(module, Pruning, name)
    if pruning is None:
        raise ArgumentError(f"[prune] {name!r} of {type(module).__name__} is not pruned")
    return pruning


def remove(module: Module, name: str) -> Module:
    """Make a plain parameter of a pruned one, with the zeros in it; returns the module.

    Raises:
        ArgumentError: it is not pruned.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.utils.prune.random_unstructured(dl.nn.Linear(2, 3), "weight", amount=2)
        >>> layer = dl.nn.utils.prune.remove(layer, "weight")
        >>> sorted(name for name, _ in layer.named_parameters()), (layer.weight == 0).sum().item()
        (['bias', 'weight'], 2)
    """
    pruning = _pruning_of(module, name)
    original, mask = getattr(module, f"{name}_orig"), getattr(module, f"{name}_mask")
    with no_grad():
        original.mul_(mask)
    for part in (name, f"{name}_orig", f"{name}_mask"):
        delattr(module, part)
    module.register_parameter(name, original)
    if pruning.handle is not None:
        pruning.handle.remove()
    return module


def _by_scores(module: Module, name: str, amount: int | float, scores: Any) -> Module:
    kept = _lowest_pruned(scores.reshape(-1), _mask(module, name).reshape(-1), amount)
    return _pruned(module, name, kept.reshape(scores.shape))


def _by_slices(module: Module, name: str, amount: int | float, dim: int, scores: Any) -> Module:
    mask = np.moveaxis(_mask(module, name), dim, 0).copy()
    left = mask.reshape(len(mask), -1).any(1)
    mask[~_lowest_pruned(scores, left, amount)] = False
    return _pruned(module, name, np.moveaxis(mask, 0, dim))


def _lowest_pruned(scores: Any, left: Any, amount: int | float) -> Any:
    """The mask of what stays of the rest, when the lowest scores are pruned.

    Raises:
        ArgumentError: the amount is out of range.
    """
    count = int(left.sum())
    whole = isinstance(amount, int) and not isinstance(amount, bool)
    if amount < 0 or amount > (count if whole else 1):
        raise ArgumentError(
            f"[prune] expected a fraction from 0.0 to 1.0, or a number up to {count}, got {amount}"
        )
    number = int(amount) if whole else round(amount * count)
    kept = left.copy()
    order = np.argsort(np.where(left, scores, np.inf), kind="stable")
    kept[order[:number]] = False
    return kept


def _pruned(module: Module, name: str, kept: Any) -> Module:
    mask = _mask(module, name) & kept if kept.shape == _values(module, name).shape else None
    if mask is None:
        raise ShapeError(f"[prune] expected a mask of {_values(module, name).shape}, got {kept.shape}")
    pruning = computing(module, Pruning, name)
    original: Tensor = getattr(module, name if pruning is None else f"{name}_orig")
    made = from_numpy(np.ascontiguousarray(mask).astype(original.dtype), original.device)
    if pruning is None:
        pruning = Pruning(name)
        delattr(module, name)
        # the same object, which an optimizer may know
        parameter = original if isinstance(original, Parameter) else Parameter(original.detach())
        module.register_parameter(f"{name}_orig", parameter)
        pruning.handle = module.register_forward_pre_hook(pruning)
    module.register_buffer(f"{name}_mask", made)
    pruning(module, ())
    return module


def _values(module: Module, name: str) -> Any:
    """The parameter's elements, with what is pruned as zeros.

    Raises:
        ArgumentError: there is none.
    """
    value = getattr(module, name, None)
    if not isinstance(value, Tensor):
        raise ArgumentError(f"[prune] {type(module).__name__} has no parameter {name!r}")
    return value.detach().numpy()


def _mask(module: Module, name: str) -> Any:
    """Which elements are left."""
    values = _values(module, name)
    if computing(module, Pruning, name) is None:
        return np.ones(values.shape, bool)
    return getattr(module, f"{name}_mask").detach().numpy() != 0
