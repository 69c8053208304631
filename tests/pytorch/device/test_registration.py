"""What is registered with PyTorch, beside what PyTorch's own tables say of its ops."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")

import dl4all.torch  # noqa: E402, F401 - registers the kernels
from dl4all.pytorch.device.dispatch.registration import FUNCTIONS, KERNELS, has_overload  # noqa: E402

SEEN_BY_META_KERNELS = [
    "add", "div.floor_rounding", "pow", "where", "lerp", "sum", "prod", "argmax", "var", "cumsum", "softmax",
    "matmul", "addmm", "cat", "index_select", "scatter", "index_put", "tril", "roll", "sort",
    "nn.functional.conv2d", "nn.functional.avg_pool2d", "nn.functional.layer_norm",
    "nn.functional.embedding", "nn.functional.mse_loss",
]  # fmt: skip
"""Ops whose samples reach most kinds of kernels."""


def has_kernel(name: str, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key))


def test_no_op_that_pytorch_composes_loses_its_gradient() -> None:
    composed = [
        name for name in KERNELS if has_overload(name) and has_kernel(name, "CompositeImplicitAutograd")
    ]
    assert [name for name in composed if not has_kernel(name, "Autograd")] == []


def test_every_form_of_a_declared_op_has_a_kernel() -> None:
    torchgen = pytest.importorskip("torchgen", reason="this build of PyTorch has no torchgen")
    from torchgen.gen import get_grouped_native_functions, parse_native_yaml
    from torchgen.model import NativeFunctionsGroup

    tables = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"
    parsed = parse_native_yaml(str(tables / "native_functions.yaml"), str(tables / "tags.yaml"))
    grouped = get_grouped_native_functions(parsed.native_functions)
    groups = {str(one.functional.func.name): one for one in grouped if isinstance(one, NativeFunctionsGroup)}
    declared = {name: groups[name] for name in FUNCTIONS if name in groups}
    assert len(declared) > len(FUNCTIONS) / 2
    forms = [
        form for one in declared.values() for form in (one.inplace, one.mutable, one.out) if form is not None
    ]
    assert [str(form.func.name) for form in forms if str(form.func.name) not in KERNELS] == []


def test_kernels_agree_with_pytorchs_meta_kernels() -> None:
    pytest.importorskip("expecttest", reason="PyTorch's databases import it")
    from lab.torch_databases import runs
    from lab.torch_databases.runs import Run

    rows = runs.check(Run("metas", mode="fallback"), SEEN_BY_META_KERNELS, lambda row: None)
    assert {row["name"]: row["why"] for row in rows if row["status"] != "native"} == {}
    assert sum(row["samples"] for row in rows) > len(SEEN_BY_META_KERNELS)
