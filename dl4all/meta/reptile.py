"""Reptile: meta-learning without gradients through gradients."""

from __future__ import annotations

from collections.abc import Sequence

from dl4all.autograd import no_grad
from dl4all.errors import ArgumentError
from dl4all.meta.maml import MAML, Learner
from dl4all.nn.module import Module
from dl4all.ops.indexing.concatenation import stack


class Reptile(MAML):
    """Move towards the parameters of learners that have adapted to their tasks.

    Args:
        model: any module.
        lr: of the steps by which a learner adapts.
        meta_lr: the part of the way to the learners that :meth:`update` goes.
        allow_unused, allow_nograd: as for :class:`MAML`.

    Raises:
        ArgumentError: a rate is no positive number.

    Source:
        A. Nichol, J. Achiam and J. Schulman, On First-Order Meta-Learning Algorithms, 2018.

    Example:
        >>> import dl4all as dl
        >>> reptile = dl.meta.Reptile(dl.nn.Linear(1, 1, bias=False), lr=0.1, meta_lr=0.5)
        >>> reptile.module.weight.data.fill_(0.0)
        tensor([[0.]])
        >>> learner = reptile.clone()
        >>> learner.adapt(learner(dl.ones(1, 1)).sum() * -20)  # to 2
        >>> reptile.update([learner])
        >>> reptile.module.weight.tolist()
        [[1.0]]
    """

    def __init__(
        self,
        model: Module,
        lr: float,
        meta_lr: float = 1.0,
        allow_unused: bool = False,
        allow_nograd: bool = False,
    ) -> None:
        if not meta_lr > 0:
            raise ArgumentError(f"[Reptile] meta_lr must be above 0, got {meta_lr}")
        super().__init__(model, lr, True, allow_unused, allow_nograd)
        self.meta_lr = meta_lr

    def update(self, learners: Sequence[Learner]) -> None:
        """Move towards the mean of some learners.

        Raises:
            ArgumentError: there is none, or one is another algorithm's.
        """
        if not learners or any(learner.algorithm is not self for learner in learners):
            raise ArgumentError("[Reptile] update: expected learners of this network, at least one")
        with no_grad():
            for name, parameter in self.module.named_parameters():
                mean = stack([learner.parameters[name].detach() for learner in learners]).mean(0)
                parameter.lerp_(mean, self.meta_lr)
