"""Configurations of training runs: reads and checks a TOML file.

The keys of a table are the arguments of the function or class that the table names, so there is no second
list of them.
"""

from __future__ import annotations

import difflib
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dl4all import data, models, optim
from dl4all.config import read_toml, shown
from dl4all.errors import ConfigError
from dl4all.optim import lr_scheduler
from dl4all.tensor.tensor import Tensor

Factory = Callable[..., Any]
Table = dict[str, Any]

_SOURCES = ("xor", "spiral", "blobs", "digits", "mnist5k", "iris", "wine", "breast_cancer")
_NETWORKS = (
    *("resnet18", "resnet34", "resnet50", "mobilenet_v2"),
    *("vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn"),
)
_NO_OPTIMIZERS = (
    *("EMA", "Optimizer", "lr_scheduler", "swa_utils"),
    *("LBFGS", "Muon", "SparseAdam"),  # they take a closure, matrices alone, or sparse gradients
    "ZeroRedundancyOptimizer",  # takes a class
)
_NO_SCHEDULES = (  # they take functions or other schedules
    *("LRScheduler", "ChainedScheduler", "LambdaLR", "MultiplicativeLR", "SequentialLR"),
)

DATA: dict[str, Factory] = {name: getattr(data, name) for name in _SOURCES}
MODELS: dict[str, Factory] = {
    "mlp": models.MLP,
    "lenet": models.LeNet,
    **{name: getattr(models, name) for name in _NETWORKS},
}
OPTIMIZERS: dict[str, Factory] = {
    name: getattr(optim, name) for name in optim.__all__ if name not in _NO_OPTIMIZERS
}
SCHEDULES: dict[str, Factory] = {
    name: getattr(lr_scheduler, name) for name in lr_scheduler.__all__ if name not in _NO_SCHEDULES
}
TABLES = ("data", "model", "optimizer", "schedule", "trainer")
DERIVED_ARGUMENTS = ("in_features", "in_channels", "num_classes", "params", "optimizer", "last_epoch")
"""Arguments that follow from the data or from other tables; a file cannot give them."""


@dataclass(frozen=True)
class Run:
    """The keys above the tables."""

    epochs: int
    seed: int = 0
    device: str = "auto"
    folder: str | None = None


@dataclass(frozen=True)
class Loading:
    """The keys of ``[data]`` beside the arguments of the data set."""

    batch_size: int = 32
    test: float = 0.2  # the share of samples that is held out for validation
    shift: int = 0  # by how many pixels copies of the images are shifted; see dl.data.shifted


@dataclass(frozen=True)
class Loop:
    """The keys of ``[trainer]``: arguments of :class:`dl4all.Trainer` and of its ``fit``."""

    accumulate: int = 1
    clip_norm: float | None = None
    ema: float | None = None  # the decay of an exponential moving average of the parameters
    keep: int = 3
    checkpoint_every: int | None = None
    patience: int | None = None
    monitor: str | None = None
    metrics: Sequence[str] = ()
    stop_on_nan: bool = True
    compile: bool = False
    precision: Literal["fp32", "fp16", "bf16"] = "fp32"


@dataclass(frozen=True)
class ConfigTable:
    """A table with a name: the function or class of that name, and the arguments."""

    name: str
    make: Factory
    options: Table


@dataclass(frozen=True)
class Config:
    """A checked file.

    Example:
        >>> import dl4all as dl
        >>> import pathlib
        >>> text = 'epochs = 2\\ndata.name = "xor"\\nmodel.name = "mlp"\\noptimizer.name = "SGD"'
        >>> size = pathlib.Path("xor.toml").write_text(text)
        >>> config = dl.training.read_config("xor.toml")
        >>> config.run.epochs, config.model.name
        (2, 'mlp')
    """

    path: str
    run: Run
    data: ConfigTable
    loading: Loading
    model: ConfigTable
    optimizer: ConfigTable
    schedule: ConfigTable | None
    loop: Loop


def read_tables(path: str | Path) -> TableReader:
    """The content of a TOML file, whose tables are to be checked.

    Raises:
        ConfigError: it cannot be read, or is no TOML.
    """
    try:
        return TableReader(str(path), read_toml(Path(path)))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: is no TOML: {error}") from None


def read_config(path: str | Path) -> Config:
    """Read and check a file; :func:`dl4all.training.prepare` builds the run that it describes.

    Raises:
        ConfigError: the file cannot be read, or a table, key or value is unknown, missing or of another
            type; the message names the most similar known one.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "xor.toml")
        >>> _ = path.write_text('''
        ... epochs = 300
        ... data = {name = "xor", batch_size = 4, test = 0.0}
        ... model = {name = "mlp", hidden = [8]}
        ... optimizer = {name = "Adam", lr = 0.03}
        ... ''')
        >>> read_config(path).model.options
        {'hidden': [8]}
    """
    reader = read_tables(path)
    content = reader.content
    top_level = {name: value for name, value in content.items() if name not in TABLES}
    run = reader.dataclass("the file", top_level, Run, also=TABLES)
    source, loading = reader.part("data", DATA, Loading)
    return Config(
        str(path),
        run,
        source,
        reader.dataclass("[data]", loading, Loading),
        reader.part("model", MODELS)[0],
        reader.part("optimizer", OPTIMIZERS)[0],
        reader.part("schedule", SCHEDULES)[0] if "schedule" in content else None,
        reader.dataclass("[trainer]", reader.table("trainer") if "trainer" in content else {}, Loop),
    )


