"""Tensors, dtypes and devices under PyTorch's names: what scripts do with them besides computing."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import (
    ArgumentError,
    BackendMissingError,
    DTypeError,
    GradientError,
    ShapeError,
    UnknownDeviceError,
)

torch = pytest.importorskip("torch", reason="compared with PyTorch")


@pytest.fixture(autouse=True)
def default_dtype() -> Any:
    yield
    dl.set_default_dtype(dl.float32)


# Dtypes


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("float", "float32"), ("double", "float64"), ("half", "float16"), ("bfloat16", "bfloat16"),
        ("long", "int64"), ("int", "int32"),
        ("short", "int16"), ("uint8", "uint8"), ("bool", "bool"),
    ],
)  # fmt: skip
def test_aliases(name: str, dtype: str) -> None:
    assert getattr(dl, name) == np.dtype(dtype)
    assert dl.zeros(3, dtype=getattr(dl, name)).dtype == getattr(dl, name)
    assert str(getattr(torch, name)) == f"torch.{dtype}"


def test_a_star_hides_nothing_of_python() -> None:
    names: dict[str, Any] = {}
    exec("from dl4all import *", names)
    assert {"float", "int", "bool"}.isdisjoint(names)
    assert names["double"] == np.float64


USES: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda dtype: dl.zeros(2, dtype=dtype),
    "tensor": lambda dtype: dl.tensor([0.5], dtype=dtype),
    "to": lambda dtype: dl.ones(2).to(dtype),
    "type": lambda dtype: dl.ones(2).type(dtype),
    "view": lambda dtype: dl.ones(2).view(dtype),
    "sum": lambda dtype: dl.ones(2).sum(dtype=dtype),
    "new_zeros": lambda dtype: dl.ones(2).new_zeros(2, dtype=dtype),
    "randint": lambda dtype: dl.randint(5, (2,), dtype=dtype),
    "module": lambda dtype: dl.nn.Linear(2, 2).to(dtype),
    "default": dl.set_default_dtype,
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("dtype", [dl.uint32, dl.complex64], ids=str)
def test_dtypes_that_are_only_names_are_refused(use: str, dtype: Any) -> None:
    """A table may have them, as nanoGPT's does."""
    assert {"float32": dl.float32, "name": dtype}["name"] != dl.float32
    with pytest.raises(DTypeError, match=r"(uint32|complex64)(.* is not supported|.*no dtype)"):
        USES[use](dtype)


def test_default_dtype() -> None:
    assert dl.get_default_dtype() == dl.float32
    dl.set_default_dtype(dl.float64)
    made = [
        dl.tensor(0.5), dl.zeros(2), dl.ones(2), dl.empty(2), dl.rand(2), dl.randn(2), dl.eye(2),
        dl.full((2,), 0.5), dl.linspace(0, 1, 3), dl.arange(0, 1, 0.25), dl.normal(0.0, 1.0, (2,)),
        dl.Tensor(2, 3), dl.Tensor([1]),
        *dl.nn.Linear(2, 3).parameters(), *dl.nn.LayerNorm(3).parameters(),
    ]  # fmt: skip
    assert {tensor.dtype for tensor in made} == {np.dtype("float64")}
    assert (dl.tensor(1).dtype, dl.arange(3).dtype, dl.tensor(np.ones(2, np.float32)).dtype) == (
        dl.int64, dl.int64, dl.float32,
    )  # fmt: skip
    dl.set_default_tensor_type(dl.FloatTensor)
    assert dl.zeros(1).dtype == dl.float32
    for refused in (dl.int64, "float31"):
        with pytest.raises(DTypeError):
            dl.set_default_dtype(refused)
    with pytest.raises(DTypeError, match=r"expected dl\.FloatTensor"):
        dl.set_default_tensor_type(dl.LongTensor)
    with dl.device("cpu"), pytest.raises(BackendMissingError, match="no device is called cuda"):
        dl.set_default_tensor_type(dl.cuda.FloatTensor)


# Devices


