"""Model-agnostic meta-learning: an initialisation from which few steps suffice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dl4all.autograd import no_grad
from dl4all.autograd.backward_pass import grad
from dl4all.autograd.vectorizing_map import vmap
from dl4all.errors import ArgumentError, GradientError
from dl4all.nn.module import Module, Parameter
from dl4all.nn.modules.container import ParameterList
from dl4all.nn.modules.dropout import Dropout
from dl4all.nn.utils.stateless import functional_call
from dl4all.ops.indexing.concatenation import stack
from dl4all.tensor.creation import full_like
from dl4all.tensor.tensor import Tensor

Loss = Callable[[Any, Any], Tensor]
Tensors = dict[str, Tensor]


class Learner:
    """A network with parameters of its own, which follow from another's by differentiable steps.

    Made by :meth:`MAML.clone`. Called as the network is.

    Attributes:
        algorithm: by which it adapts.
        parameters: the adapted tensors by dotted name.

    Example:
        >>> import dl4all as dl
        >>> learner = dl.meta.MAML(dl.nn.Linear(1, 1), lr=0.5).clone()
        >>> before = learner.parameters["bias"].item()
        >>> learner.adapt(learner(dl.ones(1, 1)).sum())
        >>> round(learner.parameters["bias"].item() - before, 5)
        -0.5
    """

    def __init__(self, algorithm: MAML, parameters: Tensors, buffers: Tensors) -> None:
        self.algorithm = algorithm
        self.parameters = parameters
        self._buffers = buffers

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Compute the network's output with the adapted parameters."""
        return functional_call(self.algorithm.module, (self.parameters, self._buffers), inputs, named)

    def adapt(self, loss: Tensor, *, allow_unused: bool | None = None) -> None:
        """One step of gradient descent, through which gradients flow on to the algorithm's own parameters.

        Args:
            loss: of one element, computed by this learner.
            allow_unused: as the algorithm has it, if None.

        Raises:
            GradientError: the loss does not depend on a parameter that adapts, and this is not allowed.
        """
        unused = self.algorithm.allow_unused if allow_unused is None else allow_unused
        self.parameters = adapted(self.algorithm, self.parameters, loss, unused)

    def clone(self) -> Learner:
        """A learner that begins where this one is, and goes its own way."""
        return Learner(self.algorithm, dict(self.parameters), dict(self._buffers))


