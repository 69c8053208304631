"""Changes in place: what is written, who sees it, and what gradients make of it; beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, Dl4allError, DTypeError, GradientError, ShapeError
from dl4all.ops.core.dtypes import DTYPES
from dl4all.ops.core.op import REGISTRY, Op

torch = pytest.importorskip("torch", reason="results are compared with PyTorch's")

NDArray = npt.NDArray[Any]


def counted(*shape: int, dtype: Any = np.float32) -> NDArray:
    return np.asarray(np.arange(1, int(np.prod(shape)) + 1).reshape(shape), dtype)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "add_": lambda x: x.add_(2),
    "add_ of a row": lambda x: x.add_(x[0].clone()),
    "add_ of itself": lambda x: x.add_(x),
    # PyTorch may read what it has written before.
    "add_ of a row of itself": lambda x: x.add_(x[1] if isinstance(x, dl.Tensor) else x[1].clone()),
    "sub_": lambda x: x.sub_(0.5),
    "mul_": lambda x: x.mul_(x),
    "div_": lambda x: x.div_(3),
    "neg_": lambda x: x.neg_(),
    "relu_": lambda x: x.sub_(7).relu_(),
    "zero_": lambda x: x.zero_(),
    "fill_": lambda x: x.fill_(-2.5),
    "copy_": lambda x: x.copy_(x[1] * 2),
    "copy_ of a view of itself": lambda x: x.copy_(x.flip(0)),
}
PLACES: dict[str, Callable[[Any], Any]] = {
    "all": lambda x: x,
    "a row": lambda x: x[1:2],
    "rows": lambda x: x[1:],
    "columns": lambda x: x[:, 1:4],
    "every second": lambda x: x[:, ::2],
    "turned": lambda x: x.T,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("change", CHANGES)
def test_changes(change: str, place: str, device: str) -> None:
    if place == "a row" and ("row" in change or change == "copy_"):
        pytest.skip("it has one row")
    ours, theirs = dl.tensor(counted(3, 5), device=device), torch.from_numpy(counted(3, 5))
    f, g = CHANGES[change], PLACES[place]
    target, version = g(ours), ours.storage.version
    f(g(theirs))
    assert f(target) is target
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)
    assert ours.storage.version > version


def test_operators(device: str) -> None:
    x = dl.tensor([1.0, 2.0], device=device)
    same = x
    x += 1
    x *= 3
    x -= dl.tensor([1.0, 2.0], device=device)
    x /= 2
    assert x is same
    assert x.tolist() == [2.5, 3.5]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_is_written(dtype: np.dtype[Any], device: str) -> None:
    array = counted(3, 5, dtype=dtype)
    x = dl.tensor(array, device=device)
    for key, value in ((np.s_[1], 1), (np.s_[:, 2], 0), (np.s_[::2, 1:3], array[:2, 2:4].copy())):
        array[key] = value
        x[key] = dl.tensor(value, device=device) if isinstance(value, np.ndarray) else value
    x[[0, 2], [4, 0]] = 1
    array[[0, 2], [4, 0]] = 1
    np.testing.assert_array_equal(x.numpy(), array)
    assert x.fill_(1).tolist() == np.ones((3, 5), dtype).tolist()
    assert x.zero_().tolist() == np.zeros((3, 5), dtype).tolist()


def test_copy_converts_and_comes_from_anywhere(device: str) -> None:
    x = dl.zeros(2, 3, device=device)
    x.copy_(dl.tensor([1, 2, 3], device="cpu"))
    assert x.tolist() == [[1, 2, 3], [1, 2, 3]]
    y = dl.zeros(3, dtype="int64", device=device)
    y.copy_(dl.tensor([1.7, -2.7, 3.0], device=device))
    assert y.tolist() == [1, -2, 3]
    assert x.copy_(5).tolist() == [[5, 5, 5], [5, 5, 5]]


def test_copy_of_one_dtype_between_devices(device: str) -> None:
    """There is nothing to convert, but the way."""
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    x, y = dl.zeros(3, 4, device=device), dl.zeros(4, 3, device="cpu")
    x.copy_(dl.tensor(a, device="cpu"))
    y.copy_(x.T)
    np.testing.assert_array_equal(x.numpy(), a)
    np.testing.assert_array_equal(y.numpy(), a.T)


def test_many_axes(device: str) -> None:
    array = counted(2, 1, 3, 2, 2, 3, 2, 2, 2, 2)
    x = dl.tensor(array, device=device)
    turned = x.T
    turned[::2, 1] = 0
    array.T[::2, 1] = 0
    np.testing.assert_array_equal(x.numpy(), array)


# Keys

KEYS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "int": (1, (5, 7)),
    "slice": (np.s_[1:], (2, 1, 7)),
    "slices": (np.s_[:, ::2, 1:3], (3, 2)),
    "None": (np.s_[None, :, 1], (1, 3, 7)),
    "dots": (np.s_[..., -1], (5,)),
    "list": ([2, 0], (2, 5, 7)),
    "list of one place twice apart": ([[2], [0]], (2, 1, 5, 7)),
    "second axis": (np.s_[:, [4, 1]], (3, 2, 7)),
    "last axis": (np.s_[..., [6, 1, 0]], (3,)),
    "two": (([0, 2], [1, 3]), (7,)),
    "two apart": (np.s_[[0, 2], :, [1, 3]], (2, 5)),
    "negative": (np.s_[:, [-1]], ()),
    "mask": (np.array([True, False, True]), (5, 1)),
    "mask of two": (counted(3, 5) % 2 == 0, (7,)),
    "mask of all": (counted(3, 5, 7) % 3 == 0, ()),
    "mask and slice": (np.s_[:, counted(5) > 2, 1:3], (3, 2)),
    "nothing": ([], (5, 7)),
    "an int and a list": (np.s_[1, :, [0, 3]], ()),
}


@pytest.mark.parametrize("number", [False, True])
@pytest.mark.parametrize("name", KEYS)
def test_writing_with_keys(name: str, number: bool, device: str) -> None:
    key, shape = KEYS[name]
    array, value = counted(3, 5, 7), np.asarray(-counted(*shape))
    theirs = torch.from_numpy(array)
    as_torch = tuple(map(_for_torch, key)) if isinstance(key, tuple) else _for_torch(key)
    ours = dl.tensor(array, device=device)
    ours[key] = 3 if number else dl.tensor(value, device=device)
    theirs[as_torch] = 3 if number else torch.from_numpy(value)
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def _for_torch(key: Any) -> Any:
    return (
        torch.tensor(key, dtype=None if len(key) else torch.int64)
        if isinstance(key, (list, np.ndarray))
        else key
    )


def test_writing_through_a_view(device: str) -> None:
    array = counted(4, 6)
    x = dl.tensor(array, device=device)
    x[1:, ::2][[0, 2], 1:] = dl.tensor([[-1.0], [-2.0]], device=device)
    array[1:, ::2][[0, 2], 1:] = [[-1], [-2]]
    x.T[3][x[:, 0].numpy() > 7] = 0
    array.T[3][array[:, 0] > 7] = 0
    np.testing.assert_array_equal(x.numpy(), array)


def test_values_of_other_kinds(device: str) -> None:
    x = dl.zeros(2, 3, device=device)
    x[0] = [1, 2, 3]
    x[1] = np.array([[4.0, 5.0, 6.0]])  # axes of size 1 in front are left out
    assert x.tolist() == [[1, 2, 3], [4, 5, 6]]
    x[0, 1:] = x[1, :2]
    x[:, 0] = x[0, 0] + 1
    assert x.tolist() == [[2, 4, 5], [2, 5, 6]]
    x[:, 1:] = x[:, :2]
    assert x.tolist() == [[2, 2, 4], [2, 2, 5]]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda x: x.add_(dl.ones(2, 2, 3, device=x.device)),
            ShapeError,
            r"\[add_\] the result of shape \(2, 2, 3\)",
        ),
        (
            lambda x: x.copy_(dl.ones(2, device=x.device)),
            ShapeError,
            r"\[copy_\] shape \(2,\) does not broadcast",
        ),
        (lambda x: x.fill_("a"), DTypeError, r"\[fill_\] expected a number, got str"),
        (
            lambda x: x.to("int64").add_(0.5),
            DTypeError,
            r"\[add_\] a result of float32 does not fit a tensor of int64",
        ),
        (
            lambda x: x[:1].expand(2, 3).add_(1),
            ArgumentError,
            r"\[add_\] elements of an expanded tensor share memory",
        ),
        (
            lambda x: x.__setitem__(0, dl.ones(2)),
            ShapeError,
            r"\[setitem\] shape \(2,\) does not broadcast to \(3,\)",
        ),
        (lambda x: x.__setitem__(5, 1), ArgumentError, r"\[index\] 5 is out of range"),
        (lambda x: x.__setitem__([0, 2], 1), ArgumentError, r"\[index\] index 2 is out of range"),
        (lambda x: x.__setitem__(0, "a"), DTypeError, r"\[setitem\] expected numbers"),
    ],
)  # fmt: skip
def test_refusals(change: Any, error: type[Dl4allError], message: str, device: str) -> None:
    x = dl.ones(2, 3, device=device)
    with pytest.raises(error, match=message):
        change(x)
    assert x.tolist() == [[1, 1, 1], [1, 1, 1]]


# Gradients


def test_a_leaf_is_changed_only_without_gradients(device: str) -> None:
    x = dl.ones(3, device=device, requires_grad=True)
    for change in (
        lambda: x.add_(1),
        lambda: x.zero_(),
        lambda: x.__setitem__(0, 1.0),
        lambda: x.copy_(x * 2),
    ):
        with pytest.raises(GradientError, match=r"a leaf that requires gradients .* dl\.no_grad\(\)"):
            change()
    with dl.no_grad():
        x.sub_(0.5)
        x[0] = 7
    assert x.tolist() == [7, 0.5, 0.5]
    assert x.requires_grad
    assert x.is_leaf


def test_views_whose_base_cannot_learn_of_a_change(device: str) -> None:
    x = dl.ones(3, 2, device=device, requires_grad=True)
    for target in (x[0], x.T[:, 1]):
        with pytest.raises(GradientError, match=r"\[mul_\] a view of a leaf .* dl\.no_grad\(\)"):
            target.mul_(3)
    y = x * 2
    with dl.no_grad():
        untracked = y[0]
    with pytest.raises(GradientError, match=r"\[copy_\] a view cannot be changed in place"):
        untracked.copy_(x[1])
    assert y.tolist() == [[2, 2]] * 3
    reshaped = (x * 2).reshape(-1)  # what it was made of is gone
    reshaped.mul_(3).backward(dl.ones(6, device=device))
    assert x.grad.tolist() == [[6, 6]] * 3


def test_a_view_that_is_no_longer_true_is_refused(device: str) -> None:
    x = dl.ones(3, device=device, requires_grad=True)
    y = x * 2
    view = y[:2]
    y.mul_(3)
    with pytest.raises(
        GradientError, match=r"\[view\] a view of shape \(2,\) shows memory that was since changed"
    ):
        view * 2
    with dl.no_grad():
        assert (view * 2).tolist() == [12, 12]
    assert (y[:2] * 1).requires_grad
    assert view.detach().tolist() == [6, 6]


def test_an_old_value_that_a_gradient_needs(device: str) -> None:
    x = dl.ones(3, device=device, requires_grad=True)
    y = x * 2
    z = y * y
    y.add_(1)
    with pytest.raises(GradientError, match="that its gradient needs was since changed in place"):
        z.backward(dl.ones(3, device=device))


def _through(base: Any, change: Callable[[Any], Any]) -> Any:
    change(base)
    return base


def _seen_by_both(base: Any, y: Any) -> Any:
    view = base[1:, ::2]
    view.mul_(y[1:, ::2]).add_(base.detach().clone()[1:, ::2])
    return base * view.sum() + (view * view).sum()


VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "row": lambda x, y: _through(x * 2, lambda z: z[1].mul_(y[0])),
    "transposed": lambda x, y: _through(x * 2, lambda z: z.T.mul_(y.T)),
    "reshaped": lambda x, y: _through(x * 2, lambda z: z.reshape(2, 6).mul_(y.reshape(2, 6))),
    "view of a view": lambda x, y: _through(x * y, lambda z: z.T[1:, ::2].T.mul_(3).relu_()),
    "copy": lambda x, y: _through(x * 2, lambda z: z[1:].copy_(y[:2] * x[1])),
    "zeros": lambda x, y: _through(x * y, lambda z: z[:, 1:3].zero_()),
    "keys": lambda x, y: _through(x * y, lambda z: z.T.__setitem__(np.s_[1:3, 0], x[0, :2] * 5)),
    "of what had no history": lambda x, y: _through(x.detach() * 2, lambda z: z[:, 1].mul_(y[:, 2])),
    "both": lambda x, y: _seen_by_both(x * 3, y),
    "one after the other": lambda x, y: _through(x * 2, lambda z: (z[0].mul_(y[0]), z.T[1].mul_(y[:, 1]))),
    "part of a product": lambda x, y: _through(x * 2, lambda z: z.chunk(2, 1)[0].sigmoid_()),
}


@pytest.mark.parametrize("name", VIEWS)
def test_gradients_of_changes_of_views(name: str, device: str) -> None:
    """The base has the view's new history, and the view goes on as one of the base."""
    there = VIEWS[name]
    if name == "part of a product":  # PyTorch refuses views of which one call makes several
        there = lambda x, y: torch.cat([(x * 2)[:, :2].sigmoid(), (x * 2)[:, 2:]], 1)  # noqa: E731
    gradients(device, VIEWS[name], there)


