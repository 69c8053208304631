"""Differentiable architecture search: gradients choose between operations."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from dl4all.autograd.backward_pass import grad
from dl4all.errors import ArgumentError
from dl4all.nn import functional as F
from dl4all.nn.module import Module, Parameter
from dl4all.nn.modules.container import ModuleDict
from dl4all.nn.utils.stateless import functional_call
from dl4all.optim import SGD, Adam
from dl4all.tensor.creation import zeros
from dl4all.tensor.tensor import Tensor

Loss = Callable[[Any, Any], Tensor]
Batch = tuple[Any, Any]


class MixedOp(Module):
    """The mean of several operations, weighted by the softmax of parameters that are learnt.

    Args:
        operations: by name; all take and give tensors of the same shapes.

    Raises:
        ArgumentError: there are fewer than two.

    Example:
        >>> import dl4all as dl
        >>> mixed = dl.search.MixedOp({"skip": dl.nn.Identity(), "relu": dl.nn.ReLU()})
        >>> mixed(dl.tensor([-2.0, 2.0])).tolist()
        [-1.0, 2.0]
    """

    def __init__(self, operations: Mapping[str, Module]) -> None:
        super().__init__()
        if len(operations) < 2:
            raise ArgumentError(f"[MixedOp] expected at least two operations, got {len(operations)}")
        self.operations = ModuleDict(dict(operations))
        self.alpha = Parameter(zeros(len(operations)))

    def forward(self, x: Any) -> Any:
        weights = F.softmax(self.alpha, 0)
        total: Any = None
        for number, operation in enumerate(self.operations.values()):
            part = weights[number] * operation(x)
            total = part if total is None else total + part
        return total

    @property
    def chosen(self) -> str:
        """The operation with the largest weight."""
        return list(self.operations)[int(self.alpha.detach().argmax().item())]


class DARTS:
    """Differentiable architecture search over a network with :class:`MixedOp` in it.

    Each step moves the architecture (the weights of operations) along the gradient of the validation loss
    that the network has after one step of its own on the training loss, and then the network. The gradient
    goes through that step exactly, by second derivatives, where the paper takes finite differences.

    Args:
        model: with at least one :class:`MixedOp`.
        optimizer: of the network's other parameters: those that :meth:`weights` gives.
        architecture_optimizer: of the parameters that :meth:`alphas` gives.
        loss: ``loss(output, targets)``, of one element.
        step_size: of the network's step that is looked through; 0 for the first-order method.

    Raises:
        ArgumentError: there is no :class:`MixedOp`, or the step size is negative.

    Source: H. Liu, K. Simonyan and Y. Yang, DARTS: Differentiable Architecture Search, 2019.

    Example:
        >>> import dl4all as dl
        >>> mixed = dl.search.MixedOp({"relu": dl.nn.ReLU(), "skip": dl.nn.Identity()})
        >>> search = dl.search.DARTS(dl.nn.Sequential(mixed, dl.nn.Linear(1, 1)), loss=dl.nn.MSELoss())
        >>> x = dl.randn(32, 1)
        >>> for _ in range(20):
        ...     losses = search.step((x, x), (x, x))
        >>> mixed.chosen, search.derived()[0]
        ('skip', Identity())
    """

    def __init__(
        self,
        model: Module,
        optimizer: Any = None,
        architecture_optimizer: Any = None,
        *,
        loss: Loss = F.cross_entropy,
        step_size: float = 0.01,
    ) -> None:
        self.model, self.loss, self.step_size = model, loss, step_size
        self._names = [f"{name}.alpha" for name, part in model.named_modules() if isinstance(part, MixedOp)]
        self._names = [name.removeprefix(".") for name in self._names]
        if not self._names or step_size < 0:
            raise ArgumentError(
                f"[DARTS] expected a model with MixedOp in it and a step size of at least 0, got "
                f"{len(self._names)} of them and {step_size}"
            )
        self.optimizer = optimizer or SGD(self.weights(), lr=0.025, momentum=0.9)
        self.architecture_optimizer = architecture_optimizer or Adam(
            self.alphas(), lr=3e-3, betas=(0.5, 0.999)
        )

    def alphas(self) -> list[Parameter]:
        """The architecture: parameters that weigh operations."""
        return [self.model.get_parameter(name) for name in self._names]

    def weights(self) -> list[Parameter]:
        """The network's other parameters."""
        return [p for name, p in self.model.named_parameters() if name not in self._names]

    def step(self, training: Batch, validation: Batch) -> tuple[float, float]:
        """One step of the architecture and one of the network; their losses.

        Args:
            training, validation: inputs and targets, of different samples.
        """
        inputs, targets = validation
        output = self._after_a_step(*training)(inputs)
        judged = self.loss(output, targets)
        gradients = grad(judged, self.alphas())
        for alpha, gradient in zip(self.alphas(), gradients, strict=True):
            alpha.grad = gradient.detach()
        self.architecture_optimizer.step()
        inputs, targets = training
        self.optimizer.zero_grad()
        fitted = self.loss(self.model(inputs), targets)
        fitted.backward()
        self.optimizer.step()
        return judged.item(), fitted.item()

    def derived(self) -> Module:
        """A copy of the network with the chosen operation in the place of each :class:`MixedOp`."""
        network = copy.deepcopy(self.model)
        for name, part in [*network.named_modules()]:
            if isinstance(part, MixedOp):
                chosen = part.operations[part.chosen]
                if not name:
                    return chosen
                owner, _, last = name.rpartition(".")
                setattr(network.get_submodule(owner), last, chosen)
        return network

    def _after_a_step(self, inputs: Any, targets: Any) -> Callable[[Any], Any]:
        """The network after a step of gradient descent on a batch."""
        if not self.step_size:
            return self.model
        names = [name for name, _ in self.model.named_parameters() if name not in self._names]
        own = dict(self.model.named_parameters())
        loss = self.loss(self.model(inputs), targets)
        gradients = grad(loss, [own[name] for name in names], create_graph=True, allow_unused=True)
        moved: dict[str, Tensor] = {
            name: own[name] - self.step_size * gradient
            for name, gradient in zip(names, gradients, strict=True)
            if gradient is not None
        }
        return lambda x: functional_call(self.model, moved, (x,))