class MAML(Module):
    """Model-agnostic meta-learning: trained so that few steps on a new task suffice.

    Args:
        model: any module; its parameters are the initialisation that is learnt.
        lr: of the steps by which a learner adapts.
        first_order: take the gradients of these steps as constants, which is cheaper.
        allow_unused: let parameters that a loss does not depend on stay as they are.
        allow_nograd: let a model have parameters that require no gradients; they do not adapt.

    Raises:
        ArgumentError: `lr` is no positive number, or no parameter can adapt.

    Source:
        C. Finn, P. Abbeel and S. Levine, Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks,
        2017; the names are learn2learn's.

    Example:
        >>> import dl4all as dl
        >>> maml = dl.meta.MAML(dl.nn.Linear(1, 1), lr=0.1)
        >>> x, y = dl.tensor([[1.0], [2.0]]), dl.tensor([[3.0], [5.0]])
        >>> learner = maml.clone()
        >>> before = dl.nn.functional.mse_loss(learner(x), y)
        >>> learner.adapt(before)
        >>> after = dl.nn.functional.mse_loss(learner(x), y)
        >>> after.backward()
        >>> after.item() < before.item(), maml.module.weight.grad is not None
        (True, True)
    """

    def __init__(
        self,
        model: Module,
        lr: float,
        first_order: bool = False,
        allow_unused: bool = False,
        allow_nograd: bool = False,
    ) -> None:
        super().__init__()
        if not lr > 0:
            raise ArgumentError(f"[{type(self).__name__}] lr must be above 0, got {lr}")
        self.module = model
        self.lr = lr
        self.first_order, self.allow_unused, self.allow_nograd = first_order, allow_unused, allow_nograd
        frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
        if frozen and not allow_nograd:
            raise ArgumentError(
                f"[{type(self).__name__}] {frozen[0]} requires no gradients: allow_nograd=True lets it stay"
            )
        if not self.adapting():
            raise ArgumentError(f"[{type(self).__name__}] the model has no parameter that can adapt")

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Output of the network before it adapts."""
        return self.module(*inputs, **named)

    def adapting(self) -> list[str]:
        """The parameters by name that steps change."""
        return [name for name, p in self.module.named_parameters() if p.requires_grad]

    def step_size(self, name: str) -> float | Tensor:
        """The step size of a parameter."""
        return self.lr

    def clone(self) -> Learner:
        """A learner that begins with the parameters of this network, and buffers of its own."""
        with no_grad():
            buffers: Tensors = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        return Learner(self, dict(self.module.named_parameters()), buffers)

    def loss(
        self, support: tuple[Tensor, Tensor], query: tuple[Tensor, Tensor], loss: Loss, steps: int = 1
    ) -> Tensor:
        """Losses of many tasks at once: each adapts to its support set, and is measured on its queries.

        All tasks are computed together by :func:`dl4all.vmap` where the network allows that: without buffers
        that calls change, and without random numbers. Otherwise one after the other.

        Args:
            support: inputs and targets to adapt to, of shapes (tasks, examples, ...).
            query: inputs and targets to be measured on, of shapes (tasks, examples, ...).
            loss: ``loss(output, targets)``, of one element.
            steps: of adaption.

        Returns:
            The tasks' losses on the queries, of shape (tasks,); their mean is what is trained.

        Raises:
            ArgumentError: the sets have different numbers of tasks, or there are no steps.

        Example:
            >>> import dl4all as dl
            >>> maml = dl.meta.MAML(dl.nn.Linear(1, 1), lr=0.1)
            >>> x, y = dl.randn(8, 5, 1), dl.randn(8, 5, 1)
            >>> maml.loss((x, y), (x, y), dl.nn.functional.mse_loss).shape
            (8,)
        """
        counts = {len(part) for part in (*support, *query)}
        if len(counts) != 1 or steps < 1:
            raise ArgumentError(
                f"[{type(self).__name__}] expected one number of tasks in all tensors and at least one step, "
                f"got {sorted(counts)} and {steps}"
            )
        parameters: Tensors = dict(self.module.named_parameters())

        def of_task(x: Tensor, y: Tensor, query_x: Tensor, query_y: Tensor) -> Tensor:
            buffers: Tensors = {name: b.detach().clone() for name, b in self.module.named_buffers()}
            current = parameters
            for _ in range(steps):
                output = functional_call(self.module, (current, buffers), x)
                current = adapted(self, current, loss(output, y), self.allow_unused)
            return loss(functional_call(self.module, (current, buffers), query_x), query_y)

        if _is_pure(self.module):
            losses: Tensor = vmap(of_task)(*support, *query)
            return losses
        return stack([of_task(*parts) for parts in zip(*support, *query, strict=True)])


class ANIL(MAML):
    """Almost no inner loop: :class:`MAML` whose learners adapt the last layer only.

    Args:
        model: any module.
        lr: of the steps by which a learner adapts.
        head: the path of the module that adapts; the last one with parameters by default.
        first_order, allow_unused, allow_nograd: as for :class:`MAML`.

    Raises:
        ArgumentError: the model has no such module, or it has no parameters.

    Source:
        A. Raghu et al., Rapid Learning or Feature Reuse? Towards Understanding the Effectiveness of MAML,
        2020.

    Example:
        >>> import dl4all as dl
        >>> dl.meta.ANIL(dl.models.MLP(2, [8], 3), lr=0.1).adapting()
        ['3.weight', '3.bias']
    """

    def __init__(
        self,
        model: Module,
        lr: float,
        head: str | None = None,
        first_order: bool = False,
        allow_unused: bool = False,
        allow_nograd: bool = True,
    ) -> None:
        owners = [name.rpartition(".")[0] for name, p in model.named_parameters() if p.requires_grad]
        self._head = (owners[-1] if owners else "") if head is None else head
        super().__init__(model, lr, first_order, allow_unused, allow_nograd)

    def adapting(self) -> list[str]:
        start = f"{self._head}." if self._head else ""
        return [name for name in super().adapting() if name.startswith(start)]


class MetaSGD(MAML):
    """:class:`MAML` with a step size for each number of each parameter, which is learnt as well.

    Args:
        model: any module.
        lr: of the steps by which a learner adapts, at first.
        first_order, allow_unused, allow_nograd: as for :class:`MAML`.

    Source:
        Z. Li et al., Meta-SGD: Learning to Learn Quickly for Few-Shot Learning, 2017.

    Example:
        >>> import dl4all as dl
        >>> [name for name, _ in dl.meta.MetaSGD(dl.nn.Linear(2, 1), lr=0.1).named_parameters()]
        ['module.weight', 'module.bias', 'lrs.0', 'lrs.1']
    """

    def __init__(
        self,
        model: Module,
        lr: float,
        first_order: bool = False,
        allow_unused: bool = False,
        allow_nograd: bool = False,
    ) -> None:
        super().__init__(model, lr, first_order, allow_unused, allow_nograd)
        parameters = dict(model.named_parameters())
        self._numbers = {name: number for number, name in enumerate(self.adapting())}
        self.lrs = ParameterList(
            [Parameter(full_like(parameters[name].detach(), lr)) for name in self._numbers]
        )

    def step_size(self, name: str) -> float | Tensor:
        size: Tensor = self.lrs[self._numbers[name]]
        return size


class TaskLosses(Module):
    """Losses of many tasks (:meth:`MAML.loss`) as a module that :func:`dl4all.parallel` spreads over devices.

    Args:
        algorithm: whose learners adapt.
        loss: ``loss(output, targets)``, of one element.
        steps: of adaption.

    Example:
        >>> import dl4all as dl
        >>> maml = dl.meta.MAML(dl.nn.Linear(1, 1), lr=0.1)
        >>> losses = dl.parallel(dl.meta.TaskLosses(maml, dl.nn.functional.mse_loss), ["cpu", "cpu#1"])
        >>> x, y = dl.randn(8, 5, 1, device="cpu"), dl.randn(8, 5, 1, device="cpu")
        >>> losses(x, y, x, y).shape
        (8,)
    """

    def __init__(self, algorithm: MAML, loss: Loss, steps: int = 1) -> None:
        super().__init__()
        self.algorithm, self.loss, self.steps = algorithm, loss, steps

    def forward(self, x: Tensor, y: Tensor, query_x: Tensor, query_y: Tensor) -> Tensor:
        """Losses (tasks,) of support sets (tasks, examples, ...) and queries."""
        return self.algorithm.loss((x, y), (query_x, query_y), self.loss, self.steps)


def adapted(algorithm: MAML, parameters: Tensors, loss: Tensor, allow_unused: bool) -> Tensors:
    """The parameters after a step of gradient descent on a loss.

    Raises:
        GradientError: the loss does not depend on one of them, and this is not allowed.
    """
    names = algorithm.adapting()
    try:
        gradients: Sequence[Tensor | None] = grad(
            loss,
            [parameters[name] for name in names],
            create_graph=not algorithm.first_order,
            allow_unused=allow_unused,
        )
    except GradientError as error:
        raise GradientError(
            f"[{type(algorithm).__name__}] a step needs a loss that the learner computed, which depends on "
            f"each of its parameters, or allow_unused=True: {error}"
        ) from None
    following = dict(parameters)
    for name, gradient in zip(names, gradients, strict=True):
        if gradient is not None:
            following[name] = parameters[name] - algorithm.step_size(name) * gradient
    return following


def _is_pure(module: Module) -> bool:
    """Whether calls leave no trace in buffers, and draw no random numbers."""
    return not any(
        part.training and (isinstance(part, Dropout) or next(part.buffers(recurse=False), None) is not None)
        for part in module.modules()
    )