def test_second_derivatives_of_changes_of_views() -> None:
    def f(x: Any) -> Any:
        z = x * x
        z[1:].mul_(z[0].clone())
        return z * x

    dl.autograd.gradgradcheck(f, [dl.tensor(counted(3, 2) / 5 - 0.7, dtype="float64", requires_grad=True)])


HISTORIES: dict[str, Callable[[Any, Any], Any]] = {
    "add_": lambda x, y: (x * 2).add_(y),
    "mul_": lambda x, y: (x * x).mul_(y),
    "div_": lambda x, y: (x * 3).div_(y),
    "twice": lambda x, y: (x * 3).mul_(y).mul_(y),
    "relu_": lambda x, y: (x * y).relu_(),
    "by itself": lambda x, y: _by_itself(x * y),
    "a tensor without history": lambda x, y: _zeros(x).add_(x).mul_(y),
    "copy_": lambda x, y: (x * 2).copy_(y * x),
    "copy_ of a row": lambda x, y: (x * 2).copy_(y[0]),
    "zero_": lambda x, y: (x * 2).zero_() + y,
    "view dropped": lambda x, y: (x * y).reshape(-1).mul_(2),
}  # fmt: skip


def _by_itself(z: Any) -> Any:
    return z.mul_(z.clone())


def _zeros(x: Any) -> Any:
    return x.detach() * 0


