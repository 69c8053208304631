"""Every public name of the last version still exists and takes what it took.

``tests/public_api.txt`` holds them with their parameters. New names need no line; at a release, write the
file anew: ``python -m tests.test_public_api > tests/public_api.txt``.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

import dl4all as dl

SPACES = (
    "dl4all", "dl4all.ops", "dl4all.nn", "dl4all.nn.functional", "dl4all.nn.init", "dl4all.nn.utils",
    "dl4all.nn.utils.rnn", "dl4all.optim", "dl4all.optim.lr_scheduler", "dl4all.autograd", "dl4all.data",
    "dl4all.io", "dl4all.models", "dl4all.training", "dl4all.memory", "dl4all.errors",
)  # fmt: skip

RENAMED = {
    "dl4all.ops.attention": "dl4all.ops.flash_attention",
    "dl4all.ops.attention_backward": "dl4all.ops.flash_attention_backward",
    "dl4all.ops.between": "dl4all.ops.in_range",
    "dl4all.ops.limit": "dl4all.ops.clamp_unchecked",
    "dl4all.ops.pick": "dl4all.ops.take_rows",
    "dl4all.ops.pick_backward": "dl4all.ops.take_rows_backward",
    "dl4all.ops.put": "dl4all.ops.put_rows",
}
"""Ops that only the library itself calls, and have the field's name now."""

DEFAULT_DTYPE = "a dtype of None stands for dl.get_default_dtype()"
NAMES = "has PyTorch's names of parameters"
ORDER = "has PyTorch's parameters in PyTorch's order, with its defaults"

CHANGED = {
    "dl4all.data.DataLoader": "parameters in PyTorch's order; seed=None draws from the default generator",
    "dl4all.data.random_split": "lengths, as in PyTorch, for what was fractions",
    "dl4all.finfo": "the parameter `type` as PyTorch has it, which may be left out",
    "dl4all.Device": "opens a device by its name; of_backend makes one",
    **{
        f"dl4all.{name}": DEFAULT_DTYPE
        for name in [
            "empty",
            "eye",
            "linspace",
            "logspace",
            "ones",
            "rand",
            "randn",
            "scalar_tensor",
            "zeros",
        ]
    },
    "dl4all.from_numpy": "without a device data is on the CPU, but comes along to another one",
    "dl4all.full": "its first parameter has PyTorch's name, size",
    "dl4all.randint": "low may be left out; a dtype of None is int64",
    **{
        f"{space}.{name}": NAMES
        for space in ["dl4all", "dl4all.ops", "dl4all.Tensor"]
        for name in ["broadcast_to", "pow", "searchsorted", "split", "swapaxes"]
        if (space, name) != ("dl4all.Tensor", "searchsorted")
    },
    "dl4all.Tensor.__pow__": NAMES,
    "dl4all.Tensor.as_strided": NAMES,
    **{
        f"{space}.{name}": "unbiased may say what correction does; neither stands for a correction of 1"
        for space in ["dl4all", "dl4all.ops", "dl4all.Tensor"]
        for name in ["std", "std_mean", "var", "var_mean"]
        if space != "dl4all.Tensor" or not name.endswith("_mean")
    },
    **{
        f"{space}.{name}": "a dim of None stands for the axis that PyTorch takes then, not always the last"
        for space in ["dl4all", "dl4all.ops", "dl4all.nn.functional", "dl4all.Tensor"]
        for name in ["log_softmax", "softmax", "softmin"]
        if name != "softmin" or space in ("dl4all.ops", "dl4all.nn.functional")
    },
    **{
        f"dl4all.nn.{name}": ORDER
        for name in ["LogSoftmax", "ModuleList", "Parameter", "ParameterList", "Softmax", "Softmin"]
    },
    "dl4all.autograd.grad": "allow_unused=None is what materialize_grads is, so False by default",
    "dl4all.grad": "the same function",
    "dl4all.nn.functional.elu": "takes inplace after alpha, as in PyTorch; the scales go by name",
    "dl4all.ops.elu": "the same function",
    "dl4all.ops.in_place": "takes the function instead of its name",
}
"""Each with what it takes now."""

GONE = {
    "dl4all.Tensor.levels": "the samples of vmap have a class of their own, which has them",
    "dl4all.Tensor.record": "is grad_meta now",
    "dl4all.Tensor.viewed": "is view_of now",
}
"""Fields of tensors that only the library itself read, and no page named."""


def parameters(thing: Any, *, method: bool) -> str:
    """Names and defaults, without types and a method's tensor; "" for what cannot be called."""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()][method:]
    if any(" at 0x" in str(p) for p in plain):  # a default that prints its address
        plain = [p.replace(default=...) if p.default is not p.empty else p for p in plain]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))


