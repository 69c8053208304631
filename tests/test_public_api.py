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
from typing import Any

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

CHANGED = {
    "dl4all.data.DataLoader": "parameters in PyTorch's order; seed=None draws from the default generator",
    "dl4all.data.random_split": "lengths, as in PyTorch, for what was fractions",
    "dl4all.Device": "opens a device by its name; of_backend makes one",
    "dl4all.Tensor": "takes what torch.Tensor takes as well",
    "dl4all.Tensor.result_class": "the same class",
    **dict.fromkeys(
        (
            f"dl4all.{name}"
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
        ),
        DEFAULT_DTYPE,
    ),
    "dl4all.full": "its first parameter has PyTorch's name, size",
    "dl4all.randint": "low may be left out; a dtype of None is int64",
    **dict.fromkeys(
        (
            f"dl4all.nn.{name}"
            for name in [
                "BCELoss",
                "BCEWithLogitsLoss",
                "BatchNorm1d",
                "BatchNorm2d",
                "BatchNorm3d",
                "CosineEmbeddingLoss",
                "CrossEntropyLoss",
                "Embedding",
                "EmbeddingBag",
                "GroupNorm",
                "HingeEmbeddingLoss",
                "InstanceNorm1d",
                "InstanceNorm2d",
                "InstanceNorm3d",
                "KLDivLoss",
                "L1Loss",
                "LogSoftmax",
                "MSELoss",
                "MarginRankingLoss",
                "ModuleList",
                "MultiLabelMarginLoss",
                "MultiLabelSoftMarginLoss",
                "MultiMarginLoss",
                "MultiheadAttention",
                "NLLLoss",
                "Parameter",
                "ParameterList",
                "PoissonNLLLoss",
                "Sequential",
                "SmoothL1Loss",
                "SoftMarginLoss",
                "Softmax",
                "Softmin",
                "TripletMarginLoss",
            ]
        ),
        "has PyTorch's parameters in PyTorch's order, with its defaults",
    ),
    **dict.fromkeys(
        (f"dl4all.optim.{name}" for name in ["Adadelta", "Adagrad", "Adam", "AdamW", "RMSprop", "SGD"]),
        "has PyTorch's parameters in PyTorch's order, with its defaults",
    ),
    "dl4all.nn.functional.elu": "takes inplace after alpha, as in PyTorch; the scales go by name",
    "dl4all.ops.elu": "the same function",
    "dl4all.ops.div": "is dl.div now; the op itself is ops.true_divide, as NumPy calls it",
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


def takes_as_much(now: str, before: str) -> bool:
    """Whether the parameters are the same, but for new optional ones, or names instead of ``*args``."""
    if before == "*args, **kwargs)":
        return True
    now, before = (re.sub(r"\*\*\w+", "**options", text) for text in (now, before))
    start = "" if before == ")" else before.removesuffix(")") + ", "
    if now == before or not now.startswith(start):
        return now == before
    return all("=" in new or new == "*" for new in now.removeprefix(start).removesuffix(")").split(", "))


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


if __name__ == "__main__":
    print("\n".join(lines()))
