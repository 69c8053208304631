"""Weights that all networks of a space share, so that one training judges them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import numpy as np

from dl4all.autograd import no_grad
from dl4all.errors import ArgumentError
from dl4all.nn import functional as F
from dl4all.nn.module import Module, Parameter
from dl4all.nn.modules.container import ParameterList
from dl4all.nn.utils.stateless import functional_call
from dl4all.optim.swa_utils import update_bn
from dl4all.search.space import Space, at_random, probed
from dl4all.tensor.creation import zeros
from dl4all.tensor.tensor import Tensor

Key = tuple[str, ...]
Loss = Callable[[Any, Any], Tensor]
MET = 200
"""Networks drawn at random whose weights it has, beside those with each value of each hyperparameter."""


class Supernet(Module):
    """Shared weights for the networks of a space.

    Parameters of one name, in modules of one class and with one kernel size, are the same numbers in all
    networks; narrower ones take the first of them. Trained by :meth:`fit`, by which a random network learns
    from each batch, it gives any network trained weights by :meth:`subnet`.

    Args:
        space: of modules.
        seed: of the networks that are drawn.

    Raises:
        ArgumentError: the space's function makes something else than modules.

    Source:
        Z. Guo et al., Single Path One-Shot Neural Architecture Search with Uniform Sampling, 2020; the
        sandwich rule: J. Yu and T. Huang, Universally Slimmable Networks, 2019.

    Example:
        >>> import dl4all as dl
        >>> def net(s):
        ...     width = s.choice("width", [4, 8])
        ...     return dl.nn.Sequential(dl.nn.Linear(3, width), dl.nn.ReLU(), dl.nn.Linear(width, 2))
        >>> supernet = dl.search.Supernet(dl.search.Space(net))
        >>> batches = [(dl.randn(16, 3), dl.arange(16) % 2) for _ in range(4)]
        >>> supernet.fit(batches, dl.optim.Adam(supernet.parameters()), epochs=2)
        >>> narrow, wide = (supernet.subnet({"width": width}) for width in (4, 8))
        >>> bool((narrow[0].weight == wide[0].weight[:4]).all())
        True
    """

    def __init__(self, space: Space, seed: int | None = 0) -> None:
        super().__init__()
        self.space = space
        self._rng = np.random.default_rng(seed)
        met = list(self._met())
        if not all(isinstance(network, Module) for network in met):
            raise ArgumentError("[Supernet] the space's function is to make modules")
        met.sort(key=_count)
        self._ends = [met[0], met[-1]]
        shapes: dict[Key, tuple[int, ...]] = {}
        for network in met:
            for name, parameter in network.named_parameters():
                key = _key(network, name)
                shapes[key] = tuple(map(max, shapes.get(key, parameter.shape), parameter.shape))
        self._numbers = {key: number for number, key in enumerate(shapes)}
        like = next(iter(met[-1].parameters()))
        shared = [Parameter(zeros(*shape, dtype=like.dtype, device=like.device)) for shape in shapes.values()]
        self.shared = ParameterList(shared)
        with no_grad():  # the largest network's initial values where it has any
            for network in met:
                for name, parameter in network.named_parameters():
                    part = self._part(network, name, parameter)
                    assert part is not None
                    part.copy_(parameter)

    def forward(self, *inputs: Any) -> Any:
        """Output of a network drawn at random."""
        network = self._drawn()
        return functional_call(network, self._weights(network), inputs)

    def fit(
        self,
        batches: Iterable[tuple[Tensor, Tensor]],
        optimizer: Any,
        *,
        epochs: int = 1,
        loss: Loss = F.cross_entropy,
        sampling: Literal["uniform", "sandwich"] = "uniform",
    ) -> None:
        """Train the shared weights.

        Args:
            batches: inputs and targets, as a loader gives them in each epoch.
            optimizer: of this module's parameters.
            loss: ``loss(output, targets)``, of one element.
            sampling: ``"uniform"``: a network drawn at random learns from each batch. ``"sandwich"``: the
                largest, the smallest and two random ones do.

        Raises:
            ArgumentError: there is no such sampling.
        """
        if sampling not in ("uniform", "sandwich"):
            raise ArgumentError(f"[Supernet] sampling is 'uniform' or 'sandwich', got {sampling!r}")
        for _ in range(epochs):
            for inputs, targets in batches:
                networks = [self._drawn()]
                if sampling == "sandwich":
                    networks += [*self._ends, self._drawn()]
                optimizer.zero_grad()
                for network in networks:
                    network.train()
                    output = functional_call(network, self._weights(network), (inputs,))
                    (loss(output, targets) / len(networks)).backward()
                optimizer.step()

    def subnet(self, values: Mapping[str, Any], recalibrate: Iterable[Any] | None = None) -> Any:
        """A network of the space with a copy of the shared weights.

        Args:
            values: of its hyperparameters.
            recalibrate: batches from which the statistics of its batch normalization are computed anew: those
                of the other networks are of no use to it.

        Raises:
            ArgumentError: the space has no such network, or the supernet has no weights for it.
        """
        network = self.space.build(values)
        with no_grad():
            for name, shared in self._weights(network).items():
                network.get_parameter(name).copy_(shared)
        if recalibrate is not None:
            update_bn(recalibrate, network)
        return network

    def _met(self) -> Iterable[Any]:
        """Networks with each value of each hyperparameter, and others."""
        yield self.space.make({}, lambda _, kind: probed(kind)[0]).network
        for otherwise in (lambda _, kind: probed(kind)[0], lambda _, kind: probed(kind)[-1]):
            for name, dimension in self.space.dimensions.items():
                for value in probed(dimension.distribution):
                    made, exists = self.space.asked({name: value}, otherwise)
                    if exists:
                        yield made.network
        for _ in range(MET):
            made, exists = self.space.asked({}, at_random(self._rng))
            if exists:
                yield made.network

    def _drawn(self) -> Module:
        """A network drawn at random that it has weights for."""
        for _ in range(MET):
            made, exists = self.space.asked({}, at_random(self._rng))
            network: Module = made.network
            if exists and all(
                self._part(network, name, p) is not None for name, p in network.named_parameters()
            ):
                return network
        raise ArgumentError(f"[Supernet] none of {MET} networks can be made")

    def _weights(self, network: Module) -> dict[str, Tensor]:
        """The shared weights of a network.

        Raises:
            ArgumentError: there are none for one of its parameters.
        """
        found = {}
        for name, parameter in network.named_parameters():
            part = self._part(network, name, parameter)
            if part is None:
                raise ArgumentError(
                    f"[Supernet] there are no weights for {name} of shape {tuple(parameter.shape)}, which no "
                    "network had that it met"
                )
            found[name] = part
        return found

    def _part(self, network: Module, name: str, parameter: Tensor) -> Tensor | None:
        """The shared numbers of a parameter; None where there are none."""
        number = self._numbers.get(_key(network, name))
        if number is None:
            return None
        shared: Tensor = self.shared[number]
        if any(size > most for size, most in zip(parameter.shape, shared.shape, strict=True)):
            return None
        part: Tensor = shared[tuple(slice(size) for size in parameter.shape)]
        return part


def _key(network: Module, name: str) -> Key:
    """The key of parameters that are shared: name, class of the module, axes, kernel size."""
    parameter, owner = network.get_parameter(name), network.get_submodule(name.rpartition(".")[0])
    return (name, type(owner).__name__, str(parameter.ndim), *map(str, parameter.shape[2:]))


def _count(network: Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())
