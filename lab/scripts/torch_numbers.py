"""PyTorch's random functions, made to give the numbers that dl4all's generator gives.

dl4all computes random numbers by a counter, the same ones on every device and in NumPy. A script that runs
with dl4all draws them as it is; with these functions in place of PyTorch's own, it draws the same ones there,
in weights, dropout, noise, samples and the order of the data. Differences that are left are then those of the
arithmetic, and of any call that draws other numbers than PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
import torch
from torch.utils.data import DataLoader

import dl4all as dl
from dl4all.data.sampler import Key, RandomSampler, drawn_key

GENERATORS: dict[int, tuple[torch.Generator, dl.Generator]] = {}
"""Ours for each of PyTorch's, by its id; PyTorch's is kept so that no other one gets the id."""

SHUFFLED: WeakSet[DataLoader[Any]] = WeakSet()
"""Loaders with ``shuffle=True``."""
KEYS: WeakKeyDictionary[torch.utils.data.RandomSampler, Key] = WeakKeyDictionary()
"""What the next order of such a loader's sampler follows from."""


def draw_from_dl4all(nudge: int | None = None) -> None:
    """Replace PyTorch's random functions, for this process.

    Args:
        nudge: a seed by which random floats are moved by one unit in the last place, up or down. Beside a run
            without, this shows what rounding alone makes of the losses.
    """
    fills = _Fills(nudge)
    for name in ("uniform_", "normal_", "bernoulli_", "exponential_"):
        if hasattr(dl.Tensor, name):
            setattr(torch.Tensor, name, fills.method(name))
    torch.nn.init.trunc_normal_ = fills.function(dl.nn.init.trunc_normal_)
    torch.nn.init.orthogonal_ = fills.function(dl.nn.init.orthogonal_)
    replacements: dict[str, Callable[..., Any]] = {
        "manual_seed": _manual_seed,
        "rand": _factory("uniform_"),
        "randn": _factory("normal_"),
        "rand_like": _like("uniform_"),
        "randn_like": _like("normal_"),
        "normal": _normal,
        "randint": _randint,
        "randperm": _randperm,
        "bernoulli": _bernoulli,
        "multinomial": _multinomial,
    }
    for name, function in replacements.items():
        setattr(torch, name, function)
        if name in ("bernoulli", "multinomial"):
            setattr(torch.Tensor, name, function)
    for name in ("dropout", "dropout1d", "dropout2d", "dropout3d"):
        setattr(torch.nn.functional, name, _dropout(name))
    torch.nn.functional.scaled_dot_product_attention = _attention  # type: ignore[assignment]
    torch.utils.data.RandomSampler.__iter__ = _random_order  # type: ignore[method-assign]
    DataLoader.__init__ = _without_workers  # type: ignore[method-assign, assignment]
    DataLoader.__iter__ = _epoch  # type: ignore[method-assign]
    torch.utils.data.random_split = _random_split


class _Fills:
    """Fills of PyTorch's tensors with dl4all's numbers."""

    def __init__(self, nudge: int | None) -> None:
        self.nudged = nudge is not None
        self.rng = np.random.default_rng(nudge)

    def method(self, name: str) -> Callable[..., torch.Tensor]:
        """A method of ``torch.Tensor`` that does what the method of ``dl4all.Tensor`` does."""

        def fill(tensor: torch.Tensor, *args: Any, generator: Any = None, **kwargs: Any) -> torch.Tensor:
            numbers = _empty(tensor)
            getattr(numbers, name)(*map(_ours, args), generator=_generator(generator), **kwargs)
            return self._filled(tensor, numbers)

        return fill

    def function(self, function: Callable[..., Any]) -> Callable[..., torch.Tensor]:
        """A function of ``torch.nn.init`` that does what the one of ``dl4all.nn.init`` does."""

        def fill(tensor: torch.Tensor, *args: Any, generator: Any = None, **kwargs: Any) -> torch.Tensor:
            numbers = function(_empty(tensor), *args, **kwargs, generator=_generator(generator))
            return self._filled(tensor, numbers)

        return fill

    def _filled(self, tensor: torch.Tensor, numbers: dl.Tensor) -> torch.Tensor:
        values = numbers.numpy()
        if self.nudged:
            limits = self.rng.choice(np.array([-np.inf, np.inf], values.dtype), values.shape)
            values = np.nextafter(values, limits)
        with torch.no_grad():
            return tensor.copy_(torch.from_numpy(values))


def _empty(tensor: torch.Tensor) -> dl.Tensor:
    return dl.zeros(*tensor.shape, dtype=str(tensor.dtype).removeprefix("torch."), device="cpu")


def _ours(value: Any) -> Any:
    return dl.from_numpy(value.detach().numpy().copy()) if isinstance(value, torch.Tensor) else value


def _generator(generator: torch.Generator | None) -> dl.Generator | None:
    """dl4all's generator with the seed of one of PyTorch's."""
    if generator is None:
        return None
    if id(generator) not in GENERATORS:
        GENERATORS[id(generator)] = generator, dl.Generator(generator.initial_seed() % 2**64)
    return GENERATORS[id(generator)][1]


def _manual_seed(seed: int) -> torch.Generator:
    dl.manual_seed(seed)
    return torch.default_generator