SETTERS: dict[str, Callable[[Any], Any]] = {
    "row": lambda f: 1,
    "column": lambda f: np.s_[:, 1],
    "every second": lambda f: np.s_[::2, 1:],
    "list": lambda f: f([2, 0]),
    "mask": lambda f: f(np.array([True, False, True])),
    "pairs": lambda f: (f([0, 2]), f([1, 3])),
    "columns": lambda f: np.s_[:, f([3, 1])],
}


def gradients(device: str, f: Callable[[Any, Any], Any], g: Callable[[Any, Any], Any]) -> None:
    a, b = counted(3, 4) / 7 - 1, counted(3, 4) / 5
    ours = [dl.tensor(v, device=device, requires_grad=True) for v in (a, b)]
    theirs = [torch.tensor(v, requires_grad=True) for v in (a, b)]
    got, expected = f(*ours), g(*theirs)
    np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    weights = counted(*got.shape) / 3
    got.backward(dl.tensor(weights, device=device))
    expected.backward(torch.from_numpy(weights))
    for x, y in zip(ours, theirs, strict=True):
        there = np.zeros_like(a) if y.grad is None else y.grad.numpy()
        here = np.zeros_like(a) if x.grad is None else x.grad.numpy()
        np.testing.assert_allclose(here, there, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", HISTORIES)
def test_gradients_of_changes(name: str, device: str) -> None:
    # PyTorch refuses what it would have to have kept; then the same out of place says what is right.
    right = {
        "twice": lambda x, y: x * 3 * y * y,
        "by itself": lambda x, y: (x * y) * (x * y),
        "mul_": lambda x, y: x * x * y,
        "a tensor without history": lambda x, y: x * y,
        "div_": lambda x, y: x * 3 / y,
    }
    gradients(device, HISTORIES[name], right.get(name, HISTORIES[name]))


@pytest.mark.parametrize("name", SETTERS)
def test_gradients_of_keys(name: str, device: str) -> None:
    def write(make: Any) -> Callable[[Any, Any], Any]:
        def f(x: Any, y: Any) -> Any:
            key = SETTERS[name](make)
            whole = x * 2
            whole[key] = (y * 3)[key]
            return whole * x

        return f

    gradients(device, write(np.asarray), write(lambda v: torch.tensor(v)))


def test_a_buffer_is_filled_part_by_part(device: str) -> None:
    def f(space: Any, **where: Any) -> Callable[[Any, Any], Any]:
        def fill(x: Any, y: Any) -> Any:
            buffer = space.zeros(3, 4, **where)
            for i in range(3):
                buffer[i] = x[i] * y[0] + i
            buffer[0, 1] = 5.0
            return buffer

        return fill

    gradients(device, f(dl, device=device), f(torch))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x * x).add_(x), lambda x: (x * x).mul_(x), lambda x: _written(x, 1),
        lambda x: _written(x, [0, 2]),
    ],
)  # fmt: skip
def test_second_derivatives(f: Any) -> None:
    x = dl.tensor(counted(3, 2, dtype=np.float64) / 4, device="cpu", requires_grad=True)
    assert dl.autograd.gradcheck(f, x)
    assert dl.autograd.gradgradcheck(f, x)