class TableReader:
    """Checks the tables of a file."""

    def __init__(self, path: str, content: Mapping[str, Any]) -> None:
        self.path, self.content = path, content

    def table(self, name: str) -> Table:
        """The table of that name, which must exist."""
        table = self.content.get(name)
        if not isinstance(table, dict):
            raise ConfigError(f"{self.path}: there must be a table [{name}]")
        return table

    def part(
        self, table: str, known: Mapping[str, Factory], extra: Factory | None = None
    ) -> tuple[ConfigTable, Table]:
        """The named part of a table with its arguments, and the keys that are arguments of `extra`."""
        options = dict(self.table(table))
        name = options.pop("name", None)
        if name is None:
            raise ConfigError(f"{self.path}: [{table}] has no name; known are {', '.join(known)}")
        if not isinstance(name, str) or name not in known:
            suggested = nearest(name, known) if isinstance(name, str) else ""
            raise ConfigError(
                f"{self.path}: [{table}] has no {shown(name)}{suggested}; known are {', '.join(known)}"
            )
        extra_types = {} if extra is None else arguments(extra)
        extra_options = {key: options.pop(key) for key in extra_types if key in options}
        self.check(f"[{table}]", options, arguments(known[name]), extra_types)
        return ConfigTable(name, known[name], options), extra_options

    def dataclass(self, where: str, options: Table, cls: Factory, also: Iterable[str] = ()) -> Any:
        """An instance of a dataclass with the keys of a table as fields."""
        known = arguments(cls)
        self.check(where, options, known, also)
        for name, parameter in inspect.signature(cls).parameters.items():
            if parameter.default is parameter.empty and name not in options:
                raise ConfigError(f"{self.path}: {where} must say {name}")
        return cls(**options)

    def check(self, where: str, options: Table, known: Mapping[str, Any], also: Iterable[str] = ()) -> None:
        """Check the names and types of a table's values; `also` are names that the message may suggest."""
        names = sorted({*known, *also})
        for key, value in options.items():
            if key in DERIVED_ARGUMENTS:
                raise ConfigError(f"{self.path}: {key!r} in {where} follows from the rest; leave it out")
            if key not in known:
                raise ConfigError(
                    f"{self.path}: unknown key {shown(key)} in {where}{nearest(key, names)}; known are "
                    f"{', '.join(names)}"
                )
            if not fits(value, known[key]):
                raise ConfigError(
                    f"{self.path}: {key} in {where} must be {readable(known[key])}, not {shown(value)}"
                )


def nearest(word: str, known: Iterable[str]) -> str:
    """The suggestion in a message, such as ``" (did you mean 'lr'?)"``; empty if no known word is similar.

    >>> nearest("adamw", ["SGD", "AdamW"])
    " (did you mean 'AdamW'?)"
    """
    folded = {name.casefold(): name for name in known}
    matches = difflib.get_close_matches(str(word).casefold(), folded, 1)
    return f" (did you mean {folded[matches[0]]!r}?)" if matches else ""


def arguments(factory: Factory) -> dict[str, Any]:
    """The arguments of a function or class that a file may give, with their types."""
    hints = typing.get_type_hints(factory.__init__ if inspect.isclass(factory) else factory)
    names = inspect.signature(factory).parameters
    return {name: hints.get(name, Any) for name in names if name not in DERIVED_ARGUMENTS}


def fits(value: Any, hint: Any) -> bool:
    """Whether a value of a TOML file is of a type.

    >>> fits(3, float), fits(True, int), fits([0.9, 0.99], tuple[float, float]), fits("x", int | None)
    (True, False, True, False)
    """
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, member) for member in inner)
    if origin is typing.Literal:
        return value in inner
    if origin is tuple and Ellipsis not in inner:
        return isinstance(value, list) and len(value) == len(inner) and all(map(fits, value, inner))
    if origin is not None:  # Sequence[X], list[X], tuple[X, ...]
        return isinstance(value, list) and all(fits(entry, inner[0]) for entry in value)
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    return isinstance(value, hint)


def readable(hint: Any) -> str:
    """A type in words.

    >>> readable(int | None), readable(tuple[float, float])
    ('an integer', 'a list of 2: a number, a number')
    """
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        shown_members = [member for member in inner if member not in (type(None), Tensor)]  # TOML has neither
        return " or ".join(map(readable, shown_members))
    if origin is typing.Literal:
        return f"one of {', '.join(map(repr, inner))}"
    if origin is tuple and Ellipsis not in inner:
        return f"a list of {len(inner)}: {', '.join(map(readable, inner))}"
    if origin is not None:
        return f"a list, each {readable(inner[0])}"
    words = {int: "an integer", float: "a number", str: "text", bool: "true or false"}
    return words.get(hint, str(hint))
