"""Tensors given to other libraries, stored, copied and converted."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import DTypeError, GradientError
from dl4all.ops.core.dtypes import DTYPES

torch = pytest.importorskip("torch", reason="DLPack is tried with PyTorch")


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != np.bool_], ids=str)
def test_dlpack_shares_memory(dtype: np.dtype[Any]) -> None:
    x = dl.tensor(np.arange(6).reshape(2, 3).astype(dtype), device="cpu")
    there = torch.from_dlpack(x.T)
    assert there.tolist() == x.T.tolist()
    there[0, 1] = 9
    assert x[1, 0].item() == 9
    here = dl.from_dlpack(there)
    assert (here.dtype, here.tolist()) == (x.dtype, x.T.tolist())
    here[1, 1] = 7
    if dtype != dl.bfloat16:  # which NumPy's exchange does not know
        assert np.from_dlpack(x).tolist() == x.tolist()
    assert x.__dlpack_device__() == (1, 0)


def test_dlpack_refusals(device: str) -> None:
    if device != "cpu":
        with pytest.raises(BufferError, match=rf"the tensor is on {device}; move it with \.cpu\(\)"):
            dl.ones(2, device=device).__dlpack__()
    with pytest.raises(GradientError, match=r"\[dlpack\] the tensor requires gradients"):
        dl.ones(2, device="cpu", requires_grad=True).__dlpack__()
    with pytest.raises(DTypeError, match=r"\[from_dlpack\] expected an object with __dlpack__"):
        dl.from_dlpack([1.0])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pickle(dtype: np.dtype[Any], device: str) -> None:
    x = dl.tensor(np.arange(6).reshape(2, 3).astype(dtype), device=device).T
    again = pickle.loads(pickle.dumps(x))
    assert (again.shape, again.dtype, again.device) == (x.shape, x.dtype, x.device)
    np.testing.assert_array_equal(again.numpy(), x.numpy())
    assert pickle.loads(pickle.dumps(dl.tensor(2.5, device=device))).tolist() == 2.5
    assert pickle.loads(pickle.dumps(dl.zeros(0, 3, device=device))).shape == (0, 3)


def test_copies_are_leaves_that_want_what_the_original_wants(device: str) -> None:
    x = dl.tensor([1.0, 2.0], device=device, requires_grad=True)
    (x * 3).backward(dl.ones(2, device=device))
    for again in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert again.requires_grad
        assert again.is_leaf
        assert again.tolist() == [1, 2]
    again = copy.deepcopy([x, x])
    assert again[0] is again[1]
    assert again[0].grad.tolist() == [3, 3]
    with dl.no_grad():
        again[0].add_(1)
    assert x.tolist() == [1, 2]
    for f in (pickle.dumps, copy.deepcopy):
        with pytest.raises(GradientError, match="an op made this tensor and gradients flow through it"):
            f(x * 2)


def test_conversions(device: str) -> None:
    x = dl.tensor([1.5, -2.5, 0.0], device=device)
    for made, dtype in (
        (x.half(), "float16"),
        (x.double(), "float64"),
        (x.long(), "int64"),
        (x.short(), "int16"),
    ):
        assert made.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(made.numpy(), x.numpy().astype(dtype))
    assert x.int().tolist() == [1, -2, 0]
    assert x.bool().tolist() == [True, True, False]
    assert (x.type(), x.type("int32").type()) == ("float32", "int32")
    assert x.float() is x
    assert (x.element_size(), x.nbytes, x.dim(), x.is_floating_point()) == (4, 12, 1, True)
    assert not x.long().is_floating_point()
    both = x.to("cpu", "int32")
    assert (str(both.dtype), str(both.device)) == ("int32", "cpu")
    like = x.to(dl.ones(1, dtype="int64", device="cpu"))
    assert (str(like.dtype), str(like.device)) == ("int64", "cpu")
    assert x.to(device=device, dtype="float32") is x
    assert x.to("float32", copy=True) is not x


def test_gradients_go_back_through_conversions(device: str) -> None:
    x = dl.tensor([1.0, 2.0], device=device, requires_grad=True)
    y = x.double().to("cpu") * dl.tensor([3.0, 5.0], dtype="float64", device="cpu")
    y.backward(dl.ones(2, dtype="float64", device="cpu"))
    assert (x.grad.dtype, str(x.grad.device)) == (np.float32, device)
    assert x.grad.tolist() == [3, 5]


def test_arrays_of_what_requires_gradients_are_read_alone(device: str) -> None:
    values = np.random.default_rng(3).standard_normal((3, 2)).astype(np.float32)
    leaf = dl.tensor(values, device=device, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"\[numpy\] .* requires gradients; use \.detach\(\)\.numpy\(\)"):
        leaf.numpy()
    for array, expected in (((leaf * 2).numpy(), values * 2), (np.asarray(leaf), values)):
        np.testing.assert_array_equal(array, expected)
    shared = np.asarray(leaf) if device == "cpu" else (leaf * 2).numpy()
    for array in (shared, (leaf * 2).numpy()):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    for given in (leaf.numpy(force=True), leaf.detach().numpy(), np.array(leaf), dl.tensor(leaf).numpy()):
        np.testing.assert_array_equal(given, values)
        given[0] = 1  # a copy, or the tensor's memory: nobody differentiates what NumPy does
        leaf.detach()[...] = dl.tensor(values, device=device)
    ours = dl.tensor([leaf[0, 1], (leaf * 2)[2, 0]])
    np.testing.assert_array_equal(ours.numpy(), (values[0, 1], values[2, 0] * 2))
    np.testing.assert_array_equal(
        leaf.new_tensor([leaf[0, 1:2], leaf[1, :1]]).numpy()[:, 0], (values[0, 1], values[1, 0])
    )
