"""Training runs from a TOML file: reading one, and what a mistake in it says.

What may stand in a table are the arguments of the function or class that it names, so there is no second
list of them.
"""

from __future__ import annotations

import difflib
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dl4all import data, models, optim
from dl4all.errors import ConfigError
from dl4all.optim import lr_scheduler

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Factory = Callable[..., Any]
Table = dict[str, Any]

_SOURCES = ("xor", "spiral", "blobs", "digits", "mnist5k", "iris", "wine", "breast_cancer")
_NETWORKS = (
    *("resnet18", "resnet34", "resnet50", "mobilenet_v2"),
    *("vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn"),
)
_NO_OPTIMIZERS = ("EMA", "Optimizer", "lr_scheduler")
_NO_SCHEDULES = ("LRScheduler", "LambdaLR", "SequentialLR")  # they take functions or other schedules

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
# Arguments that follow from the data or are made of other tables.
GIVEN = ("in_features", "in_channels", "num_classes", "params", "optimizer", "last_epoch")


@dataclass(frozen=True)
class Run:
    """What stands above the tables."""

    epochs: int
    seed: int = 0
    device: str = "auto"
    folder: str | None = None


@dataclass(frozen=True)
class Loading:
    """What ``[data]`` takes beside the arguments of the data set."""

    batch_size: int = 32
    test: float = 0.2  # the share that is held out
    shift: int = 0  # images are learned moved by so many pixels, too


@dataclass(frozen=True)
class Loop:
    """What ``[trainer]`` takes: arguments of :class:`dl4all.Trainer` and of its ``fit``."""

    accumulate: int = 1
    clip_norm: float | None = None
    ema: float | None = None  # the decay of an average of the parameters
    keep: int = 3
    checkpoint_every: int | None = None
    patience: int | None = None
    monitor: str | None = None
    metrics: Sequence[str] = ()
    stop_on_nan: bool = True


@dataclass(frozen=True)
class Part:
    """A table with a name: what it stands for, and the arguments."""

    name: str
    make: Factory
    options: Table


@dataclass(frozen=True)
class Config:
    """A whole file."""

    path: str
    run: Run
    data: Part
    loading: Loading
    model: Part
    optimizer: Part
    schedule: Part | None
    loop: Loop


def read_config(path: str | Path) -> Config:
    """Read and check a file; :func:`dl4all.training.prepare` makes a run of it.

    Raises:
        ConfigError: it cannot be read, or a table, key or value is unknown, missing or of another kind;
            the message names the nearest one that is known.

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
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: is no TOML: {error}") from None
    reader = _Reader(str(path), found)
    above = {name: value for name, value in found.items() if name not in _Reader.TABLES}
    run = reader.filled("the file", above, Run, also=_Reader.TABLES)
    source, rest = reader.named("data", DATA, Loading)
    return Config(
        str(path),
        run,
        source,
        reader.filled("[data]", rest, Loading),
        reader.named("model", MODELS)[0],
        reader.named("optimizer", OPTIMIZERS)[0],
        reader.named("schedule", SCHEDULES)[0] if "schedule" in found else None,
        reader.filled("[trainer]", reader.table("trainer") if "trainer" in found else {}, Loop),
    )


class _Reader:
    """Takes tables out of a file and checks them."""

    TABLES = ("data", "model", "optimizer", "schedule", "trainer")

    def __init__(self, path: str, found: Mapping[str, Any]) -> None:
        self.path, self.found = path, found

    def table(self, name: str) -> Table:
        table = self.found.get(name)
        if not isinstance(table, dict):
            raise ConfigError(f"{self.path}: there must be a table [{name}]")
        return table

    def named(
        self, table: str, known: Mapping[str, Factory], beside: Factory | None = None
    ) -> tuple[Part, Table]:
        """What a table names with the arguments for it, and the keys that belong to `beside`."""
        given = dict(self.table(table))
        name = given.pop("name", None)
        if name is None:
            raise ConfigError(f"{self.path}: [{table}] has no name; known are {', '.join(known)}")
        if name not in known:
            raise ConfigError(
                f"{self.path}: [{table}] has no {name!r}{nearest(name, known)}; known are {', '.join(known)}"
            )
        others = {} if beside is None else arguments(beside)
        rest = {key: given.pop(key) for key in others if key in given}
        self.check(f"[{table}]", given, arguments(known[name]), others)
        return Part(name, known[name], given), rest

    def filled(self, where: str, given: Table, kind: Factory, also: Iterable[str] = ()) -> Any:
        """A dataclass from the keys of a table."""
        known = arguments(kind)
        self.check(where, given, known, also)
        for name, parameter in inspect.signature(kind).parameters.items():
            if parameter.default is parameter.empty and name not in given:
                raise ConfigError(f"{self.path}: {where} must say {name}")
        return kind(**given)

    def check(self, where: str, given: Table, known: Mapping[str, Any], also: Iterable[str] = ()) -> None:
        every = sorted({*known, *also})
        for key, value in given.items():
            if key in GIVEN:
                raise ConfigError(f"{self.path}: {key!r} in {where} follows from the rest; leave it out")
            if key not in known:
                raise ConfigError(
                    f"{self.path}: unknown key {key!r} in {where}{nearest(key, every)}; known are "
                    f"{', '.join(every)}"
                )
            if not fits(value, known[key]):
                raise ConfigError(
                    f"{self.path}: {key} in {where} must be {readable(known[key])}, not {value!r}"
                )


def nearest(word: str, known: Iterable[str]) -> str:
    """``", did you mean 'lr'?"``, or nothing where no known word is near.

    >>> nearest("adamw", ["SGD", "AdamW"])
    " (did you mean 'AdamW'?)"
    """
    folded = {name.casefold(): name for name in known}
    found = difflib.get_close_matches(str(word).casefold(), folded, 1)
    return f" (did you mean {folded[found[0]]!r}?)" if found else ""


def arguments(factory: Factory) -> dict[str, Any]:
    """The arguments of a function or class that a file may give, with their types."""
    hints = typing.get_type_hints(factory.__init__ if inspect.isclass(factory) else factory)
    names = inspect.signature(factory).parameters
    return {name: hints.get(name, Any) for name in names if name not in GIVEN}


def fits(value: Any, hint: Any) -> bool:
    """Whether a value of a TOML file is of a type.

    >>> fits(3, float), fits(True, int), fits([0.9, 0.99], tuple[float, float]), fits("x", int | None)
    (True, False, True, False)
    """
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, one) for one in inner)
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
        return " or ".join(readable(one) for one in inner if one is not type(None))
    if origin is typing.Literal:
        return f"one of {', '.join(map(repr, inner))}"
    if origin is tuple and Ellipsis not in inner:
        return f"a list of {len(inner)}: {', '.join(map(readable, inner))}"
    if origin is not None:
        return f"a list, each {readable(inner[0])}"
    words = {int: "an integer", float: "a number", str: "text", bool: "true or false"}
    return words.get(hint, str(hint))
