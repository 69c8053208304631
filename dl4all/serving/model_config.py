"""The settings of a served model: ``config.toml`` beside its versions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dl4all.errors import ConfigError
from dl4all.serving.datatypes import DATATYPES
from dl4all.training.config import TableReader, arguments, nearest, read_tables

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
"""Names of models; no path is one."""


@dataclass(frozen=True)
class TensorSpec:
    """The name, datatype and shape of an input or output; -1 is a size that requests choose.

    Example:
        >>> import dl4all as dl
        >>> dl.serving.TensorSpec("image", "FP32", (-1, 3, 224, 224)).open_sizes
        0
    """

    name: str
    datatype: str
    shape: Sequence[int]
    """Of a batch: the first size is -1."""

    @property
    def open_sizes(self) -> int:
        """The number of sizes that requests choose, beside the batch's."""
        return [*self.shape[1:]].count(-1)

    def takes(self, shape: Sequence[int]) -> bool:
        """Whether a tensor may have this shape."""
        return len(shape) == len(self.shape) and all(
            own in (-1, size) for own, size in zip(self.shape, shape, strict=True)
        )


@dataclass(frozen=True)
class ModelConfig:
    """The inputs and outputs of a served model, and the limits of its batches.

    Example:
        >>> import dl4all as dl
        >>> spec = dl.serving.TensorSpec("x", "FP32", (-1, 4))
        >>> dl.serving.ModelConfig((spec,), (spec,), max_batch_size=8).max_queue_size
        1024
    """

    inputs: tuple[TensorSpec, ...]
    """In the order of the module's arguments."""
    outputs: tuple[TensorSpec, ...]
    """In the order of what the module returns, or by name where that is a dict."""
    max_batch_size: int = 32
    """Rows that are computed together, at most."""
    max_queue_delay_microseconds: int = 0
    """The time that a request waits for others although a device is free."""
    max_queue_size: int = 1024
    """Rows that wait, at most; further requests are refused at once."""
    timeout_seconds: float = 60.0
    """After which a request is given up."""
    devices: Sequence[str] = ()
    """Names, or ``"all"``; without them those of the server."""
    compile: bool = False
    """Record the model's work for each batch size that occurs."""


TENSORS = ("inputs", "outputs")


def read_model_config(path: Path) -> ModelConfig:
    """Read and check a ``config.toml``. Without ``[[inputs]]`` and ``[[outputs]]`` both are empty.

    Raises:
        ConfigError: the file cannot be read, or a key or value is unknown, missing or of another type.
    """
    reader = read_tables(path)
    settings = {key: value for key, value in reader.content.items() if key not in TENSORS}
    known = {key: hint for key, hint in arguments(ModelConfig).items() if key not in TENSORS}
    reader.check("the file", settings, known, also=TENSORS)
    inputs, outputs = (_specs(reader, key) for key in TENSORS)
    return checked_config(ModelConfig(inputs, outputs, **settings), str(path))


def _specs(reader: TableReader, key: str) -> tuple[TensorSpec, ...]:
    tables = reader.content.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
        raise ConfigError(f"{reader.path}: expected tables [[{key}]]")
    return tuple(reader.dataclass(f"[[{key}]]", dict(table), TensorSpec) for table in tables)


def checked_config(config: ModelConfig, source: str) -> ModelConfig:
    """The same settings.

    Args:
        config: the settings.
        source: at the beginning of a message.

    Raises:
        ConfigError: a number is out of its range, or an input or output is none.
    """
    lowest = {"max_batch_size": 1, "max_queue_delay_microseconds": 0, "max_queue_size": 1}
    for name, least in lowest.items():
        if getattr(config, name) < least:
            raise ConfigError(f"{source}: {name} must be at least {least}, got {getattr(config, name)}")
    if not 0 < config.timeout_seconds <= 86400:
        raise ConfigError(f"{source}: timeout_seconds must be a part of a day, got {config.timeout_seconds}")
    for key in TENSORS:
        specs: tuple[TensorSpec, ...] = getattr(config, key)
        for spec in specs:
            _check_spec(spec, f"{source}: [[{key}]] {spec.name!r}")
        names = [spec.name for spec in specs]
        if len({*names}) < len(names):
            raise ConfigError(f"{source}: [[{key}]] has a name twice: {', '.join(sorted(names))}")
    return config


def _check_spec(spec: TensorSpec, source: str) -> None:
    if not spec.name or len(spec.name) > 200:
        raise ConfigError(f"{source}: a name has 1 to 200 characters")
    if spec.datatype not in DATATYPES:
        raise ConfigError(
            f"{source}: there is no datatype {spec.datatype!r}{nearest(spec.datatype, DATATYPES)}; use one "
            f"of {', '.join(DATATYPES)}"
        )
    if not 1 <= len(spec.shape) <= 8 or spec.shape[0] != -1:
        raise ConfigError(
            f"{source}: a shape has 1 to 8 sizes, the first of them -1, the batch; got {[*spec.shape]}"
        )
    if any(size != -1 and size < 1 for size in spec.shape):
        raise ConfigError(f"{source}: a size is -1 or at least 1; got {[*spec.shape]}")