def test_devices_and_their_names(device: str) -> None:
    place = dl.device(device)
    assert isinstance(dl.ones(2, device=place).device, dl.device)
    assert place == device
    assert place != "meta"
    assert {place: 1}[device] == 1  # type: ignore[index]
    assert place.type == device.partition(":")[0]
    assert place.index == (None if device == "cpu" else 0)
    assert dl.device(place) is place
    if place.index is not None:
        assert dl.device(place.type, place.index) is place
        assert dl.device(type=place.type, index=0) is place
    assert copy.deepcopy(place) is place
    assert pickle.loads(pickle.dumps(place)) is place
    assert dl.ones(2, device=place).get_device() == (-1 if device == "cpu" else 0)


def test_unknown_devices() -> None:
    for name in ("cuda", "cuda:0", "meta"):  # which scripts compare with, and refused where they are used
        with pytest.raises(UnknownDeviceError):
            dl.zeros(2, device=dl.device(name))
    with pytest.raises(UnknownDeviceError, match="expected a name"):
        dl.device(0.5)
    with pytest.raises(UnknownDeviceError, match="unknown device 'cuda:0'"):  # a number is an accelerator's
        dl.ones(2).to(0)


# Tensors


def test_data(device: str) -> None:
    values = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    w = dl.tensor(values, device=device, requires_grad=True)
    w.data -= 0.5
    w.data.mul_(2)
    np.testing.assert_allclose(w.tolist(), (values - 0.5) * 2, rtol=1e-6)
    assert w.requires_grad
    assert not w.data.requires_grad
    other = dl.rand(7, device="cpu", dtype=dl.float64)
    w.data = other
    assert (w.shape, w.dtype, str(w.device), w.requires_grad) == ((7,), dl.float64, "cpu", True)
    (w * w).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), 2 * other.numpy())
    with pytest.raises(GradientError):
        w.data = dl.arange(3)
    with pytest.raises(DTypeError):
        w.data = 3  # type: ignore[assignment]


def test_detach_in_place(device: str) -> None:
    w = dl.rand(5, device=device, requires_grad=True)
    y = w * 3
    assert y.detach_() is y
    assert y.is_leaf
    assert not y.requires_grad
    with pytest.raises(GradientError):
        (w * 3)[1:].detach_()


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool"])
def test_a_tensor_of_one_integer_stands_for_an_int(dtype: str, device: str) -> None:
    one: Any = dl.tensor(1, dtype=dtype, device=device)
    assert list(range(one + one)) == [0, 1] if dtype != "bool" else list(range(one)) == [0]
    assert ["a", "b"][one] == "b"
    x = dl.rand(6, 4)
    if dtype != "bool":
        assert x.view(one + 1, -1).shape == (2, 12)
        assert dl.zeros(one, 3).shape == (1, 3)
        assert x[:one].shape == (1, 4)
        assert x.unsqueeze(one).shape == (6, 1, 4)


@pytest.mark.parametrize("tensor", [dl.tensor(1.0), dl.tensor([1, 2])])
def test_others_do_not(tensor: dl.Tensor) -> None:
    with pytest.raises(DTypeError, match="single integer"):
        range(tensor)


def test_formats(device: str) -> None:
    loss = dl.tensor(3.14159, device=device, requires_grad=True)
    theirs = torch.tensor(3.14159)
    for spec in (".3f", "8.2e", ""):
        assert format(loss * 1, spec) == format(theirs, spec)
    assert f"{dl.tensor(7):>4d}" == "   7"
    with pytest.raises(TypeError):
        format(dl.rand(2), ".2f")


def test_shapes_are_sizes() -> None:
    x = dl.rand(2, 3, 5)
    weight = dl.nn.Linear(2, 3).weight
    for y in (x, x.T, x[0], x + 1, x.reshape(6, 5), x.sum(1), dl.zeros(2, 3), x.mT.contiguous(), weight):
        assert isinstance(y.shape, dl.Size)
        assert y.shape.numel() == y.numel()
    assert x.size() == (2, 3, 5)
    assert repr(x.shape) == "(2, 3, 5)"
    assert copy.deepcopy(x.shape) == pickle.loads(pickle.dumps(x.shape)) == (2, 3, 5)


