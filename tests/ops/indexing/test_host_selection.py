"""Selecting by index in one step on the CPU, and what is written to parts of small tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import dl4all as dl
from dl4all.errors import ArgumentError
from tests.support.operands import generator, numbers

DTYPES = ("float32", "float64", "float16", "int64", "int32", "uint8", "bool")
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], int, Callable[[Any, Any, Any], Any]]] = {
    "rows": ((7, 5), (3, 2), 7, lambda m, x, i: x[i]),
    "elements": ((13,), (17,), 13, lambda m, x, i: x[i]),
    "one row": ((7, 5), (), 7, lambda m, x, i: x[i]),
    "index_select": ((3, 11, 2), (4,), 11, lambda m, x, i: m.index_select(x, 1, i)),
    "gather": ((5, 7), (5, 3), 7, lambda m, x, i: m.gather(x, 1, i)),
    "gather of fewer rows": ((5, 7, 3), (2, 4, 1), 5, lambda m, x, i: m.gather(x, 0, i)),
    "embedding": ((9, 4), (2, 3, 1), 9, lambda m, x, i: m.nn.functional.embedding(i, x)),
    "padding": ((9, 4), (11,), 9, lambda m, x, i: m.nn.functional.embedding(i, x, padding_idx=4)),
}


def drawn_indices(name: str, dtype: str = "int64") -> Any:
    _, shape, size, _ = CASES[name]
    return generator("selection", name).integers(0, size, shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_elements(name: str, dtype: str) -> None:
    x = numbers(generator(name, dtype), CASES[name][0], dtype)
    i, call = drawn_indices(name), CASES[name][3]
    expected = call(torch, torch.from_numpy(x), torch.from_numpy(i))
    for _ in range(2):  # by a plan the second time
        got = call(dl, dl.tensor(x, device="cpu"), dl.tensor(i, device="cpu"))
        np.testing.assert_array_equal(got.numpy(), expected.numpy())


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    rng = generator("gradients", name)
    x, i, call = numbers(rng, CASES[name][0], "float64"), drawn_indices(name), CASES[name][3]
    theirs: Any = torch.from_numpy(x).requires_grad_()
    expected = call(torch, theirs, torch.from_numpy(i))
    weights = numbers(rng, tuple(expected.shape), "float64")
    (expected * torch.from_numpy(weights)).sum().backward()
    for _ in range(2):
        ours, index = dl.tensor(x, device="cpu", requires_grad=True), dl.tensor(i, device="cpu")
        result = call(dl, ours, index)
        index.zero_()  # the places were found before
        (result * dl.tensor(weights, device="cpu")).sum().backward()
        assert ours.grad is not None
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-12)
    fixed = dl.tensor(i, device="cpu")
    assert dl.autograd.gradgradcheck(lambda x: call(dl, x, fixed), (ours.detach().requires_grad_(),))


@pytest.mark.parametrize("dtype", ["int32", "int16", "int8", "uint8"])
def test_indices_of_all_dtypes(dtype: str) -> None:
    x = numbers(generator(dtype), (7, 5))
    i = drawn_indices("gather", dtype)[:, :3] % 5
    got = dl.gather(dl.tensor(x, device="cpu"), 1, dl.tensor(i, device="cpu"))
    np.testing.assert_array_equal(got.numpy(), np.take_along_axis(x[:5], i.astype(np.int64), 1))
    np.testing.assert_array_equal(dl.tensor(x, device="cpu")[dl.tensor(i, device="cpu")].numpy(), x[i])


def test_views_and_followed_calls() -> None:
    x = numbers(generator("views"), (6, 8))
    i = np.array([[5, 0, 3], [1, 1, 2]])
    views: list[tuple[Callable[[Any], Any], Any]] = [
        (lambda t: t.T, x.T),
        (lambda t: t[1:, ::2], x[1:, ::2]),
    ]
    for view, array in views:
        tensor = view(dl.tensor(x, device="cpu"))
        for index in (dl.tensor(i % 4, device="cpu"), dl.tensor((i % 4).T.copy(), device="cpu").T):
            np.testing.assert_array_equal(tensor[index].numpy(), array[i % 4])
            np.testing.assert_array_equal(
                dl.gather(tensor, 0, index).numpy(), np.take_along_axis(array[:, :3], i % 4, 0)
            )
    compiled = dl.compile(lambda t, j: dl.gather(t, 1, j))
    tensor, index = dl.tensor(x, device="cpu"), dl.tensor(i, device="cpu")
    with dl.profile() as p:
        profiled = dl.gather(tensor, 1, index)
    assert p.events
    for got in (profiled, compiled(tensor, index), compiled(tensor, index)):
        np.testing.assert_array_equal(got.numpy(), np.take_along_axis(x[:2], i, 1))


@pytest.mark.parametrize("name", CASES)
def test_what_is_out_of_range_is_named(name: str) -> None:
    shape, chosen, size, call = CASES[name]
    if not chosen:
        chosen = (1,)
    x, i = dl.ones(*shape, device="cpu"), np.zeros(chosen, np.int64)
    i.reshape(-1)[-1] = size
    for _ in range(2):
        with pytest.raises(ArgumentError, match=rf"index {size} is out of range for an axis of size {size}"):
            call(dl, x, dl.tensor(i, device="cpu"))
    i.reshape(-1)[-1] = -size - 1
    with pytest.raises(ArgumentError, match=rf"index {-size - 1} is out of range"):
        call(dl, x, dl.tensor(i, device="cpu"))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("dim", "keepdim"), [(0, False), (1, True), (-1, False)])
def test_gradients_of_extremes_go_to_the_places_that_were_found(
    largest: bool, dim: int, keepdim: bool, device: str
) -> None:
    x = numbers(generator("extremes"), (5, 7, 3))
    x[:, 2] = x[:, 4]  # the first of equal ones
    theirs: Any = torch.from_numpy(x).requires_grad_()
    ours: Any = dl.tensor(x, device=device, requires_grad=True)
    for tensor in (theirs, ours):
        values = (tensor.max if largest else tensor.min)(dim, keepdim)[0]
        (values * values).sum().backward()
    np.testing.assert_allclose(ours.grad.cpu().numpy(), theirs.grad.numpy(), rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "mask"), [((5, 7), (5, 7)), ((5, 7), (5,)), ((3, 4, 5), (3, 4)), ((6,), (6,)), ((3,), ())]
)
def test_masks_and_parts_are_written(
    shape: tuple[int, ...], mask: tuple[int, ...], dtype: str, device: str
) -> None:
    rng = generator("masks", shape, dtype)
    for value in (0.0, 1, True, dl.tensor(2.5, device="cpu")):
        array, chosen = numbers(rng, shape, dtype), rng.random(mask) > 0.5
        tensor = dl.tensor(array, device=device)
        tensor[dl.tensor(chosen, device=device)] = value
        array[chosen] = value.item() if isinstance(value, dl.Tensor) else value
        np.testing.assert_array_equal(tensor.cpu().numpy(), array)
        tensor[..., :2] = value
        array[..., :2] = value.item() if isinstance(value, dl.Tensor) else value
        np.testing.assert_array_equal(tensor.cpu().numpy(), array)


def test_a_masked_assignment_has_gradients(device: str) -> None:
    rng = generator("masked gradients")
    a, w, chosen = numbers(rng, (4, 3)), numbers(rng, (4, 3)), rng.random((4, 3)) > 0.5
    x, v = dl.tensor(a, device=device, requires_grad=True), dl.tensor(2.0, device=device, requires_grad=True)
    y = x * 1
    y[dl.tensor(chosen, device=device)] = v
    (y * dl.tensor(w, device=device)).sum().backward()
    assert x.grad is not None
    assert v.grad is not None
    np.testing.assert_allclose(x.grad.cpu().numpy(), np.where(chosen, 0, w), rtol=1e-6)
    assert v.grad.item() == pytest.approx(w[chosen].sum(), rel=1e-5)
    with pytest.raises(ArgumentError, match=r"a mask of shape \(4, 2\) does not fit axes of shape \(4, 3\)"):
        y[dl.tensor(np.ones((4, 2), bool), device=device)] = 1


@pytest.mark.parametrize("shape", [(3, 5), (7,), (2, 1, 4), (0, 3), ()])
@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("int64", "float32")])
def test_stacks_along_the_first_axis(shape: tuple[int, ...], dtypes: tuple[str, str], device: str) -> None:
    rng = generator("stack", shape)
    arrays = [numbers(rng, shape, dtype) for dtype in dtypes]
    ours = dl.stack([dl.tensor(array, device=device) for array in arrays])
    expected = torch.stack([torch.from_numpy(array).float() for array in arrays])
    np.testing.assert_array_equal(ours.cpu().numpy(), expected.numpy())
