"""Nested lists, tuples and dicts as flat lists of what is in them; the names of ``torch.utils._pytree``."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from dl4all.errors import ArgumentError

__all__ = [
    "TreeSpec",
    "tree_flatten",
    "tree_leaves",
    "tree_map",
    "tree_map_",
    "tree_map_only",
    "tree_unflatten",
]

PyTree = Any


@dataclass(frozen=True)
class TreeSpec:
    """The structure of a nest, by which it is put together again from its leaves.

    Args:
        type: the class of the container; None for a leaf, which is anything else.
        context: what the container has beside its parts, such as a dict's keys.
        children: the structure of each part.
    """

    type: Any = None
    context: Any = None
    children: tuple[TreeSpec, ...] = field(default=())

    @property
    def num_leaves(self) -> int:
        return 1 if self.type is None else sum(child.num_leaves for child in self.children)

    def is_leaf(self) -> bool:
        return self.type is None


def _parts(tree: Any) -> tuple[Any, list[Any]] | None:
    """The context of a container and its parts; None for a leaf."""
    if isinstance(tree, tuple) and (type(tree) is tuple or hasattr(tree, "_fields")):
        return None, list(tree)
    if type(tree) is list:
        return None, list(tree)
    if type(tree) is deque:
        return tree.maxlen, list(tree)
    if type(tree) in (dict, OrderedDict):
        return list(tree), list(tree.values())
    if type(tree) is defaultdict:
        return (tree.default_factory, list(tree)), list(tree.values())
    return None


def _container(kind: Any, context: Any, parts: list[Any]) -> Any:
    if hasattr(kind, "_fields"):
        return kind(*parts)
    if kind is deque:
        return deque(parts, maxlen=context)
    if kind is defaultdict:
        return defaultdict(context[0], zip(context[1], parts, strict=True))
    if kind in (dict, OrderedDict):
        return kind(zip(context, parts, strict=True))
    return kind(parts)


def tree_flatten(tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of a nest of lists, tuples, named tuples, dicts and deques, and its structure.

    Args:
        tree: the nest, or anything else, which is a leaf.
        is_leaf: whether a part is to be taken as it is.

    Returns:
        The leaves from left to right, and what :func:`tree_unflatten` takes.

    Example:
        >>> leaves, spec = tree_flatten({"a": [1, 2], "b": (3,)})
        >>> leaves, tree_unflatten([2 * x for x in leaves], spec)
        ([1, 2, 3], {'a': [2, 4], 'b': (6,)})
    """
    found = None if is_leaf is not None and is_leaf(tree) else _parts(tree)
    if found is None:
        return [tree], TreeSpec()
    context, parts = found
    flat = [tree_flatten(part, is_leaf) for part in parts]
    return [leaf for leaves, _ in flat for leaf in leaves], TreeSpec(
        type(tree), context, tuple(spec for _, spec in flat)
    )


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> PyTree:
    """The nest that :func:`tree_flatten` has taken apart, of other leaves.

    Raises:
        ArgumentError: there are more or fewer of them than the nest has.
    """
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ArgumentError(f"[tree_unflatten] expected {treespec.num_leaves} leaves, got {len(leaves)}")
    remaining = iter(leaves)

    def build(spec: TreeSpec) -> Any:
        if spec.is_leaf():
            return next(remaining)
        return _container(spec.type, spec.context, [build(child) for child in spec.children])

    return build(treespec)


def tree_leaves(tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None) -> list[Any]:
    """The leaves of a nest, from left to right.

    Example:
        >>> tree_leaves([1, (2, {"a": 3})])
        [1, 2, 3]
    """
    return tree_flatten(tree, is_leaf)[0]


def tree_map(
    func: Callable[..., Any],
    tree: PyTree,
    *rests: PyTree,
    is_leaf: Callable[[PyTree], bool] | None = None,
) -> PyTree:
    """The nest of what a function makes of each leaf, and of the parts of other nests in its place.

    Raises:
        ArgumentError: another nest is put together differently.

    Example:
        >>> tree_map(lambda x, y: x + y, {"a": 1, "b": [2]}, {"a": 10, "b": [20]})
        {'a': 11, 'b': [22]}
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves, *(_along(rest, spec) for rest in rests)]
    return tree_unflatten([func(*row) for row in zip(*columns, strict=True)], spec)


def _along(tree: Any, spec: TreeSpec) -> list[Any]:
    """The parts of a nest in the places of another one's leaves."""
    if spec.is_leaf():
        return [tree]
    found = _parts(tree)
    if found is None or type(tree) is not spec.type or len(found[1]) != len(spec.children):
        raise ArgumentError(
            f"[tree_map] expected a {spec.type.__name__} of {len(spec.children)}, got {tree!r}"
        )
    parts = [tree[key] for key in spec.context] if spec.type in (dict, OrderedDict) else found[1]
    return [leaf for part, child in zip(parts, spec.children, strict=True) for leaf in _along(part, child)]


def tree_map_(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Any = None) -> PyTree:
    """Call a function with each leaf, as :func:`tree_map` does; returns the nest that was given."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(
    type_or_types: Any, func: Callable[[Any], Any], tree: PyTree, is_leaf: Any = None
) -> PyTree:
    """The nest with a function applied to the leaves of some classes, or that a function picks.

    Example:
        >>> tree_map_only(int, lambda x: -x, [1, "a", 2.0])
        [-1, 'a', 2.0]
    """
    is_class = isinstance(type_or_types, (type, tuple))

    def chosen(leaf: Any) -> bool:
        return isinstance(leaf, type_or_types) if is_class else type_or_types(leaf)

    return tree_map(lambda leaf: func(leaf) if chosen(leaf) else leaf, tree, is_leaf=is_leaf)
