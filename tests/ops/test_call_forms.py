"""Forms of calls that PyTorch takes: single samples, no samples, tensors of no axis, names of arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from tests.support.compare_torch import check_against_torch
from tests.support.operands import generator, numbers

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")

Call = Callable[..., Any]

LAYERS: dict[str, tuple[Call, tuple[tuple[int, ...], ...]]] = {
    "conv1d": (lambda f, x, w: f.conv1d(x, w, stride=2, padding=1), ((3, 11), (5, 3, 3))),
    "conv2d": (lambda f, x, w: f.conv2d(x, w, padding="same", groups=2), ((4, 5, 7), (6, 2, 3, 5))),
    "conv3d": (lambda f, x, w: f.conv3d(x, w), ((2, 3, 5, 4), (3, 2, 2, 3, 1))),
    "conv_transpose1d": (lambda f, x, w: f.conv_transpose1d(x, w, stride=2), ((3, 5), (3, 2, 3))),
    "conv_transpose2d": (
        lambda f, x, w: f.conv_transpose2d(x, w, stride=(3, 2), padding=1, output_padding=(2, 3), dilation=4),
        ((2, 3, 5), (2, 3, 2, 3)),
    ),
    "conv_transpose3d": (lambda f, x, w: f.conv_transpose3d(x, w), ((2, 2, 3, 2), (2, 3, 2, 1, 3))),
    "max_pool1d": (lambda f, x: f.max_pool1d(x, 3, 2, ceil_mode=True, return_indices=True), ((3, 11),)),
    "max_pool2d": (lambda f, x: f.max_pool2d(x, 3, 2, 1, return_indices=True), ((3, 7, 5),)),
    "max_pool3d": (lambda f, x: f.max_pool3d(x, 2, return_indices=True), ((3, 5, 4, 7),)),
    "avg_pool1d": (lambda f, x: f.avg_pool1d(x, 3, 2, 1), ((3, 11),)),
    "avg_pool2d": (lambda f, x: f.avg_pool2d(x, (3, 2), ceil_mode=True), ((3, 7, 5),)),
    "avg_pool3d": (lambda f, x: f.avg_pool3d(x, 2), ((3, 5, 4, 7),)),
    "lp_pool1d": (lambda f, x: f.lp_pool1d(x * x, 3, 3), ((3, 11),)),
    "lp_pool2d": (lambda f, x: f.lp_pool2d(x, 2, 2), ((3, 7, 5),)),
    "adaptive_avg_pool1d": (lambda f, x: f.adaptive_avg_pool1d(x, 5), ((3, 11),)),
    "adaptive_avg_pool2d": (lambda f, x: f.adaptive_avg_pool2d(x, 1), ((3, 7, 5),)),
    "adaptive_max_pool1d": (lambda f, x: f.adaptive_max_pool1d(x, 5, return_indices=True), ((3, 11),)),
    "adaptive_max_pool2d": (lambda f, x: f.adaptive_max_pool2d(x, (3, None), True), ((3, 7, 5),)),
    "adaptive_max_pool3d": (lambda f, x: f.adaptive_max_pool3d(x, 2, True), ((3, 5, 4, 7),)),
    "interpolate": (
        lambda f, x: f.interpolate(x[None], scale_factor=(1.7, 0.6), mode="bilinear"),
        ((3, 7, 5),),
    ),
    "cross_entropy": (lambda f, x: f.cross_entropy(x, x.softmax(0)), ((7,),)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_single_samples(name: str, device: str) -> None:
    call, shapes = LAYERS[name]
    arrays = [numbers(generator(name, i), shape) for i, shape in enumerate(shapes)]
    check_against_torch(
        device,
        lambda *x: call(dl.nn.functional, *x),
        *arrays,
        g=lambda *x: call(torch.nn.functional, *x),
    )


@pytest.mark.parametrize(
    "name", [n for n in LAYERS if n not in ("interpolate", "cross_entropy", "lp_pool1d")]
)
def test_no_samples(name: str, device: str) -> None:
    call, (first, *others) = LAYERS[name]
    arrays = [numbers(generator(name, i), shape) for i, shape in enumerate(((0, *first), *others))]
    check_against_torch(
        device,
        lambda *x: call(dl.nn.functional, *x),
        *arrays,
        g=lambda *x: call(torch.nn.functional, *x),
    )


NO_AXES: dict[str, Call] = {
    "gather": lambda lib, x, y: lib.gather(x, 0, lib.zeros(3, dtype=lib.int64)),
    "scatter": lambda lib, x, y: lib.scatter(x, -1, lib.zeros((), dtype=lib.int64), y),
    "scatter_add": lambda lib, x, y: lib.scatter_add(x, 0, lib.zeros(1, dtype=lib.int64), y.reshape(1)),
    "index_select": lambda lib, x, y: lib.index_select(x, 0, lib.zeros(1, dtype=lib.int64)),
    "index_add": lambda lib, x, y: lib.index_add(x, 0, lib.zeros(1, dtype=lib.int64), y, alpha=2),
    "index_copy": lambda lib, x, y: lib.index_copy(x, 0, lib.zeros(1, dtype=lib.int64), y),
    "index_fill": lambda lib, x, y: lib.index_fill(x, 0, lib.zeros(1, dtype=lib.int64), 2.5),
    "sort": lambda lib, x, y: lib.sort(x, 0),
    "cumsum": lambda lib, x, y: lib.cumsum(x, -1),
    "cummax": lambda lib, x, y: lib.cummax(x, 0),
    "softmax": lambda lib, x, y: lib.softmax(x, 0),
    "max": lambda lib, x, y: lib.max(x, 0),
    "std": lambda lib, x, y: lib.std(x, 0, correction=0),
    "stack": lambda lib, x, y: lib.stack([x, y]),
    "flip": lambda lib, x, y: lib.flip(x, (0,)),
    "topk": lambda lib, x, y: lib.topk(x, 1),
    "kthvalue": lambda lib, x, y: lib.kthvalue(x, 1),
}


@pytest.mark.parametrize("name", NO_AXES)
def test_tensors_without_axes(name: str) -> None:
    arrays = [numbers(generator(name, i), ()) for i in range(2)]
    with dl.device("cpu"):
        check_against_torch(
            "cpu", lambda *x: NO_AXES[name](dl, *x), *arrays, g=lambda *x: NO_AXES[name](torch, *x)
        )


FORMS: dict[str, tuple[Call, tuple[tuple[int, ...], ...]]] = {
    "softmax dtype": (lambda lib, x: lib.softmax(x, 1, dtype=lib.float64), ((3, 5),)),
    "log_softmax dtype": (lambda lib, x: lib.log_softmax(x, dim=0, dtype=lib.float64), ((3, 5),)),
    "sum dtype": (lambda lib, x: lib.sum(x, dim=1, dtype=lib.float64), ((3, 5),)),
    "var unbiased": (lambda lib, x: lib.var(x, False), ((3, 5),)),
    "std unbiased": (lambda lib, x: x.std(1, unbiased=False, keepdim=True), ((3, 5),)),
    "var_mean": (lambda lib, x: lib.var_mean(x, dim=(0, 2), correction=None), ((3, 5, 2),)),
    "diag_embed": (lambda lib, x: lib.diag_embed(x, 1, dim1=0, dim2=2), ((3, 5),)),
    "flip dims": (lambda lib, x: lib.flip(x, dims=(0, -1)), ((3, 5),)),
    "permute dims": (lambda lib, x: x.permute(dims=(1, 0)), ((3, 5),)),
    "view size": (lambda lib, x: x.view(size=(5, 3)), ((3, 5),)),
    "swapaxes": (lambda lib, x: lib.swapaxes(x, axis0=0, axis1=1), ((3, 5),)),
    "einsum list": (lambda lib, x, y: lib.einsum("ij,kj", [x, y]), ((3, 5), (2, 5))),
    "einsum sublists": (lambda lib, x, y: lib.einsum(x, [0, 1], y, [..., 1], [..., 0]), ((3, 5), (2, 5))),
    "einsum diagonal": (lambda lib, x, y: lib.einsum("iij,jk->ik", x, y), ((3, 3, 5), (5, 2))),
    "pow exponent": (lambda lib, x: lib.pow(x, exponent=3), ((3, 5),)),
    "max other": (lambda lib, x, y: lib.max(x, other=y), ((3, 5), (5,))),
    "scatter value": (
        lambda lib, x: lib.scatter(x, 1, lib.tensor([[1, 3]], device=x.device), value=2.0),
        ((3, 5),),
    ),
    "cdist": (
        lambda lib, x, y: lib.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist"),
        ((3, 5), (2, 5)),
    ),
    "diff": (lambda lib, x, y: lib.diff(x, 0, prepend=y), ((3, 5), (3, 2))),
    "mse weight": (lambda lib, x, y: lib.nn.functional.mse_loss(x, y, weight=y * y), ((3, 5), (3, 5))),
    "l1 weight": (lambda lib, x, y: lib.nn.functional.l1_loss(x, y, weight=y * y), ((3, 5), (3, 5))),
    "cosine": (
        lambda lib, x, y: lib.nn.functional.cosine_similarity(x, y.detach(), -2),
        ((1, 2, 3), (2, 1, 3)),
    ),
    "circular": (lambda lib, x: lib.nn.functional.pad(x, (-1, 2, 1, 1), "circular"), ((1, 2, 5, 7),)),
    "gqa": (
        lambda lib, q, k, v: lib.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        ((2, 6, 5, 3), (2, 2, 7, 3), (2, 2, 7, 4)),
    ),
    **{
        f"interpolate {mode} {size}": (
            lambda lib, x, mode=mode, size=size: lib.nn.functional.interpolate(
                x, size, mode=mode, antialias=mode != "area", align_corners=None if mode == "area" else False
            ),
            ((2, 3, 11, 7),),
        )
        for mode in ("area", "bilinear", "bicubic")
        for size in ((5, 13), (3, 2))
    },
    "recompute_scale_factor": (
        lambda lib, x: lib.nn.functional.interpolate(
            x, scale_factor=1.7, mode="linear", recompute_scale_factor=True
        ),
        ((2, 3, 5),),
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_arguments(name: str, device: str) -> None:
    call, shapes = FORMS[name]
    arrays = [numbers(generator(name, i), shape) for i, shape in enumerate(shapes)]
    check_against_torch(device, lambda *x: call(dl, *x), *arrays, g=lambda *x: call(torch, *x))


def test_tensors_of_one_integer_are_ints(device: str) -> None:
    x: Any = dl.tensor(numbers(generator("ints"), (5, 7)), device=device)
    two: Any = dl.tensor(2, device=device)
    one: Any = dl.tensor(1, device="cpu")
    seven: Any = dl.tensor(7, device=device)
    assert x.narrow(one, two, two).shape == (5, 2)
    assert x.select(one, two).tolist() == x[:, 2].tolist()
    assert x.sort(one).values.tolist() == x.sort(1).values.tolist()
    assert x.reshape(seven, 5).shape == (7, 5)
    assert dl.nn.functional.max_pool1d(x, two).shape == (5, 3)


def test_older_names_of_reductions() -> None:
    x, y = (dl.tensor(numbers(generator("older", i), (3, 5)), device="cpu") for i in range(2))
    mse = dl.nn.functional.mse_loss
    with pytest.warns(UserWarning, match="reduction='sum'"):
        assert mse(x, y, size_average=False).item() == mse(x, y, reduction="sum").item()
    with pytest.warns(UserWarning, match="reduction='none'"):
        assert mse(x, y, reduce=False).shape == (3, 5)


def test_softmax_without_an_axis_takes_that_of_pytorch() -> None:
    for shape in ((5,), (3, 5), (2, 3, 5), (2, 3, 2, 5)):
        array = numbers(generator("axis", shape), shape)
        with pytest.warns(UserWarning, match="without dim"):
            result = dl.nn.functional.softmax(dl.tensor(array, device="cpu"))
        with pytest.warns(UserWarning, match="Implicit dimension"):
            expected = torch.nn.functional.softmax(torch.from_numpy(array))
        np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=1e-5)


def test_equal_maxima_each_get_the_gradient(device: str) -> None:
    """Windows that overlap have the same maximum: unpooling hands the gradient to all of them."""

    def unpooled(f: Any, x: Any) -> Any:
        values, indices = f.max_pool2d(x, 3, 2, 1, return_indices=True)
        return f.max_unpool2d(values, indices, 3, 2, 1, output_size=x.shape)

    array = numbers(generator("unpool"), (2, 3, 7, 9))
    check_against_torch(
        device, lambda x: unpooled(dl.nn.functional, x), array, g=lambda x: unpooled(torch.nn.functional, x)
    )