def _factory(fill: str) -> Callable[..., torch.Tensor]:
    def factory(
        *size: Any, generator: Any = None, requires_grad: bool = False, **kwargs: Any
    ) -> torch.Tensor:
        tensor = torch.empty(*size, **kwargs)
        filled: torch.Tensor = getattr(tensor, fill)(generator=generator)
        return filled.requires_grad_(requires_grad)

    return factory


def _like(fill: str) -> Callable[..., torch.Tensor]:
    def like(input: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        requires_grad = kwargs.pop("requires_grad", False)
        tensor = torch.empty_like(input, **kwargs)
        filled: torch.Tensor = getattr(tensor.detach(), fill)()
        return filled.requires_grad_(requires_grad)

    return like


def _normal(
    mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, generator: Any = None, **kwargs: Any
) -> torch.Tensor:
    if size is not None:
        return torch.empty(size, **kwargs).normal_(mean, std, generator=generator)
    scale = torch.as_tensor(std)  # of the shape to which both broadcast
    unscaled = torch.empty_like(scale + mean).detach().normal_(generator=generator)
    result: torch.Tensor = unscaled * std + mean
    return result


def _randint(*args: Any, generator: Any = None, dtype: Any = None, **kwargs: Any) -> torch.Tensor:
    kwargs = {name: kwargs[name] for name in ("low", "high", "size") if name in kwargs}
    limits = [value for value in args if isinstance(value, int)]
    size = kwargs.pop("size", None) or next(value for value in args if not isinstance(value, int))
    low = kwargs.get("low", limits[0] if len(limits) == 2 else 0)
    high = kwargs.get("high", limits[-1] if limits else None)
    numbers = dl.randint(low, high, tuple(size), generator=_generator(generator), device="cpu")
    return torch.from_numpy(numbers.numpy()).to(dtype or torch.int64)


def _randperm(n: int, *, generator: Any = None, dtype: Any = None, **kwargs: Any) -> torch.Tensor:
    order = dl.randperm(n, generator=_generator(generator), device="cpu")
    return torch.from_numpy(order.numpy()).to(dtype or torch.int64)


def _bernoulli(input: torch.Tensor, p: float | None = None, *, generator: Any = None) -> torch.Tensor:
    return torch.empty_like(input).detach().bernoulli_(input if p is None else p, generator=generator)


def _multinomial(
    input: torch.Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None
) -> torch.Tensor:
    indices = dl.multinomial(_ours(input), num_samples, replacement, generator=_generator(generator))
    return torch.from_numpy(indices.numpy())


def _dropout(name: str) -> Callable[..., torch.Tensor]:
    def dropout(
        input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> torch.Tensor:
        if not training or p == 0:
            return input
        kept = getattr(dl.nn.functional, name)(_empty(input) + 1, p, True)
        scale = torch.from_numpy(kept.numpy())
        return input.mul_(scale) if inplace else input * scale

    return dropout


_own_attention = torch.nn.functional.scaled_dot_product_attention


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **kwargs: Any,
) -> torch.Tensor:
    """Attention whose weights are dropped by dl4all's numbers."""
    if not dropout_p:
        return _own_attention(query, key, value, attn_mask, dropout_p, is_causal, **kwargs)
    lead = np.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    ones = dl.ones(*lead, query.shape[-2], key.shape[-2], device="cpu")
    kept = torch.from_numpy(dl.nn.functional.dropout(ones, dropout_p, True).numpy()) != 0
    result: torch.Tensor = torch._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, kept, **kwargs
    )[0]
    return result


def _random_order(sampler: torch.utils.data.RandomSampler) -> Iterator[int]:
    """The order that dl4all's sampler of the same arguments gives."""
    ours = RandomSampler(
        range(len(sampler.data_source)),
        replacement=sampler.replacement,
        num_samples=sampler._num_samples,
        generator=_generator(sampler.generator),
    )
    key = KEYS.pop(sampler, None)  # of the loader that made this sampler for shuffle=True
    return iter(ours) if key is None else iter(ours.order(key).tolist())


_loader_init, _loader_iter = DataLoader.__init__, DataLoader.__iter__


def _without_workers(
    loader: Any, dataset: Any, batch_size: Any = 1, shuffle: Any = None, *args: Any, **kwargs: Any
) -> None:
    """A loader without worker processes: dl4all's threads are in this one, and a fork would lose them."""
    for name in ("num_workers", "prefetch_factor", "persistent_workers"):
        kwargs.pop(name, None)
    _loader_init(loader, dataset, batch_size, shuffle, *args, **kwargs)
    if shuffle:
        SHUFFLED.add(loader)


def _epoch(loader: Any) -> Any:
    """An epoch for which a key is drawn from the generator, as dl4all's loader draws one."""
    dataset = loader.dataset
    while type(dataset) is torch.utils.data.Subset:
        dataset = dataset.dataset
    if loader in SHUFFLED or type(dataset) is not torch.utils.data.TensorDataset:
        key = drawn_key(_generator(loader.generator))
        if loader in SHUFFLED:
            KEYS[loader.sampler] = key
    return _loader_iter(loader)


def _random_split(dataset: Any, lengths: Any, generator: Any = None) -> list[torch.utils.data.Subset[Any]]:
    parts = dl.data.random_split(range(len(dataset)), lengths, generator=_generator(generator))
    return [torch.utils.data.Subset(dataset, [int(index) for index in part.indices]) for part in parts]