def _written(x: Any, key: Any) -> Any:
    whole = x * x
    whole[key] = whole[0].clone() * x[1]
    return whole * x


OPS = [
    "abs", "ceil", "cos", "erf", "exp", "expm1", "floor", "log", "log1p", "log2", "neg", "reciprocal", "relu",
    "round", "rsqrt", "sigmoid", "sign", "sin", "sqrt", "square", "tan", "tanh", "trunc", "tril", "triu",
]  # fmt: skip
WITH: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(OPS, ()),
    "add": (2.5,), "sub": ("y",), "mul": ("y",), "div": ("y",), "pow": (2,),
    "remainder": (0.3,), "fmod": (0.3,),
    "clamp": (0.3, 0.9), "clamp_min": (0.5,), "clamp_max": (0.5,), "masked_fill": ("mask", 2.0),
    "lerp": ("y", 0.25), "addcmul": ("y", "y"), "addcdiv": ("y", "y"), "logical_and": ("y",),
}  # fmt: skip


@pytest.mark.parametrize("name", WITH)
def test_ops_in_place_do_what_they_do_elsewhere(name: str, device: str) -> None:
    array, other = counted(5, 7) / 40, counted(5, 7)[::-1] / 20 + 1
    found = []
    for change in (name, f"{name}_"):
        x = dl.tensor(array, device=device, requires_grad=True)
        y = dl.tensor(other, device=device, requires_grad=True)
        given = {"y": y, "mask": dl.tensor(array > 0.4, device=device)}
        started = x * 1
        made = getattr(started, change)(*(given.get(a, a) if isinstance(a, str) else a for a in WITH[name]))
        assert (made is started) == change.endswith("_")
        if made.requires_grad:
            made.backward(dl.tensor(other, device=device))
        found.append([made.to("float32").detach(), x.grad, y.grad])
    for right, got in zip(*found, strict=True):
        assert (right is None) == (got is None)
        if right is not None:
            np.testing.assert_array_equal(got.numpy(), right.numpy())