def test_classes_of_tensors(device: str) -> None:
    with dl.device(device):
        assert dl.Tensor(2, 3).shape == (2, 3)
        assert dl.Tensor(2, 3, 1, 5).shape == (2, 3, 1, 5)
        assert dl.Tensor().shape == (0,)
        assert dl.Tensor([[1, 2]]).tolist() == [[1.0, 2.0]]
        assert dl.Tensor(np.array([1, 2])).dtype == dl.float32
        assert dl.LongTensor([1, 0]).dtype == dl.int64
        assert dl.FloatTensor(3).device == device
        with pytest.raises(ArgumentError, match="four sizes"):
            dl.Tensor(1, 2, 3, 4, 5)  # type: ignore[arg-type]
    x = dl.rand(3)
    assert isinstance(x, dl.FloatTensor)
    assert not isinstance(x, dl.LongTensor)
    assert not isinstance(x, dl.cuda.FloatTensor)
    assert x.type(dl.DoubleTensor).dtype == dl.float64
    with pytest.raises(BackendMissingError):
        dl.cuda.FloatTensor(2)


def test_numpy_functions_of_tensors(device: str) -> None:
    array = np.random.default_rng(1).random((3, 7)).astype(np.float32)
    x = dl.tensor(array, device=device)
    assert np.mean(x) == np.mean(array)
    np.testing.assert_array_equal(np.stack([x, x]), np.stack([array, array]))
    np.testing.assert_array_equal(np.concatenate((x, array), axis=1), np.concatenate((array, array), 1))
    assert (np.shape(x), np.ndim(x), np.size(x)) == ((3, 7), 2, 21)
    roots = np.sqrt(x)
    assert isinstance(roots, dl.Tensor)
    assert roots.device == device
    np.testing.assert_allclose(roots.numpy(), np.sqrt(array))
    for left, right in ((np.float64(2.0), x), (x, np.float32(2.0))):
        np.testing.assert_allclose((left - right).numpy(), np.asarray(left) - np.asarray(right), rtol=1e-6)
        np.testing.assert_array_equal((left < right).numpy(), np.asarray(left) < np.asarray(right))
    with pytest.raises(DTypeError, match="ndarray"):
        array * x
    with pytest.raises(DTypeError, match="logaddexp"):
        np.logaddexp(x, array)


@pytest.mark.parametrize("wanted", ["float32", "int32", "float64", "int16", "uint8", "float16"])
@pytest.mark.parametrize("own", ["float32", "int64", "int16"])
def test_views_as_another_dtype(own: str, wanted: str, device: str) -> None:
    array = np.random.default_rng(2).integers(-100, 100, (3, 8)).astype(own)
    x = dl.tensor(array, device=device)
    y = x.view(getattr(dl, wanted))
    np.testing.assert_array_equal(y.numpy().view(np.uint8), array.view(np.uint8))
    assert y.shape == torch.from_numpy(array).view(getattr(torch, wanted)).shape
    y.zero_()
    assert not x.numpy().any()


def test_views_as_another_dtype_that_are_none() -> None:
    for x in (dl.rand(3, 5), dl.rand(4, 6).T, dl.rand(4)[1:3], dl.tensor(1.0)):
        with pytest.raises(ShapeError, match=r"\[view\]"):
            x.view(dl.float64)


def test_flags(device: str) -> None:
    x = dl.rand(2, 3, device=device)
    assert (x.is_cuda, x.is_mps, x.is_sparse, x.is_quantized, x.is_meta) == (False,) * 5
    assert x.is_cpu == (device == "cpu")
    np.testing.assert_array_equal(x.H.numpy(), x.numpy().T)
    np.testing.assert_array_equal(x.mH.numpy(), x.numpy().T)
    with pytest.raises(BackendMissingError, match="auto"):
        x.cuda()
    assert x.cpu().is_cpu


def test_sizes_by_name() -> None:
    for make in (dl.zeros, dl.ones, dl.empty, dl.rand, dl.randn):
        assert make(size=(2, 3)).shape == (2, 3)
        with pytest.raises(ArgumentError, match="twice"):
            make(2, size=(3,))
    assert dl.full(size=(2,), fill_value=3).tolist() == [3, 3]
    assert dl.randint(5, size=(4,)).shape == (4,)
    assert dl.randint(high=5, size=(4,)).shape == (4,)
    assert dl.randint(low=2, high=3, size=(4,)).tolist() == [2, 2, 2, 2]
    assert dl.randint(0, 5, (4,), requires_grad=True, dtype=dl.float32).requires_grad
    with pytest.raises(ArgumentError, match="size is missing"):
        dl.randint(high=5)


