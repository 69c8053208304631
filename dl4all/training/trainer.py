"""The training loop: epochs, validation, checkpoints, early stopping, on one device or several."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from dl4all.amp import GradScaler
from dl4all.autograd import no_grad
from dl4all.errors import ArgumentError, GradientError
from dl4all.io.checkpoint import checkpoints, load_checkpoint, mark_best
from dl4all.io.folder_lock import lock_folder
from dl4all.multi_device.data_parallel.distributed import DistributedDataParallel
from dl4all.multi_device.data_parallel.module import DataParallel
from dl4all.nn.module import Module
from dl4all.nn.modules.normalization import BatchNorm
from dl4all.nn.utils import clip_grad_norm_
from dl4all.ops.core import autocast
from dl4all.ops.core.dtypes import HALVES
from dl4all.ops.random.generator import Generator, drawing_from
from dl4all.runtime.profiler.phase import phase
from dl4all.scheduler.device.current import device as open_device
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.monitor import publisher
from dl4all.scheduler.streams.group import DeviceGroup
from dl4all.tensor.creation import from_numpy, tensor, zeros
from dl4all.tensor.tensor import Tensor
from dl4all.training.compiled_step import Step, compiled_gradients, compiled_update
from dl4all.training.elastic import ElasticRun
from dl4all.training.history import History, Row
from dl4all.training.local_steps import LocalSteps
from dl4all.training.metrics import Metric, known_metrics
from dl4all.training.options import PRECISIONS, check_choices, check_numbers
from dl4all.training.processes import (
    by_first,
    joined_group,
    mean_of,
    merged,
    restart_from,
    seed_for_batch,
    shard_of,
    share_of_rows,
)
from dl4all.training.progress import Bar, bar
from dl4all.training.recovery import Recovery, state_of
from dl4all.training.resume import best_of, check_new, resume, save, save_within
from dl4all.training.totals import Totals

T = TypeVar("T")

Callback = Callable[["Trainer", Row], None]

logger = logging.getLogger("dl4all")


class Trainer:
    """Trains a model on a device.

    Args:
        model: the model, which is moved to the device; it is called with a batch's input.
        loss: a module or a function ``loss(outputs, targets)`` that returns a scalar tensor.
        optimizer: an optimizer of the model's parameters.
        metrics: names of known metrics (``"accuracy"``), or functions by name; each takes outputs and
            targets and returns a number, which is averaged over the samples. A number that is a tensor of
            one element is read when the epoch ends: nothing waits for it before.
        device: the device to train on.
        devices: several devices that compute every batch together, see :func:`dl4all.parallel`: a list of
            names, a :class:`dl4all.DeviceGroup`, or ``"all"``. Where one fails, the others go on from the
            last consistent state, which is kept on the host with the batches since.
        distributed: whether the processes of a launch train together (:mod:`dl4all.distributed`, `dl4all
            launch`). Each gives `fit` the same loader of the batches of all, and computes its rows of them on
            its `device` or `devices`. Numbers of the history are those over all; the first process writes the
            folder. Callbacks are called in every process. In an elastic launch, processes may end and others
            come while `fit` goes on.
        sync_every: after how many steps processes take the mean of their parameters and buffers, by rows.
            With more than 1 each makes steps of its own with its rows in between, and nothing goes over the
            network then: local SGD (Stich, "Local SGD Converges Fast and Communicates Little", 2019).
        sync_batch_norm: with several devices or processes, whether batch normalization uses the statistics
            of the whole batch.
        scheduler: a learning-rate scheduler; one whose ``step`` takes a value (``ReduceLROnPlateau``) gets
            the validation loss, or the loss without validation.
        scheduler_interval: whether the scheduler steps after every ``"epoch"``, or after every ``"step"`` of
            the optimizer, as ``OneCycleLR`` needs it.
        accumulate: of how many batches the gradients are averaged for one step of the optimizer; at the
            end of an epoch, of as many as are left.
        clip_norm: the largest norm of all gradients together.
        ema: an :class:`dl4all.optim.EMA` that is updated after every step; validation uses the averaged
            parameters.
        folder: the folder of checkpoints, ``best`` and ``history.jsonl``; None writes nothing.
        keep: how many checkpoints are kept, beside the best.
        checkpoint_every: after how many steps a checkpoint is written within an epoch, too; the training
            data must then have ``state_dict``, as :class:`dl4all.data.DataLoader` does.
        callbacks: functions that are called with the trainer and the row of numbers after every epoch.
        stop_on_nan: raise an error at a loss that is not finite, before it changes a parameter; otherwise
            a warning names the step.
        progress: whether to show a progress bar.
        compile: whether to compile the steps (:func:`dl4all.compile`), on one device. With `stop_on_nan`, or
            gradients of several batches for one step, the gradients are compiled; otherwise the whole step.
        precision: ``"bf16"`` or ``"fp16"`` computes in mixed precision (:class:`dl4all.autocast`). For fp16
            the loss is scaled (:class:`dl4all.amp.GradScaler`): the history has the scale, and how many steps
            of an epoch were skipped because gradients were infinite.

    Raises:
        ArgumentError: a metric is unknown or a number out of range.

    Example:
        >>> import dl4all as dl
        >>> generator = dl.manual_seed(0)
        >>> net = dl.nn.Sequential(dl.nn.Linear(2, 8), dl.nn.Tanh(), dl.nn.Linear(8, 1))
        >>> trainer = dl.Trainer(net, dl.nn.MSELoss(), dl.optim.Adam(net.parameters(), lr=0.05),
        ...                      device="cpu", progress=False)
        >>> history = trainer.fit(dl.data.DataLoader(dl.data.xor(), 4, device=None), epochs=300)
        >>> outputs = trainer.predict(dl.data.DataLoader(dl.data.xor(), 4, device=None))
        >>> outputs[:, 0].round().astype(int).tolist()
        [0, 1, 1, 0]
    """

    def __init__(
        self,
        model: Module,
        loss: Callable[[Any, Any], Any],
        optimizer: Any,
        metrics: Sequence[str] | Mapping[str, Metric] = (),
        device: str | Device = "auto",
        *,
        scheduler: Any = None,
        scheduler_interval: Literal["epoch", "step"] = "epoch",
        accumulate: int = 1,
        clip_norm: float | None = None,
        ema: Any = None,
        folder: str | Path | None = None,
        keep: int = 3,
        checkpoint_every: int | None = None,
        callbacks: Sequence[Callback] = (),
        stop_on_nan: bool = True,
        progress: bool = True,
        devices: DeviceGroup | Sequence[str | Device] | Literal["all"] | None = None,
        sync_batch_norm: bool = True,
        compile: bool = False,
        precision: Literal["fp32", "fp16", "bf16"] = "fp32",
        distributed: bool = False,
        sync_every: int = 1,
    ) -> None:
        check_numbers(accumulate, keep, clip_norm, sync_every, distributed)
        check_choices(scheduler_interval, precision, compile, devices, checkpoint_every, folder)
        self.metrics = dict(metrics) if isinstance(metrics, Mapping) else known_metrics(metrics)
        self.model = model
        self.loss, self.optimizer, self.scheduler, self.ema = loss, optimizer, scheduler, ema
        self.scheduler_interval = scheduler_interval
        self.accumulate, self.clip_norm, self.stop_on_nan = accumulate, clip_norm, stop_on_nan
        self.folder = None if folder is None else Path(folder)
        self._processes = joined_group() if distributed else None
        self._peers = self._processes if sync_every == 1 else None  # who computes rows of each pass, too
        self._writes = self._processes is None or self._processes.rank() == 0
        self.keep, self.checkpoint_every = keep, checkpoint_every
        self.callbacks, self.progress = callbacks, progress and self._writes
        self.history = History(Path(folder) / "history.jsonl" if folder and self._writes else None)
        self.epoch = 0  # how many epochs are complete
        self.step = 0  # how many steps the optimizer has made
        self._interrupted = Totals()  # the sums of an epoch that a checkpoint has interrupted
        self._totals = Totals()  # those of this epoch
        self._pending = 0  # batches whose gradients wait for a step
        self._last_loss = 0.0
        self.group: DeviceGroup | None = None
        self._network: Module = model
        self._recovery: Recovery | None = None
        self._replicas: DistributedDataParallel | None = None  # the network, with other processes
        self._elastic: ElasticRun | None = None  # with processes that come and go
        self._generator = Generator()  # of compiled gradients, with other processes
        self.precision = precision
        self.scaler = GradScaler("auto", enabled=precision == "fp16")
        self._skipped = 0  # steps of this epoch
        self._local: LocalSteps | None = None  # between which nothing goes to other processes
        alone = self._peers is None and accumulate == 1
        self._updates_within = compile and alone and not stop_on_nan and precision != "fp16"
        self._compiled: Step | None = None
        if compile and self._updates_within:
            self._compiled = compiled_update(model, loss, optimizer, clip_norm)
        elif compile:
            self._compiled = compiled_gradients(model, loss)
        if self._processes is not None:
            self._distribute(device, devices, sync_batch_norm, sync_every)
        elif devices is None:
            self.device = open_device(device)
            model.to(self.device)
        else:
            state = state_of(self)
            self.group = devices if isinstance(devices, DeviceGroup) else DeviceGroup(devices)
            network = self._network = DataParallel(model, self.group, sync_batch_norm=sync_batch_norm)
            self.device = self.group.primary
            self._recovery = Recovery(self, network, state)

    def _distribute(self, device: Any, devices: Any, sync_batch_norm: bool, sync_every: int) -> None:
        """Have the processes compute every batch together.

        Raises:
            ArgumentError: compiled gradients cannot wait for other processes' statistics.
        """
        if devices is None:
            self.model.to(open_device(device))
        norms = any(isinstance(module, BatchNorm) for module in self.model.modules())
        if self._compiled is not None and norms and sync_batch_norm and sync_every == 1:
            raise ArgumentError(
                "[Trainer] compiled gradients do not wait for other processes' statistics; leave out "
                "compile, or pass sync_batch_norm=False"
            )
        network = DistributedDataParallel(
            self.model, process_group=self._processes, devices=devices, sync_batch_norm=sync_batch_norm
        )
        self.device = network.group.primary
        self.group = None if devices is None else network.group
        if sync_every > 1:
            self._local = LocalSteps.of(network, sync_every)
            self._network = self.model if devices is None else DataParallel(self.model, network.group)
        else:
            self._network = self._replicas = network
            self._elastic = ElasticRun.of(self, self._processes)

    # Training

    def fit(
        self,
        train: Iterable[Any],
        epochs: int,
        validation: Iterable[Any] | None = None,
        *,
        patience: int | None = None,
        monitor: str | None = None,
        resume: bool = False,
    ) -> History:
        """Train until `epochs` epochs are complete, including those of earlier calls and of a resumed run.

        Args:
            train: batches of (input, target), such as a :class:`dl4all.data.DataLoader`.
            epochs: how many epochs there are in all.
            validation: batches that are evaluated after every epoch.
            patience: after how many epochs without improvement of `monitor` to stop.
            monitor: the column that should fall (by default ``"val_loss"``, or ``"loss"`` without
                validation); a column without ``loss`` in its name should rise.
            resume: continue from the newest good checkpoint in `folder`, if there is one. The options of the
                optimizer are then the checkpoint's; a warning names those that differ.

        Returns:
            The history: a row for each epoch.

        Raises:
            ArgumentError: there is nothing to train on, or the monitored column does not exist.
            FolderInUseError: another run writes to `folder`.
            ResumeError: the checkpoint is of another run: with another network, optimizer, scheduler,
                average or `accumulate`, or with other data or batches. The message lists all that differs,
                and nothing was changed.
            GradientError: the loss is not finite (with `stop_on_nan`); the message names the step.
        """
        if patience is not None and patience < 1:
            raise ArgumentError(f"[Trainer] patience must be at least 1, got {patience}")
        if resume and self.folder is None:
            raise ArgumentError("[Trainer] resume needs the folder in which the checkpoints are")
        monitored = monitor or ("loss" if validation is None else "val_loss")
        if self._elastic is not None:
            return self._elastic.fit(train, epochs, validation, patience, monitored, resume)
        train = shard_of(self._processes, train)
        validation = validation if validation is None else shard_of(self._processes, validation)
        with ExitStack() as stack:
            if self.folder is not None:
                folder = self.folder
                by_first(self._processes, lambda: stack.enter_context(lock_folder(folder)))
            return self._fit(train, epochs, validation, patience, monitored, resume)

    def _fit(
        self,
        train: Iterable[Any],
        epochs: int,
        validation: Iterable[Any] | None,
        patience: int | None,
        monitored: str,
        resume: bool,
    ) -> History:
        if resume:
            self._resume(train)
        elif (folder := self.folder) is not None and not self.step:
            by_first(self._processes, lambda: check_new(folder))
        publisher.start()
        self._mark_best(monitored)  # a killed run may have stopped before this
        with bar(self.progress, train, epochs, self.epoch) as shown:
            while self.epoch < epochs and not self._out_of_patience(monitored, patience):
                row: Row = {"epoch": self.epoch + 1, **self._train_epoch(train, shown)}
                if validation is not None:
                    row |= self._safely(lambda: self._validate(validation))
                self._complete_epoch(row, train, monitored)
                shown.epoch(self.epoch, row)
        return self.history

    def _complete_epoch(self, row: Row, train: Iterable[Any], monitored: str) -> None:
        """Go on to the next epoch, from the numbers of this one."""
        if monitored not in row:
            raise ArgumentError(f"[Trainer] nothing is called {monitored!r}; there are {sorted(row)}")
        if self.scheduler_interval == "epoch":
            self._step_scheduler(row)
        self.epoch += 1
        self.history.add(row)
        if self.folder is not None:
            self._safely(lambda: save(self, train, Totals()))
            self._mark_best(monitored)
        for callback in self.callbacks:
            callback(self, row)

    def _validate(self, validation: Iterable[Any]) -> Row:
        with nullcontext() if self.ema is None else self.ema.averaged():
            return {f"val_{name}": value for name, value in self._evaluate(validation).items()}

    def _mark_best(self, monitored: str) -> None:
        """Mark the last complete epoch's checkpoint as the best if no epoch was better."""
        complete = len(self.history) and not self._interrupted.batches
        best = complete and self._best(monitored) == len(self.history) - 1
        if best and self.folder is not None and self._writes:
            mark_best(self.folder, self.step)

    def _best(self, monitored: str) -> int | None:
        return self.history.best(monitored, rises="loss" not in monitored)

    def _out_of_patience(self, monitored: str, patience: int | None) -> bool:
        return patience is not None and len(self.history) - 1 - (self._best(monitored) or 0) >= patience

    def _train_epoch(self, train: Iterable[Any], shown: Bar) -> dict[str, float]:
        self.model.train()
        self._totals, self._interrupted = self._interrupted, Totals()
        self._pending = self._skipped = 0
        self._zero_gradients()
        if self._recovery is not None:
            self._recovery.begin()
        for inputs, targets in train:
            if self._recovery is None:
                self._train_batch(inputs, targets)
            else:
                self._recovery.batch(inputs, targets)
            if not self._pending:
                self._safely(lambda: save_within(self, train))
            shown.batch()
        if not self._totals.batches:
            raise ArgumentError("[Trainer] there is no batch to train on")
        return self._finish_epoch() if self._recovery is None else self._recovery.end(self._finish_epoch)

    def _safely(self, function: Callable[[], T]) -> T:
        """Call a function, again from the last consistent state where a device of several is lost."""
        return function() if self._recovery is None else self._recovery.call(function)

    def _train_batch(self, inputs: Any, targets: Any) -> None:
        """Compute gradients, and make a step of the optimizer when there are enough."""
        scale = self.scaler.get_scale() / self.accumulate
        complete = self._pending + 1 == self.accumulate
        if self._local is not None and not len(inputs):  # other processes have all rows
            value, outputs = 0.0, inputs
        elif self._compiled is not None:
            inputs, targets = self._on_device(inputs), self._on_device(targets)
            if self._peers is not None:
                scale *= share_of_rows(self._peers, len(inputs))
            factor = () if scale == 1 else (tensor(scale, device=self.device),)
            with self._mixed(), self._drawing():
                loss, outputs = zeros((), device=self.device), inputs  # where others have all rows
                if self._peers is None or len(inputs):
                    loss, outputs = self._compiled(inputs, targets, *factor)
            value = self._check_finite(loss, self._totals.batches, len(outputs))
            if complete and self._replicas is not None:
                self._replicas.reduce_gradients()
        else:
            targets = self._on_device(targets)
            apart = None if complete else self._replicas
            with self._mixed(), self._drawing(), nullcontext() if apart is None else apart.no_sync():
                outputs = self._outputs(inputs)
                loss = self.loss(outputs, targets)
            value = self._check_finite(loss, self._totals.batches, len(outputs))
            (loss if scale == 1 else loss * scale).backward()
        self._pending += 1
        if self._local is not None:
            self._local.rows += len(outputs)
        self._measure(self._totals, value, outputs, targets)
        self._last_loss = value
        if self._pending == self.accumulate:
            self._update(value)
            self._pending = 0

    def _drawing(self) -> AbstractContextManager[None]:
        """The block in which random numbers are this process's own, where a pass knows of no other rows."""
        if self._processes is None or (self._compiled is None and self._local is None):
            return nullcontext()
        batch = self._totals.batches
        return drawing_from(seed_for_batch(self._processes, self._generator, self.epoch, batch))

    def _finish_epoch(self) -> dict[str, float]:
        """Make a step with the gradients that are left; returns the means over the epoch."""
        self._finish_step()
        if self._local is not None:
            self._local.settle()
        return self._means(merged(self._processes, self._totals, self.metrics))

    def _finish_step(self) -> None:
        """Make a step with the gradients that are left, of fewer batches than others, if there are some."""
        if self._pending:
            if self._replicas is not None:
                self._replicas.reduce_gradients()
            self._scale_gradients(self.accumulate / self._pending)
            self._update(self._last_loss)
            self._pending = 0

    def _means(self, totals: Totals) -> dict[str, float]:
        means = totals.means()
        if not self.scaler.is_enabled():
            return means
        return {**means, "scale": self.scaler.get_scale(), "skipped_steps": self._skipped}

    @no_grad()
    def _scale_gradients(self, factor: float) -> None:
        """Multiply the gradients that the optimizer is about to use."""
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.mul_(factor)

    def _update(self, loss: float) -> None:
        if self._elastic is not None:
            self._elastic.commit()
        if not self._updates_within:
            with phase("update"):
                self.scaler.unscale_(self.optimizer)
                if self.clip_norm is not None:
                    clip_grad_norm_(self.model.parameters(), self.clip_norm)
                before = self.scaler.get_scale()
                self.scaler.step(self.optimizer)
                self.scaler.update()
                self._skipped += self.scaler.get_scale() < before
            self._zero_gradients()
        self.step += 1
        if self._local is not None:
            self._local.step(self.step)
        if self.ema is not None:
            self.ema.update()
        if self.scheduler_interval == "step":
            self._step_scheduler({"loss": loss})

    def _zero_gradients(self) -> None:
        """Of parameters that the optimizer does not have, too: their gradients count for `clip_norm`."""
        self.optimizer.zero_grad()
        self.model.zero_grad()

    def _check_finite(self, loss: Tensor, batch: int, rows: int) -> float:
        """The loss as a number, that over the rows of all processes.

        Raises:
            GradientError: it is not finite, and `stop_on_nan` is set.
        """
        value = mean_of(self._peers, float(loss.item()), rows)
        if not math.isfinite(value):
            text = f"the loss is {value} at batch {batch} of epoch {self.epoch + 1} (step {self.step})"
            if self.stop_on_nan:
                raise GradientError(
                    f"[Trainer] {text}; the parameters are still those of the step before. A smaller "
                    "learning rate or clip_norm may help; dl.autograd.detect_anomaly() names the op"
                )
            logger.warning("[Trainer] %s", text)
        return value

    def _measure(self, totals: Totals, loss: float | Tensor, outputs: Any, targets: Any) -> None:
        count = len(outputs)
        totals.batches += 1
        if not count:  # other processes have all rows
            return
        totals.add("loss", loss, count)
        with no_grad():
            for name, metric in self.metrics.items():
                totals.add(name, metric(outputs, targets), count)
        totals.samples += count

    def _step_scheduler(self, row: Row) -> None:
        if self.scheduler is None:
            return
        if hasattr(self.scheduler, "patience"):  # its step takes a value
            self.scheduler.step(row.get("val_loss", row["loss"]))
        else:
            self.scheduler.step()

    # Using the model

    def evaluate(self, batches: Iterable[Any]) -> dict[str, float]:
        """The loss and the metrics over all samples, in inference mode; of all processes where several train.

        Raises:
            ArgumentError: there is no batch.
        """
        if self._elastic is not None:
            return self._elastic.call(lambda: self._evaluate(shard_of(self._processes, batches)))
        own = shard_of(self._processes, batches)
        return self._safely(lambda: self._evaluate(own))

    def _evaluate(self, batches: Iterable[Any]) -> dict[str, float]:
        self.model.eval()
        totals = Totals()
        with no_grad():
            for inputs, targets in batches:
                targets = self._on_device(targets)
                with self._mixed():
                    outputs = self._outputs(inputs)
                    loss = self.loss(outputs, targets)
                self._measure(totals, loss, outputs, targets)
        if not totals.batches:
            raise ArgumentError("[Trainer] there is no batch to evaluate")
        return merged(self._processes, totals, self.metrics).means()

    def predict(self, batches: Iterable[Any]) -> npt.NDArray[Any]:
        """The outputs for all samples, a batch is an input or a tuple that starts with one."""
        self.model.eval()
        outputs = []
        with no_grad():
            for batch in batches:
                inputs = batch[0] if isinstance(batch, (tuple, list)) else batch
                with self._mixed():
                    found = self._safely(lambda: self._outputs(inputs))  # noqa: B023  # called at once
                outputs.append((found.float() if found.dtype in HALVES else found).numpy())
        if not outputs:
            raise ArgumentError("[Trainer] there is no batch to predict")
        return np.concatenate(outputs)

    def _outputs(self, inputs: Any) -> Any:
        """The outputs of the model. Of several devices each takes its rows from where the inputs are."""
        if self.group is None or len(self.group) == 1:
            return self._network(self._on_device(inputs))
        return self._network(from_numpy(inputs, "cpu") if isinstance(inputs, np.ndarray) else inputs)

    def _mixed(self) -> AbstractContextManager[None]:
        """The block in which the network and the loss are computed."""
        dtype = PRECISIONS[self.precision]
        if dtype is None:
            return nullcontext()
        devices = [self.device] if self.group is None else self.group
        return autocast.within({device.name.partition(":")[0]: dtype for device in devices})

    def _on_device(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.to(self.device)
        return from_numpy(value, self.device) if isinstance(value, np.ndarray) else value

    # Checkpoints

    def load_best(self) -> None:
        """Load the parameters of the best epoch, or the averaged ones if there is an `ema`.

        Raises:
            ArgumentError: there is no folder, or the checkpoint has no average.
            WeightsError: the checkpoint is of another network.
            FileFormatError: the best epoch's checkpoint is missing or damaged.
        """
        if self.folder is None:
            raise ArgumentError("[Trainer] load_best needs the folder in which the checkpoints are")
        folder = self.folder
        step, state = by_first(self._processes, lambda: best_of(folder))
        average = state.get("ema")
        if self.ema is not None and average is None:
            raise ArgumentError(f"[Trainer] the best checkpoint, of step {step}, has no average for the ema")
        self.model.load_state_dict(state.get("model", {}))
        if self.ema is not None:
            self.ema.load_state_dict(average)
            self.ema.copy_to()

    def _resume(self, train: Any) -> None:
        assert self.folder is not None
        folder = self.folder
        state = by_first(self._processes, lambda: load_checkpoint(folder) if checkpoints(folder) else None)
        if state is None:
            self.history.restore([])
            return
        resume(self, train, state)
        self._interrupted = restart_from(self._processes, self._interrupted)
