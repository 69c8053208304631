"""A training run of processes that come and go: each step is made by all that are there, or by none."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from dl4all.autograd import no_grad
from dl4all.data.loader import DataLoader
from dl4all.distributed.process_group.elastic_group import ElasticGroup
from dl4all.distributed.process_group.group import ProcessGroup
from dl4all.errors import ArgumentError, DistNetworkError, FolderInUseError
from dl4all.io.checkpoint import checkpoints, load_checkpoint
from dl4all.io.folder_lock import lock_folder
from dl4all.ops.random.generator import Generator, State, default_generator
from dl4all.optim.state.zero_redundancy import ZeroRedundancyOptimizer
from dl4all.scheduler.monitor import publisher
from dl4all.tensor.tensor import Tensor
from dl4all.training.history import History, Row
from dl4all.training.processes import merged, shard_of
from dl4all.training.progress import bar, batch_count
from dl4all.training.recovery import copied
from dl4all.training.resume import check_new, resume, save_within, saved_state
from dl4all.training.totals import Totals

if TYPE_CHECKING:
    from dl4all.training.trainer import Trainer

T = TypeVar("T")

NAME = "Trainer"

TRIES = 10
"""The tries of one step that may fail in a row."""

INTERVAL = 0.25
"""Seconds between two meetings, at least, where nobody has ended: so long others wait to join."""

DUE = "meetings that are due"
"""The column, among the sums of a step, of the processes that find that it is time to meet."""

logger = logging.getLogger("dl4all")


class ElasticRun:
    """Trains with the processes that are there, of which some may end and others come.

    From time to time a step begins with a meeting. When its gradients are there, the processes add up their
    sums of the loss and the metrics: whoever has the result knows that all have their gradients, and makes
    the step. Where a process has ended meanwhile, the others go back to the beginning of the step, and those
    that are left compute it anew, for the same rows. A process that has missed a step, or is new, gets
    everything from one that is ahead: weights, optimizer, random numbers, place in the data. The end of an
    epoch, with its validation, is one more step.

    Who is there is told by torchft's lighthouse: https://github.com/meta-pytorch/torchft.

    Args:
        trainer: of this process.
        group: of all that are there.
    """

    def __init__(self, trainer: Trainer, group: ElasticGroup) -> None:
        self._trainer, self._group = trainer, group
        self._train: DataLoader | None = None
        self._resumes = False
        self._joined = False  # whether this process has had the state of all
        self._met = False  # whether it has met the others since its last step
        self._due = 0.0  # the time of the next meeting
        self._failures = 0  # in a row
        self._batches: Iterator[Any] | None = None
        self._kept: _BeforeStep | None = None
        self._lock = ExitStack()  # of the folder, in the first process
        self._warned = False  # that another process holds it
        self._release_folder()

    @classmethod
    def of(cls, trainer: Trainer, group: ProcessGroup | None) -> ElasticRun | None:
        """The elastic run of a trainer, if its group is elastic.

        Raises:
            ArgumentError: the optimizer's state is spread over processes, which would be lost with one.
        """
        if not isinstance(group, ElasticGroup):
            return None
        if isinstance(trainer.optimizer, ZeroRedundancyOptimizer):
            raise ArgumentError(
                "[Trainer] ZeroRedundancyOptimizer keeps parts of its state in each process, and elastic "
                "processes may end; pass the optimizer itself"
            )
        return cls(trainer, group)

    def fit(
        self,
        train: Iterable[Any],
        epochs: int,
        validation: Iterable[Any] | None,
        patience: int | None,
        monitored: str,
        resumes: bool,
    ) -> History:
        """Train until `epochs` epochs are complete; see :meth:`dl4all.Trainer.fit`.

        Raises:
            ArgumentError: the batches cannot be shared, or have no ``len()``.
            DistNetworkError: the lighthouse has gone, or too many tries of a step have failed.
        """
        if not isinstance(train, DataLoader) or not batch_count(train):
            raise ArgumentError(
                "[Trainer] processes that come and go take a dl.data.DataLoader with a len(), got "
                f"{type(train).__name__}"
            )
        trainer, self._train, self._resumes = self._trainer, train, resumes
        publisher.start()
        try:
            self._meet()
            self._settle_folder()
            trainer._mark_best(monitored)  # a process that was killed may have stopped before this
            with bar(trainer.progress and not self._group.rank(), train, epochs, trainer.epoch) as shown:
                while trainer.epoch < epochs and not trainer._out_of_patience(monitored, patience):
                    row = self._together(lambda: self._step(train, validation))
                    self._settle_folder()
                    if row is None:
                        save_within(trainer, train)
                        shown.batch()
                    else:
                        trainer._complete_epoch(row, train, monitored)
                        trainer._totals, trainer._skipped = Totals(), 0
                        shown.epoch(trainer.epoch, row)
                    # After the last step, too: for those that have missed it.
                    self._meet()
        finally:
            self._release_folder()
        return trainer.history

    def call(self, function: Callable[[], T]) -> T:
        """Call a function of all processes after training, again where one has ended meanwhile.

        Before, a process is alone.
        """
        while self._train is not None:
            self._meet()
            try:
                result = function()
            except DistNetworkError as error:
                self._fail(error)
            else:
                self._failures = 0
                return result
        return function()

    def commit(self) -> None:
        """Find out whether all have the gradients of a step.

        Raises:
            DistNetworkError: they may not have.
        """
        assert self._kept is not None
        trainer = self._trainer
        trainer._totals.add(DUE, float(time.monotonic() > self._due), 1)
        names = [*trainer.metrics, DUE]
        state = merged(self._group, trainer._totals, names, self._kept.totals).state_dict()
        # If one of the processes finds that a meeting is due, all go there.
        self._met = state["sums"].pop(DUE) == 0
        trainer._totals.load_state_dict(state)

    def _together(self, step: Callable[[], Row | None]) -> Row | None:
        """Make a step with the others, in as many tries as it takes."""
        while True:
            assert self._train is not None
            self._meet()
            self._kept = _BeforeStep(self._trainer, self._train)
            self._met = False
            try:
                row = step()
            except DistNetworkError as error:
                self._kept.restore()
                self._fail(error)
            else:
                self._failures = 0
                return row

    def _step(self, train: DataLoader, validation: Iterable[Any] | None) -> Row | None:
        """A step of the optimizer; or, where an epoch has no batch left, its row of numbers."""
        trainer, group = self._trainer, self._group
        if trainer._totals.batches == batch_count(train):
            row: Row = {"epoch": trainer.epoch + 1, **trainer._means(trainer._totals)}
            own = None if validation is None else shard_of(group, validation)
            return row if own is None else row | trainer._validate(own)
        if self._batches is None:
            train.load_state_dict(train.state_dict())  # goes on where it is
            self._batches = iter(train.shard(group.rank(), group.size()))
        trainer.model.train()
        own_totals = Totals()
        own_totals.load_state_dict({"samples": 0, "batches": trainer._totals.batches, "sums": {}})
        trainer._totals, trainer._pending = own_totals, 0
        trainer._zero_gradients()
        for inputs, targets in itertools.islice(self._batches, trainer.accumulate):
            trainer._train_batch(inputs, targets)
        trainer._finish_step()
        if trainer._totals.batches == batch_count(train):
            self._batches = None
        return None

    # Meetings

    def _meet(self) -> None:
        """Wait for all that are there; returns when they have the same state.

        Raises:
            DistNetworkError: the lighthouse has gone, or too many tries have failed.
        """
        while not self._met:
            quorum = self._group.ask(self._version(), self._failures)
            try:
                if self._group.meet(quorum) or not self._joined:
                    self._join()
            except DistNetworkError as error:
                self._fail(error)
            else:
                self._met, self._due = True, time.monotonic() + INTERVAL

    def _version(self) -> int:
        """The number of steps of this process's state, in which ends of epochs count as well."""
        return self._trainer.step + self._trainer.epoch

    def _join(self) -> None:
        """Have all go on from the state of the one that is furthest."""
        group, train = self._group, self._train
        assert train is not None
        self._batches = None  # others have other rows
        if group.rank():
            self._release_folder()  # before the first one asks for it
        states = [one[:2] for one in group.agree(NAME, "a meeting", [int(self._joined), self._version()])]
        furthest = max(states)
        ahead = [rank for rank, state in enumerate(states) if state == furthest]
        if not furthest[0]:  # the run begins
            group.by_first(NAME, self._begin)
            ahead = [0]
        if len(ahead) < group.size():
            own = (
                copied(saved_state(self._trainer, train, self._trainer._totals))
                if group.rank() == ahead[0]
                else None
            )
            wanted = group.rank() not in ahead
            state = group.broadcast_object(NAME, own, ahead[0], wanted=wanted)
            if wanted:
                self._go_on(state, others=True)
        self._joined = True

    def _begin(self) -> None:
        """Go on from the checkpoint in the folder of the first process, if it is to."""
        trainer = self._trainer
        if trainer.folder is None:
            return
        self._claim_folder()
        if not self._resumes:
            if not trainer.step:
                check_new(trainer.folder)
        elif checkpoints(trainer.folder):
            self._go_on(load_checkpoint(trainer.folder))

    def _go_on(self, state: Any, *, others: bool = False) -> None:
        """Take the state of a checkpoint, or of others.

        Raises:
            ResumeError: it is of another network, optimizer or other data than this process has.
        """
        trainer = self._trainer
        resume(trainer, self._train, state, others)
        trainer._totals, trainer._interrupted = trainer._interrupted, Totals()

    def _fail(self, error: DistNetworkError) -> None:
        """Have the others notice that a try has failed here.

        Raises:
            DistNetworkError: too many have.
        """
        self._failures += 1
        self._met = False
        self._group.leave()
        if self._failures >= TRIES:
            raise error
        logger.warning("[Trainer] step %d is computed anew: %s", self._trainer.step, error)

    def _claim_folder(self) -> None:
        """Have this process write to the folder.

        Raises:
            FolderInUseError: another one does.
        """
        trainer = self._trainer
        if trainer.folder is not None and not trainer._writes:
            self._lock.enter_context(lock_folder(trainer.folder))
            trainer._writes = True
            trainer.history.write_to(trainer.folder / "history.jsonl")

    def _settle_folder(self) -> None:
        """Have the first process write to the folder."""
        try:
            if self._group.rank() == 0:
                self._claim_folder()
        except FolderInUseError as error:  # by one that was the first, and does not answer
            if not self._warned:
                logger.warning("[Trainer] nothing is written as yet: %s", error)
            self._warned = True

    def _release_folder(self) -> None:
        self._lock.close()
        self._trainer._writes = False
        self._trainer.history.write_to(None)


class _BeforeStep:
    """The state that a try of a step changes before all know that it has succeeded."""

    def __init__(self, trainer: Trainer, train: DataLoader) -> None:
        self._trainer, self._train = trainer, train
        self.totals = trainer._totals
        self._position = train.state_dict()
        generators = (default_generator(), train.generator)
        self._random: list[tuple[Generator, State]] = [
            (g, g.get_state()) for g in generators if g is not None
        ]
        self._buffers: list[tuple[Tensor, Tensor]] = [
            (b, b.detach().clone()) for b in trainer.model.buffers()
        ]

    @no_grad()
    def restore(self) -> None:
        """Take it back."""
        for buffer, kept in self._buffers:
            buffer.copy_(kept)
        for generator, state in self._random:
            generator.set_state(state)
        self._train.load_state_dict(self._position)
        self._trainer._totals, self._trainer._pending = self.totals, 0
        self._trainer._zero_gradients()