@pytest.mark.vulkan
def test_numbers_on_the_cpu_beside_tensors_of_a_device() -> None:
    x = dl.rand(3, 5, device="vulkan:0", requires_grad=True)
    scale = dl.tensor(2.5, device="cpu", requires_grad=True)
    y = scale * x
    y.sum().backward()
    assert y.device == "vulkan:0"
    assert scale.grad.device == "cpu"
    np.testing.assert_allclose(scale.grad.item(), x.detach().numpy().sum(), rtol=1e-6)
    np.testing.assert_array_equal(x.grad.numpy(), np.full((3, 5), 2.5, np.float32))
    z = x.detach().clone()
    assert z.add_(scale.detach()) is z
    np.testing.assert_allclose(z.numpy(), x.detach().numpy() + 2.5)
    for left, right in ((x, dl.rand(5, device="cpu")), (x @ x.T, dl.rand(1, device="cpu"))):
        with pytest.raises(ArgumentError, match="different devices"):
            left + right
    with pytest.raises(ArgumentError, match="different devices"):
        scale.detach().add_(x)


BESIDE_A_NUMBER: dict[str, Callable[[Any, Any], Any]] = {
    "pow": lambda x, n: n**x,
    "where": lambda x, n: dl.where(x > 0.5, n, x),
    "clamp": lambda x, n: x.clamp(min=n),
    "lerp": lambda x, n: x.lerp(x * x, n),
    "addcmul": lambda x, n: dl.addcmul(x, x, n, value=2),
    "addcdiv": lambda x, n: dl.addcdiv(x, n, x + 1),
    "masked_fill": lambda x, n: x.masked_fill(x > 0.5, n),
    "hypot": lambda x, n: dl.hypot(n, x),
    "logaddexp": lambda x, n: x.logaddexp(n),
    "index_fill": lambda x, n: x.index_fill(1, dl.tensor([4, 0], device=x.device), n),
    "index_put": lambda x, n: dl.index_put(x, (dl.tensor([2, 0], device=x.device),), n),
    "accumulate": lambda x, n: dl.index_put(x, (dl.tensor([2, 2], device=x.device),), n, accumulate=True),
    "setitem": lambda x, n: _with_item(x, (slice(1, 3), 2), n),
    "rows": lambda x, n: _with_item(x, [0, 2], n),
    "mask": lambda x, n: _with_item(x, x > 0.5, n),
}


def _with_item(x: Any, key: Any, value: Any) -> Any:
    changed = x * 1
    changed[key] = value
    return changed


@pytest.mark.vulkan
@pytest.mark.parametrize("name", BESIDE_A_NUMBER)
def test_what_takes_a_number_on_the_cpu(name: str) -> None:
    """As in PyTorch: every function that takes a number takes a tensor without axes, of the CPU."""
    call, values = BESIDE_A_NUMBER[name], np.random.default_rng(5).random((3, 5), np.float32)
    results = []
    for device in ("cpu", "vulkan:0"):
        x = dl.tensor(values, device="vulkan:0", requires_grad=True)
        n = dl.tensor(0.3, device=device, requires_grad=True)
        y = call(x, n)
        (y * y).sum().backward()
        assert (y.device, n.grad.device) == ("vulkan:0", device)
        results.append((y.detach().numpy(), x.grad.numpy(), n.grad.numpy()))
    for beside, together in zip(*results, strict=True):
        np.testing.assert_array_equal(beside, together)


@pytest.mark.vulkan
def test_tensors_with_axes_stay_on_their_device() -> None:
    x = dl.rand(3, 5, device="vulkan:0")
    with pytest.raises(
        ArgumentError, match=r"\[setitem\] operands live on different devices, vulkan:0 and cpu"
    ):
        x[[0, 2]] = dl.rand(2, 5, device="cpu")
    with pytest.raises(
        ArgumentError, match=r"\[hypot\] operands live on different devices, vulkan:0 and cpu"
    ):
        dl.hypot(x, dl.rand(5, device="cpu"))


def test_printing() -> None:
    x = dl.tensor([[3.14159, 2.71828]] * 3)
    try:
        dl.set_printoptions(precision=2, sci_mode=True)
        assert "3.14e+00" in repr(x)
        dl.set_printoptions(profile="full")
        assert "..." not in repr(dl.arange(3000))
    finally:
        dl.set_printoptions(profile="default")
    assert "3.1416" in repr(x)
    assert "..." in repr(dl.arange(3000))
