"""Builds a training run from a configuration: data, network, optimizer, schedule, trainer."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dl4all import nn
from dl4all.autograd import no_grad
from dl4all.data import DataLoader, TensorDataset, random_split, shifted
from dl4all.errors import ConfigError, Dl4allError
from dl4all.ops.core.dtypes import kind_of
from dl4all.optim import EMA
from dl4all.scheduler.device.device import Device
from dl4all.tensor import from_numpy, manual_seed
from dl4all.training.config import Config, ConfigTable, arguments
from dl4all.training.history import History
from dl4all.training.trainer import Callback, Trainer


@dataclass(frozen=True)
class Prepared:
    """A trainer and its data.

    Example:
        >>> import dl4all as dl
        >>> import pathlib
        >>> parts = 'model.name = "mlp"', 'optimizer.name = "SGD"'
        >>> lines = ["epochs = 2", 'data = {name = "xor", test = 0.0}', *parts]
        >>> size = pathlib.Path("xor.toml").write_text("\\n".join(lines))
        >>> prepared = dl.training.prepare(dl.training.read_config("xor.toml"), progress=False)
        >>> len(prepared.fit())
        2
    """

    config: Config
    trainer: Trainer
    train: DataLoader
    test: DataLoader | None

    def fit(self, epochs: int | None = None, resume: bool = False) -> History:
        """Train as the configuration says, or until another number of epochs."""
        loop, run = self.config.loop, self.config.run
        return self.trainer.fit(
            self.train,
            run.epochs if epochs is None else epochs,
            self.test,
            patience=loop.patience,
            monitor=loop.monitor,
            resume=resume,
        )


def prepare(
    config: Config,
    *,
    device: str | Device | None = None,
    folder: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
) -> Prepared:
    """Build the run of a configuration; the same seed and device give the same result, to the last bit.

    Args:
        config: from :func:`dl4all.training.read_config`.
        device, folder: override those of the configuration.
        callbacks, progress: as for :class:`dl4all.Trainer`.

    Raises:
        ConfigError: the parts do not fit each other, or a number is out of its range.

    Example:
        >>> import dl4all as dl
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "xor.toml")
        >>> _ = path.write_text('''
        ... epochs = 300
        ... data = {name = "xor", batch_size = 4, test = 0.0}
        ... model = {name = "mlp", hidden = [8]}
        ... optimizer = {name = "Adam", lr = 0.03}
        ... ''')
        >>> run = dl.training.prepare(dl.training.read_config(path), device="cpu", progress=False)
        >>> run.fit()["binary_accuracy"][-1]
        1.0
    """
    try:
        return _prepare(config, device or config.run.device, folder or config.run.folder, callbacks, progress)
    except ConfigError:
        raise
    except Dl4allError as error:
        if isinstance(error, ValueError):  # an op or a class refused an argument from the file
            raise ConfigError(f"{config.path}: {error}") from error
        raise


def _prepare(
    config: Config,
    device: str | Device,
    folder: str | Path | None,
    callbacks: Sequence[Callback],
    progress: bool,
) -> Prepared:
    run, loop, batch = config.run, config.loop, config.loading.batch_size
    manual_seed(run.seed)
    train, test = _data_sets(config)
    inputs, targets = train.arrays
    classes = targets.shape[1] if targets.ndim > 1 else int(targets.max()) + 1
    model = network_of(config.model, inputs.shape[1:], classes)
    with no_grad():  # a mismatch of data and network is an error before the first epoch
        model.eval()(from_numpy(inputs[:1].copy()))
    loader = DataLoader(train, batch, shuffle=True, device=device)
    optimizer = config.optimizer.make(model.parameters(), **config.optimizer.options)
    steps = -(-len(loader) // loop.accumulate) * run.epochs
    known = arguments(config.schedule.make) if config.schedule else {}
    lengths = {"T_max": run.epochs, "total_steps": steps}
    schedule = config.schedule and config.schedule.make(
        optimizer, **{**{k: v for k, v in lengths.items() if k in known}, **config.schedule.options}
    )
    binary = kind_of(targets.dtype) == "f"
    trainer = Trainer(
        model,
        nn.BCEWithLogitsLoss() if binary else nn.CrossEntropyLoss(),
        optimizer,
        loop.metrics or ["binary_accuracy" if binary else "accuracy"],
        device,
        scheduler=schedule,
        scheduler_interval="step" if "total_steps" in known else "epoch",
        accumulate=loop.accumulate,
        clip_norm=loop.clip_norm,
        ema=None if loop.ema is None else EMA(model.parameters(), loop.ema),
        folder=folder,
        keep=loop.keep,
        checkpoint_every=loop.checkpoint_every,
        callbacks=callbacks,
        stop_on_nan=loop.stop_on_nan,
        compile=loop.compile,
        precision=loop.precision,
        progress=progress,
    )
    return Prepared(config, trainer, loader, None if test is None else DataLoader(test, 256, device=device))


def _data_sets(config: Config) -> tuple[TensorDataset, TensorDataset | None]:
    """The training set and the validation set; the split does not depend on the run's seed."""
    loading = config.loading
    if not 0 <= loading.test < 1 or loading.shift < 0:
        raise ConfigError(
            f"{config.path}: test in [data] is a share below 1, shift at least 0; got {loading.test} and "
            f"{loading.shift}"
        )
    whole: TensorDataset = config.data.make(**config.data.options)
    train, test = whole, None
    if loading.test:
        parts = random_split(whole, (1 - loading.test, loading.test))
        train, test = (TensorDataset(*whole[part.indices]) for part in parts)
    return (shifted(train, loading.shift) if loading.shift else train), test


def network_of(table: ConfigTable, sample: Sequence[int], classes: int) -> nn.Module:
    """The network of a table ``[model]``; what the table leaves open follows from the data.

    Args:
        table: as :func:`dl4all.training.read_config` gives it.
        sample: the shape of an input without the batch axis.
        classes: how many numbers an output has.
    """
    known = inspect.signature(table.make).parameters
    sizes = {"in_features": math.prod(sample), "in_channels": [*sample, 1][0], "num_classes": classes}
    derived = {name: size for name, size in sizes.items() if name in known}
    made: nn.Module = table.make(**table.options, **derived)
    return made