def public() -> Iterator[tuple[str, Any]]:
    """All public names and what they are."""
    for space in SPACES:
        module = importlib.import_module(space)
        listed = getattr(module, "__all__", None) or [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", "") == space
        ]
        for name in sorted(set(listed)):
            yield f"{space}.{name}", getattr(module, name)
    for name in sorted(set(dir(dl.Tensor)) - set(dir(object))):
        thing = inspect.getattr_static(dl.Tensor, name)
        if not hasattr(dl.Tensor, name):  # it is there to say why not
            continue
        if not name.startswith("_") or (name.startswith("__") and callable(thing)):
            yield f"dl4all.Tensor.{name}", thing


def lines() -> Iterator[str]:
    for name, thing in public():
        if not isinstance(thing, ModuleType):
            yield name + parameters(thing, method=name.startswith("dl4all.Tensor."))


KNOWN = (Path(__file__).parent / "public_api.txt").read_text("utf-8").splitlines()


@pytest.fixture(scope="module")
def now() -> dict[str, str]:
    return {line.partition("(")[0]: line for line in lines()}


class Parameters(NamedTuple):
    """What a function takes; each default is text, "" for none."""

    by_position: list[tuple[str, str]]
    by_name: dict[str, str]
    any_position: bool
    any_name: bool


def split_parameters(text: str) -> Parameters:
    """Parameters from a line of the list, from behind the opening bracket."""
    by_position: list[tuple[str, str]] = []
    by_name: dict[str, str] = {}
    any_position = names_only = any_name = False
    for part in re.split(r", (?![^(\[<]*[)\]>])", text.removesuffix(")")):
        name, _, default = part.partition("=")
        if part.startswith("**"):
            any_name = True
        elif part.startswith("*"):
            names_only, any_position = True, part != "*"
        elif part and part != "/":
            if not names_only:
                by_position.append((name, default))
            by_name[name] = default
    return Parameters(by_position, by_name, any_position, any_name)


def takes_as_much(now: str, before: str) -> bool:
    """Whether each call of before is one of now, with the same defaults, or names stand for ``*args``."""
    if before == "*args, **kwargs)":
        return True
    new, old = split_parameters(now), split_parameters(before)
    optional = (default for name, default in new.by_name.items() if name not in old.by_name)
    return (
        [name for name, _ in new.by_position[: len(old.by_position)]] == [name for name, _ in old.by_position]
        and all(not default or new.by_name.get(name) == default for name, default in old.by_name.items())
        and (old.by_name.keys() <= new.by_name.keys() or new.any_name)
        and all(optional)
        and ((new.any_position and len(new.by_position) == len(old.by_position)) or not old.any_position)
        and (new.any_name or not old.any_name)
    )


@pytest.mark.parametrize(
    ("now", "before", "expected"),
    [
        ("a, b=1)", "a, b=1)", True),
        ("a, b=1, c=2)", "a, b=1)", True),
        ("a, b=1, *, c=2)", "a, b=1)", True),
        ("a, *, b=1, c)", "a, *, b=1)", False),
        ("a, c, b=1)", "a, b=1)", False),
        ("a)", "a, b=1)", False),
        ("a=1)", ")", True),
        ("a)", ")", False),
        ("a, b=2)", "a, b=1)", False),
        ("a, b=2)", "a, b)", True),
        ("a, b=1, c=2)", "a, *, c=2)", True),
        ("a, b=1, c=3)", "a, *, c=2)", False),
        ("a, b=1)", "a, *, c=2)", False),
        ("a, *sizes, **named)", "a, *dims)", True),
        ("a, b=1, *sizes)", "a, *dims)", False),
        ("a)", "a, *dims)", False),
        ("a)", "a, **options)", False),
        ("a, b=(1, 2), c=<x, y>)", "a, b=(1, 2), c=<x, y>)", True),
        ("dim)", "*args, **kwargs)", True),
    ],
)
def test_the_rule_itself(now: str, before: str, expected: bool) -> None:
    assert takes_as_much(now, before) == expected


@pytest.mark.parametrize("space", sorted({line.partition("(")[0].rpartition(".")[0] for line in KNOWN}))
def test_public_names_stay(space: str, now: dict[str, str]) -> None:
    changed = {}
    for line in KNOWN:
        name, _, arguments = line.partition("(")
        if name.rpartition(".")[0] == space and name not in CHANGED and name not in GONE:
            there = now.get(RENAMED.get(name, name))
            if there is None or not takes_as_much(there.partition("(")[2], arguments):
                changed[line] = there or "is gone"
    assert not changed


def test_what_is_excused_has_changed(now: dict[str, str]) -> None:
    before = {name: arguments for name, _, arguments in (line.partition("(") for line in KNOWN)}
    assert not CHANGED.keys() - before.keys()
    kept = [name for name in CHANGED if takes_as_much(now.get(name, "").partition("(")[2], before[name])]
    assert kept == []
    assert not GONE.keys() & now.keys()


if __name__ == "__main__":
    print("\n".join(lines()))
