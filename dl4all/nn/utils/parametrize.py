"""Parameters that are computed from others at every use, as in ``torch.nn.utils.parametrize``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from dl4all.autograd import no_grad
from dl4all.errors import ArgumentError, ModuleError
from dl4all.nn.module import Module
from dl4all.nn.modules.container import ModuleDict, ModuleList
from dl4all.nn.parameter import Parameter
from dl4all.tensor.tensor import Tensor

_cache: dict[tuple[int, str], Any] = {}
_cached = 0
"""The number of :func:`cached` blocks that are open."""


@contextlib.contextmanager
def cached() -> Iterator[None]:
    """Compute each parametrized tensor once within the block, rather than at every use.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.utils.parametrizations.weight_norm(dl.nn.Linear(2, 2))
        >>> with dl.nn.utils.parametrize.cached():
        ...     layer.weight is layer.weight
        True
    """
    global _cached
    _cached += 1
    try:
        yield
    finally:
        _cached -= 1
        if not _cached:
            _cache.clear()


class ParametrizationList(ModuleList):
    """The functions that compute a tensor, one after the other, and what they compute it from.

    That is the parameter or buffer ``original``, or ``original0``, ``original1``, ... where the first
    function takes several.

    Args:
        modules: the functions.
        original: the parameter or buffer that they replace.
        unsafe: whether dtype and shape may change.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.utils.parametrizations.weight_norm(dl.nn.Linear(2, 3))
        >>> isinstance(layer.parametrizations.weight, dl.nn.utils.parametrize.ParametrizationList)
        True
    """

    def __init__(self, modules: list[Module], original: Tensor, unsafe: bool = False) -> None:
        super().__init__(modules)
        self.unsafe = unsafe
        new: Any = original
        with (
            no_grad(),
            contextlib.suppress(NotImplementedError),
        ):  # a map without an inverse takes what is there
            for module in reversed(modules):
                if hasattr(module, "right_inverse"):
                    new = module.right_inverse(new)
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            if not unsafe and original.dtype != new.dtype:
                raise ArgumentError(
                    f"[register_parametrization] right_inverse changes {original.dtype} to {new.dtype}; pass "
                    "unsafe=True if it should"
                )
            _keep(self, "original", original, new)
        else:
            for number, part in enumerate(new):
                _keep(self, f"original{number}", original, part)
        if not unsafe:
            made = self()
            if not isinstance(made, Tensor) or made.shape != original.shape or made.dtype != original.dtype:
                got = f"{made.shape} {made.dtype}" if isinstance(made, Tensor) else type(made).__name__
                raise ArgumentError(
                    f"[register_parametrization] expected {original.shape} {original.dtype} from the "
                    f"parametrization, got {got}; pass unsafe=True if it should change"
                )

    @property
    def originals(self) -> list[Tensor]:
        """The tensors from which the tensor is computed."""
        if self.is_tensor:
            return [vars(self)["original"]]
        return [vars(self)[f"original{number}"] for number in range(self.ntensors)]

    @no_grad()
    def right_inverse(self, value: Tensor) -> None:
        """Change the originals so that the functions compute a value.

        Raises:
            ModuleError: a function has no ``right_inverse``.
        """
        new: Any = value
        for module in reversed(list(self)):
            if not hasattr(module, "right_inverse"):
                raise ModuleError(
                    f"[parametrize] {type(module).__name__} cannot take a value: it has no right_inverse"
                )
            new = module.right_inverse(new)
        for original, part in zip(self.originals, [new] if self.is_tensor else new, strict=True):
            original.copy_(part)

    def forward(self) -> Any:
        first, *others = self
        value = first(*self.originals)
        for module in others:
            value = module(value)
        return value


def _keep(place: Module, name: str, original: Tensor, value: Tensor) -> None:
    """Put what a parametrization computes from where a parameter or a buffer has been."""
    if not isinstance(original, Parameter):
        place.register_buffer(name, value)
    elif value is original:
        place.register_parameter(name, original)
    else:
        place.register_parameter(name, Parameter(value.detach(), original.requires_grad))


def register_parametrization(
    module: Any, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Any:
    """Compute a parameter or a buffer of a module by a function at every use.

    Args:
        module: whose class becomes ``Parametrized...``, with a property of the tensor's name.
        tensor_name: the attribute.
        parametrization: ``forward`` computes the tensor; ``right_inverse`` gives what it computes a value
            from, a tensor or several. A second registration computes from the result of the first.
        unsafe: whether dtype and shape may change.

    Returns:
        The module.

    Raises:
        ArgumentError: there is no such tensor, or the function changes its dtype or shape.

    Example:
        >>> import dl4all as dl
        >>> class Symmetric(dl.nn.Module):
        ...     def forward(self, x):
        ...         return x.triu() + x.triu(1).mT
        >>> layer = dl.nn.Linear(3, 3)
        >>> _ = dl.nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
        >>> bool((layer.weight == layer.weight.mT).all()), [name for name, _ in layer.named_parameters()]
        (True, ['bias', 'parametrizations.weight.original'])
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        functions: Any = _functions(module, tensor_name)
        old = getattr(module, tensor_name)
        if not unsafe:
            made = parametrization(old)
            if made.shape != old.shape or made.dtype != old.dtype:
                raise ArgumentError(
                    f"[register_parametrization] expected {old.shape} {old.dtype} from the parametrization, "
                    f"got {made.shape} {made.dtype}; pass unsafe=True if it should change"
                )
        functions.append(parametrization)
        if hasattr(parametrization, "right_inverse"):
            functions.right_inverse(old)
        return module
    if module._kinds.get(tensor_name) not in ("parameter", "buffer"):
        raise ArgumentError(
            f"[register_parametrization] {type(module).__name__} has no parameter or buffer {tensor_name!r}"
        )
    functions = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        module.parametrizations = ModuleDict()
    module.parametrizations[tensor_name] = functions
    _set_class(module)
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module, or a tensor of it, is computed by a parametrization.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.utils.parametrizations.weight_norm(dl.nn.Linear(2, 3))
        >>> parametrize = dl.nn.utils.parametrize
        >>> parametrize.is_parametrized(layer, "weight"), parametrize.is_parametrized(layer, "bias")
        (True, False)
    """
    functions = vars(module).get("parametrizations")
    if not isinstance(functions, ModuleDict):
        return False
    return len(functions) > 0 if tensor_name is None else tensor_name in functions


def remove_parametrizations(module: Any, tensor_name: str, leave_parametrized: bool = True) -> Any:
    """Make a parameter or a buffer of a parametrized tensor again.

    Args:
        module: that has it.
        tensor_name: the attribute.
        leave_parametrized: whether it keeps its present value, rather than that of ``original``.

    Returns:
        The module.

    Raises:
        ArgumentError: the tensor is not parametrized, or has several originals and is to have their value.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.utils.parametrizations.weight_norm(dl.nn.Linear(2, 3))
        >>> layer = dl.nn.utils.parametrize.remove_parametrizations(layer, "weight")
        >>> sorted(name for name, _ in layer.named_parameters())
        ['bias', 'weight']
    """
    if not is_parametrized(module, tensor_name):
        raise ArgumentError(
            f"[remove_parametrizations] {tensor_name!r} of {type(module).__name__} is not parametrized"
        )
    functions = _functions(module, tensor_name)
    original = functions.originals[0]
    if leave_parametrized:
        with no_grad():
            value = getattr(module, tensor_name).clone()
        if functions.is_tensor and value.shape == original.shape:
            with no_grad():  # optimizers hold the parameter
                original.copy_(value)
        else:
            requires_grad = original.requires_grad
            original = Parameter(value, requires_grad) if isinstance(original, Parameter) else value
    elif not functions.is_tensor:
        raise ArgumentError(
            f"[remove_parametrizations] {tensor_name!r} is computed from {functions.ntensors} tensors; use "
            "leave_parametrized=True"
        )
    del module.parametrizations[tensor_name]
    if not module.parametrizations:
        del module.parametrizations
    _set_class(module)
    if isinstance(original, Parameter):
        module.register_parameter(tensor_name, original)
    else:
        module.register_buffer(tensor_name, original)
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class of a module, or that which it had before it was parametrized.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.utils.parametrizations.weight_norm(dl.nn.Linear(2, 3))
        >>> dl.nn.utils.parametrize.type_before_parametrizations(layer) is dl.nn.Linear
        True
    """
    return vars(type(module)).get("unparametrized", type(module)) if is_parametrized(module) else type(module)


def _functions(module: Any, name: str) -> ParametrizationList:
    functions: ParametrizationList = module.parametrizations[name]
    return functions


def _set_class(module: Any) -> None:
    """Give a module a class of its own with a property for each parametrized tensor, or its old one back.

    The class is new every time, as copies of a module have the same class.
    """
    plain = vars(type(module)).get("unparametrized", type(module))
    names = list(vars(module).get("parametrizations", ()))
    if not names:
        module.__class__ = plain
        return
    properties = {name: property(_getter(name), _setter(name)) for name in names}
    module.__class__ = type(
        f"Parametrized{plain.__name__}", (plain,), {"unparametrized": plain, **properties}
    )


def _getter(name: str) -> Any:
    def get(module: Any) -> Any:
        functions = _functions(module, name)
        if not _cached:
            return functions()
        key = id(module), name
        if key not in _cache:
            _cache[key] = functions()
        return _cache[key]

    return get


def _setter(name: str) -> Any:
    def assign(module: Any, value: Tensor) -> None:
        _functions(module, name).right_inverse(value)

    return assign