# Shared memory


def test_numpy_and_tensors_share_memory() -> None:
    array = np.zeros((2, 3), np.float32)
    x = dl.from_numpy(array)
    x[0] = 1
    x.T[2].add_(2)
    assert array.tolist() == [[1, 1, 3], [0, 0, 2]]
    array[1, 0] = 9
    assert x[1, 0].item() == 9


def test_a_read_only_array_is_not_written() -> None:
    array = np.zeros(3, np.float32)
    array.flags.writeable = False
    x = dl.from_numpy(array)
    with pytest.raises(ArgumentError, match="shares memory with a read-only array"):
        x.add_(1)
    assert x.clone().add_(1).tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "op", [op for op in REGISTRY.values() if op._result_rule is not None], ids=lambda op: op.name
)
def test_gradients_that_follow_from_the_result(op: Op[...]) -> None:
    """Of ops that overwrite their first operand, beside those of the op that makes a new tensor."""
    gradients = []
    for name in (op.name, f"{op.name}_"):
        dl.manual_seed(3)
        leaves = [dl.randn(5, 3, device="cpu", requires_grad=True) for _ in op.arrays]
        first, *others = leaves
        function = getattr(dl.Tensor, name, None) or getattr(dl.nn.functional, name)
        result = function(first * 2, *others)
        (result * dl.randn(5, 3, device="cpu")).sum().backward()
        gradients.append([leaf.grad.numpy() for leaf in leaves])
    for plain, in_place in zip(*gradients, strict=True):
        np.testing.assert_allclose(in_place, plain, rtol=1e-5, atol=1e-6)
