"""Functions take ``axis`` and ``keepdims`` for ``dim`` and ``keepdim``, as PyTorch's do."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops.core.arguments.numpy_names import TORCH_NAMES

torch = pytest.importorskip("torch", reason="results are compared with PyTorch's")

VALUES = np.random.default_rng(22).standard_normal((3, 5, 4)).astype(np.float32)

CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("sum", {"axis": 1, "keepdims": True}),
    ("mean", {"axis": (0, 2), "keepdims": True}),
    ("prod", {"axis": -1}),
    ("argmax", {"axis": 1, "keepdims": True}),
    ("amax", {"axis": (0, 1), "keepdims": True}),
    ("max", {"axis": 1, "keepdims": True}),
    ("min", {"axis": 1}),
    ("median", {"axis": 2}),
    ("std", {"axis": 0, "keepdims": True}),
    ("var", {"axis": (0, 2)}),
    ("logsumexp", {"axis": 1, "keepdims": True}),
    ("softmax", {"axis": 1}),
    ("log_softmax", {"axis": 1}),
    ("cumsum", {"axis": 1}),
    ("sort", {"axis": 1, "descending": True}),
    ("argsort", {"axis": 1}),
    ("topk", {"k": 2, "axis": 1}),
    ("unsqueeze", {"axis": 1}),
    ("squeeze", {"axis": 1}),
    ("chunk", {"chunks": 2, "axis": 1}),
    ("unbind", {"axis": 1}),
    ("diff", {"axis": 1}),
    ("repeat_interleave", {"repeats": 2, "axis": 1}),
    ("count_nonzero", {"axis": 1}),
    ("select", {"axis": 1, "index": 3}),
    ("narrow", {"axis": 1, "start": 1, "length": 2}),
)


def arrays(result: Any) -> list[np.ndarray[Any, Any]]:
    """The result's elements, of several tensors each one's."""
    return [part.numpy() for part in (result if isinstance(result, (tuple, list)) else (result,))]


@pytest.mark.parametrize(("name", "arguments"), CALLS, ids=[name for name, _ in CALLS])
def test_functions_and_methods_give_what_pytorch_gives(
    name: str, arguments: dict[str, Any], device: str
) -> None:
    x = dl.tensor(VALUES, device=device)
    expected = arrays(getattr(torch, name)(torch.from_numpy(VALUES), **arguments))
    for found in (getattr(dl, name)(x, **arguments), getattr(x, name)(**arguments)):
        for ours, theirs in zip(arrays(found), expected, strict=True):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["cat", "concat", "stack"])
def test_lists_of_tensors_are_joined_along_an_axis(name: str, device: str) -> None:
    pair = [dl.tensor(VALUES, device=device), dl.tensor(VALUES * 2, device=device).flip(0)]
    expected = getattr(torch, name)([torch.from_numpy(part.numpy()) for part in pair], axis=1)
    np.testing.assert_array_equal(getattr(dl, name)(pair, axis=1).numpy(), expected.numpy())


def test_out_and_norms_take_them_too() -> None:
    x = dl.tensor(VALUES, device="cpu")
    target = dl.empty(0, device="cpu")
    functions: Any = dl
    assert functions.sum(x, axis=1, keepdims=True, out=target) is target
    np.testing.assert_allclose(target.numpy(), VALUES.sum(1, keepdims=True), rtol=1e-5, atol=1e-6)
    for function in (functions.linalg.norm, functions.linalg.vector_norm):
        found = function(x, axis=1, keepdims=True)
        np.testing.assert_allclose(found.numpy(), np.linalg.norm(VALUES, axis=1, keepdims=True), rtol=1e-5)


def test_one_name_at_a_time() -> None:
    x: Any = dl.tensor(VALUES, device="cpu")
    for call in (x.sum, x.max, x.softmax):
        with pytest.raises(TypeError, match=r"\(\) got 'axis' and 'dim', which mean the same; give one"):
            call(axis=1, dim=1)
    with pytest.raises(TypeError, match="'axis'"):
        x.exp(axis=1)
    with pytest.raises(TypeError, match="multiple values"):
        x.max(1, axis=1)


def test_every_function_with_such_a_parameter_takes_both_names() -> None:
    """Those of ``dl`` that PyTorch has in C; the parser of its arguments knows both names for all of them."""
    missing = []
    for name in dl.__all__:
        function = getattr(dl, name)
        if not callable(function) or inspect.isclass(function) or not hasattr(torch, name):
            continue
        parameters = inspect.signature(function).parameters
        if inspect.isbuiltin(getattr(torch, name)) and not parameters.keys().isdisjoint(TORCH_NAMES.values()):
            for numpy_name, torch_name in TORCH_NAMES.items():
                if torch_name in parameters:
                    message = str(refusal(function, {numpy_name: object(), torch_name: object()}))
                    if "which mean the same" not in message:
                        missing.append((name, numpy_name, message))
    assert missing == []


def refusal(function: Any, arguments: dict[str, Any]) -> Exception:
    """The error of a call with both names."""
    with pytest.raises(TypeError) as caught:
        function(dl.tensor(VALUES, device="cpu"), **arguments)
    return caught.value
