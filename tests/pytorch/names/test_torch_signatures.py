"""Functions take PyTorch's arguments, under its names and in its order; what differs stands here, and why."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import dl4all as dl

torch = pytest.importorskip("torch", reason="signatures are compared with PyTorch's")

VERSION = "2.13"  # whose signatures were looked through
SPACES: dict[str, tuple[Any, Any]] = {
    "dl": (torch, dl),
    "F": (torch.nn.functional, dl.nn.functional),
    "linalg": (torch.linalg, dl.linalg),
}
OF_ALL = {"generator", "out", "layout", "device", "pin_memory", "memory_format", "names", "requires_grad"}
"""Arguments of every function that makes tensors, which other files here look at."""

DIFFERENCES: dict[str, str] = {
    "tensors one by one, where PyTorch's signature has a list that its callers write as several": (
        "dl.atleast_1d dl.atleast_2d dl.atleast_3d dl.block_diag dl.broadcast_shapes dl.broadcast_tensors "
        "dl.cartesian_prod dl.chain_matmul dl.einsum dl.meshgrid"
    ),
    "sizes one by one, or by name": (
        "dl.empty dl.ones dl.rand dl.randn dl.zeros dl.reshape dl.permute dl.flip dl.tile"
    ),
    "the same positions mean several things, told apart by what is given": (
        "dl.arange dl.max dl.min dl.randint dl.randint_like dl.repeat_interleave dl.scatter dl.std "
        "dl.std_mean "
        "dl.var dl.var_mean dl.sparse_coo_tensor dl.tensor_split dl.hsplit dl.vsplit dl.dsplit dl.tensor"
    ),
    "out_dtype is of CUDA's kernels only": "dl.addmm dl.baddbmm dl.bmm dl.mm",
    "alpha by position is PyTorch's older form": "dl.rsub dl.subtract dl.add dl.sub",
    "out goes by name": "dl.norm dl.tensordot F.normalize",
    "dtype comes before an argument that has no effect": "F.softmax F.log_softmax F.softmin",
    "indices are what the function is for": (
        "F.adaptive_max_pool1d_with_indices F.adaptive_max_pool2d_with_indices "
        "F.adaptive_max_pool3d_with_indices F.max_pool1d_with_indices F.max_pool2d_with_indices "
        "F.max_pool3d_with_indices"
    ),
    "names that PyTorch documents, and its schema writes otherwise": (
        "dl.isin dl.ldexp dl.result_type dl.select dl.sort dl.unique dl.unique_consecutive "
        "F.adaptive_max_pool1d F.adaptive_max_pool2d F.adaptive_max_pool3d F.max_pool1d F.max_pool2d "
        "F.max_pool3d linalg.tensorsolve"
    ),
    "settings of PyTorch's compiler, pickle and random states": (
        "dl.compile dl.load dl.save dl.vmap dl.set_rng_state dl.set_default_device dl.from_dlpack "
    ),
    "compared by driver and tolerance in other ways": "linalg.lstsq",
    "the driver is that of CUDA": "linalg.svd linalg.svdvals",
}
REASONS = {name: why for why, names in DIFFERENCES.items() for name in names.split()}


def forms(function: Any, name: str) -> Iterator[list[tuple[str, bool]]]:
    """The names of arguments in each form that PyTorch's function has, and whether they go by name only."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # not written in Python
        for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name.replace('.', '_')}"):
            types = [str(argument.type) for argument in schema.arguments]
            is_public = types and "Tensor" in types[0] and "Dimname" not in str(schema)
            is_public = is_public and schema.arguments[0].name != "a"  # of lists in TorchScript
            if is_public and not any(argument.is_out for argument in schema.arguments):
                yield [("input" if a.name == "self" else a.name, a.kwarg_only) for a in schema.arguments]
    else:
        yield [(p.name, p.kind is p.KEYWORD_ONLY) for p in parameters]


def difference(ours: Any, theirs: Any, name: str) -> str:
    """What a function does not take as PyTorch's; empty if nothing."""
    try:
        parameters = inspect.signature(ours).parameters.values()
    except (TypeError, ValueError):
        return "no signature"
    names = {p.name for p in parameters}
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    for form in forms(theirs, name):
        if name.startswith("linalg."):  # the documentation names the first argument, the schema does not
            form[0] = positional[0], False
        unknown = [argument for argument, _ in form if argument not in names | OF_ALL]
        if unknown:
            return f"does not know {', '.join(unknown)}"
        order = [argument for argument, by_name in form if not by_name]
        if positional[: len(order)] != order:
            return f"takes {positional} for {order}"
    return ""


def differences(space: str) -> dict[str, str]:
    theirs, ours = SPACES[space]
    found = {}
    for name in dir(ours):
        mine, other = getattr(ours, name), getattr(theirs, name, None)
        if (
            name.startswith("_")
            or name.endswith("_")
            or not callable(mine)
            or not callable(other)
            or isinstance(mine, type)
        ):
            continue
        what = difference(mine, other, f"linalg.{name}" if space == "linalg" else name)
        if what:
            found[f"{space}.{name}"] = what
    return found


@pytest.mark.skipif(
    not torch.__version__.startswith(f"{VERSION}."), reason=f"the signatures are those of {VERSION}"
)
@pytest.mark.parametrize("space", SPACES)
def test_what_differs_has_a_reason(space: str) -> None:
    assert {name: what for name, what in differences(space).items() if name not in REASONS} == {}


def test_every_reason_is_for_a_function() -> None:
    for name in REASONS:
        space, _, function = name.partition(".")
        assert hasattr(SPACES[space][1], function), name


def test_the_comparison_sees_names_and_order() -> None:
    assert difference(lambda input, other: None, torch.fmax, "fmax") == ""
    assert difference(lambda x, other: None, torch.fmax, "fmax") == "does not know input"
    assert difference(lambda other, input: None, torch.fmax, "fmax").startswith("takes ['other', 'input']")
