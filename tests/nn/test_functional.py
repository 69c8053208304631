"""The functions behind further layers beside PyTorch's: values, gradients, refusals; and the layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.loss import ctc
from tests.conftest import need
from tests.support.compare_torch import NDArray, check_against_torch, values

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")

Call = Callable[..., Any]  # of nn.functional, here or there, a function that brings ints, and tensors
# Not through Kompute, which takes long to build pipelines for what the tests of ops have run through it.
DEVICES = pytest.mark.parametrize("place", ["cpu", pytest.param("vulkan:0", marks=pytest.mark.vulkan)])


def shuffled(*shape: int) -> NDArray:
    """No two elements alike, in no order."""
    count = int(np.prod(shape))
    return (np.random.default_rng(count).permutation(count).reshape(shape) / count * 4 - 2).astype(np.float32)


SIGNS = np.sign(values(4, 5)) * np.float32(1)
CHANCES = np.random.default_rng(1).random((4, 5)).astype(np.float32)
LABELS = np.array([[1, 3, -1, 0, 2], [0, -1, 0, 0, 0], [4, 2, 2, -1, 1], [-1, 0, 1, 2, 3]])
BAGS = np.array([0, 2, 1, 2, 4, 0, 0])
GRID = np.random.default_rng(2).uniform(-1.4, 1.4, (2, 3, 4, 2)).astype(np.float32)
CUBES = np.random.default_rng(4).uniform(-1.2, 1.2, (1, 2, 3, 2, 3)).astype(np.float32)
WINDOWS = {"kernel_size": (3, 2, 2), "stride": (2, 1, 2), "padding": (1, 0, 1)}


def sampled(mode: str, padding: str, corners: bool) -> Call:
    return lambda F, i, x, g: F.grid_sample(x, g, mode, padding, corners)


CASES: dict[str, tuple[Call, tuple[NDArray, ...]]] = {
    "hardshrink": (lambda F, i, x: F.hardshrink(x, 0.8), (values(4, 5),)),
    "softshrink": (lambda F, i, x: F.softshrink(x, 0.8), (values(4, 5),)),
    "tanhshrink": (lambda F, i, x: F.tanhshrink(x), (values(4, 5),)),
    "rrelu": (lambda F, i, x: F.rrelu(x, 0.1, 0.4), (values(4, 5),)),
    "rrelu of one slope": (lambda F, i, x: F.rrelu(x, 0.25, 0.25, training=True), (values(4, 5),)),
    "elu_": (lambda F, i, x: F.elu_(x * 2, 0.5), (values(4, 5),)),
    "leaky_relu_": (lambda F, i, x: F.leaky_relu_(x * 2, 0.5), (values(4, 5),)),
    "threshold_": (lambda F, i, x: F.threshold_(x * 2, 0.5, 0.25), (values(4, 5),)),
    "channel_shuffle": (lambda F, i, x: F.channel_shuffle(x, 3), (values(2, 6, 2, 3),)),
    "local_response_norm": (lambda F, i, x: F.local_response_norm(x, 4, 0.5, 0.6, 2.0), (values(2, 6, 3),)),
    "local_response_norm of ints": (
        lambda F, i, x: F.local_response_norm(x, 4, 0.5, 0.6, 2.0),
        (np.random.default_rng(7).integers(-9, 9, (2, 6, 3)),),
    ),
    "local_response_norm of 5": (lambda F, i, x: F.local_response_norm(x, 5), (values(2, 6, 3, 2),)),
    "bilinear": (
        lambda F, i, *x: F.bilinear(*x),
        (values(2, 4, 3), values(2, 4, 5), values(6, 3, 5), values(6)),
    ),
    "pairwise_distance": (
        lambda F, i, a, b: F.pairwise_distance(a, b, 3.0, keepdim=True),
        (values(4, 5), values(5) * 2),
    ),
    "pdist": (lambda F, i, x: F.pdist(x), (values(4, 5),)),
    "soft_margin_loss": (lambda F, i, x: F.soft_margin_loss(x * 9, i(SIGNS)), (values(4, 5),)),
    "multi_margin_loss": (lambda F, i, x: F.multi_margin_loss(x, i(np.array([0, 3, 4, 1]))), (values(4, 5),)),
    "multi_margin_loss, squared": (
        lambda F, i, x: F.multi_margin_loss(
            x, i(np.array([0, 3, 4, 1])), 2, 0.5, i(CHANCES[0]), reduction="none"
        ),
        (values(4, 5),),
    ),
    "multi_margin_loss of one": (lambda F, i, x: F.multi_margin_loss(x, i(np.array(2))), (values(5),)),
    "multilabel_margin_loss": (
        lambda F, i, x: F.multilabel_margin_loss(x, i(LABELS), reduction="none"),
        (values(4, 5),),
    ),
    "multilabel_margin_loss of one": (
        lambda F, i, x: F.multilabel_margin_loss(x, i(LABELS[0])),
        (values(5),),
    ),
    "multilabel_soft_margin_loss": (
        lambda F, i, x: F.multilabel_soft_margin_loss(x, i(CHANCES), i(CHANCES[0]), reduction="sum"),
        (values(4, 5),),
    ),
    "triplet_margin_loss": (
        lambda F, i, *x: F.triplet_margin_loss(*x, margin=2.0, swap=True, reduction="none"),
        (values(4, 5), values(4, 5) * 1.5, values(4, 5) + 0.2),
    ),
    "triplet_margin_with_distance_loss": (
        lambda F, i, *x: F.triplet_margin_with_distance_loss(
            *x, distance_function=lambda a, b: (a - b).abs().sum(-1), margin=0.5
        ),
        (values(4, 5), values(4, 5) * 1.5, values(4, 5) + 0.2),
    ),
    "gaussian_nll_loss": (
        lambda F, i, x, v: F.gaussian_nll_loss(x, i(CHANCES), v, full=True),
        (values(4, 5), CHANCES),
    ),
    "gaussian_nll_loss, one of a line": (
        lambda F, i, x, v: F.gaussian_nll_loss(x, i(CHANCES), v, eps=0.4, reduction="none"),
        (values(4, 5), CHANCES[:, 0].copy()),
    ),
    "poisson_nll_loss": (lambda F, i, x: F.poisson_nll_loss(x, i(CHANCES * 4), full=True), (values(4, 5),)),
    "poisson_nll_loss of counts": (
        lambda F, i, x: F.poisson_nll_loss(x, i(CHANCES * 4), log_input=False, reduction="none"),
        (CHANCES + 1,),
    ),
    "avg_pool3d": (lambda F, i, x: F.avg_pool3d(x, **WINDOWS), (values(2, 3, 5, 4, 5),)),
    "avg_pool3d, ceil": (lambda F, i, x: F.avg_pool3d(x, 2, 2, 1, True, False), (values(1, 2, 5, 4, 5),)),
    "avg_pool3d, divisor": (lambda F, i, x: F.avg_pool3d(x, 2, divisor_override=3), (values(2, 4, 4, 5),)),
    "max_pool3d": (lambda F, i, x: F.max_pool3d(x, **WINDOWS), (shuffled(2, 3, 5, 4, 5),)),
    "max_pool3d, dilated": (
        lambda F, i, x: F.max_pool3d(x, 2, 1, 0, (1, 2, 2), True),
        (shuffled(1, 2, 4, 5, 5),),
    ),
    "max_pool3d, places": (
        lambda F, i, x: F.max_pool3d(x, **WINDOWS, return_indices=True),
        (shuffled(3, 5, 4, 5),),
    ),
    "max_pool1d, places": (lambda F, i, x: F.max_pool1d_with_indices(x, 3, 2, 1), (shuffled(2, 3, 7),)),
    "adaptive_avg_pool3d": (lambda F, i, x: F.adaptive_avg_pool3d(x, (2, None, 3)), (values(2, 3, 5, 4, 5),)),
    "adaptive_max_pool3d": (lambda F, i, x: F.adaptive_max_pool3d(x, 2, True), (shuffled(2, 3, 5, 4, 5),)),
    "adaptive_max_pool1d, places": (
        lambda F, i, x: F.adaptive_max_pool1d(x, 3, return_indices=True),
        (shuffled(2, 3, 7),),
    ),
    "lp_pool1d": (lambda F, i, x: F.lp_pool1d(x, 2, 3, 2, True), (values(2, 3, 8),)),
    "lp_pool2d": (lambda F, i, x: F.lp_pool2d(x, 1.5, (2, 3)), (np.abs(values(2, 3, 4, 6)),)),
    "lp_pool3d": (lambda F, i, x: F.lp_pool3d(x, 2, 2, 1), (values(2, 3, 3, 4, 3),)),
    "max_unpool1d": (
        lambda F, i, x: F.max_unpool1d(*F.max_pool1d_with_indices(x, 2), 2, output_size=(2, 3, 7)),
        (shuffled(2, 3, 7),),
    ),
    "max_unpool2d": (
        lambda F, i, x: F.max_unpool2d(*F.max_pool2d_with_indices(x, 3, 3), 3),
        (shuffled(1, 2, 6, 9),),
    ),
    "max_unpool3d": (
        lambda F, i, x: F.max_unpool3d(*F.max_pool3d_with_indices(x, 2), 2),
        (shuffled(1, 2, 4, 4, 2),),
    ),
    "affine_grid": (lambda F, i, x: F.affine_grid(x, (2, 3, 4, 5), align_corners=False), (values(2, 2, 3),)),
    "affine_grid of volumes": (lambda F, i, x: F.affine_grid(x, (2, 3, 3, 4, 5), True), (values(2, 3, 4),)),
    "grid_sample": (sampled("bilinear", "zeros", False), (shuffled(2, 3, 5, 4), GRID)),
    "grid_sample, corners": (sampled("bilinear", "zeros", True), (shuffled(2, 3, 5, 4), GRID)),
    "grid_sample, border": (sampled("bilinear", "border", False), (shuffled(2, 3, 5, 4), GRID)),
    "grid_sample, mirror": (sampled("bilinear", "reflection", False), (shuffled(2, 3, 5, 4), GRID)),
    "grid_sample, corners, mirror": (sampled("bilinear", "reflection", True), (shuffled(2, 3, 5, 4), GRID)),
    "grid_sample, bicubic": (sampled("bicubic", "zeros", False), (shuffled(2, 3, 5, 4), GRID)),
    "grid_sample, bicubic, border": (sampled("bicubic", "border", True), (shuffled(2, 3, 5, 4), GRID)),
    "grid_sample, bicubic, mirror": (sampled("bicubic", "reflection", False), (shuffled(2, 3, 5, 4), GRID)),
    "grid_sample nearest": (
        lambda F, i, x: F.grid_sample(x, i(GRID), "nearest", "reflection", False),
        (shuffled(2, 3, 5, 4),),
    ),
    "grid_sample of volumes": (
        lambda F, i, x, g: F.grid_sample(x, g, align_corners=False),
        (shuffled(1, 2, 3, 4, 5), CUBES),
    ),
    "upsample_nearest": (lambda F, i, x: F.interpolate(x, scale_factor=2), (values(1, 2, 3, 4),)),
    "embedding_bag": (
        lambda F, i, x: F.embedding_bag(i(BAGS), x, i(np.array([0, 3, 3, 5]))),
        (values(5, 3),),
    ),
    "embedding_bag, sum": (
        lambda F, i, x, w: F.embedding_bag(
            i(BAGS), x, i(np.array([0, 3, 7])), mode="sum", per_sample_weights=w, include_last_offset=True
        ),
        (values(5, 3), values(7)),
    ),
    "embedding_bag, max": (
        lambda F, i, x: F.embedding_bag(i(BAGS), x, i(np.array([0, 3, 3, 4])), mode="max"),
        (shuffled(5, 3),),
    ),
    "embedding_bag, padding": (
        lambda F, i, x: F.embedding_bag(i(BAGS[:6].reshape(2, 3)), x, padding_idx=2),
        (values(5, 3),),
    ),
}


@DEVICES
@pytest.mark.parametrize("name", CASES)
def test_beside_pytorch(name: str, place: str) -> None:
    need(place)
    call, arrays = CASES[name]
    F, G = dl.nn.functional, torch.nn.functional
    check_against_torch(
        place,
        lambda *x: call(F, lambda array: dl.tensor(array, device=place), *x),
        *arrays,
        g=lambda *x: call(G, lambda array: torch.from_numpy(np.asarray(array)), *x),
    )


TIMES, LINES, CLASSES = 7, 3, 5
SAID = np.array([[1, 2, 2], [3, 3, 0], [4, 0, 0]])


@pytest.fixture(params=["to each state", "from three"])
def steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to take the steps of the recursion, of which the number of states decides."""
    monkeypatch.setattr(ctc, "SMALL", 1 << 60 if request.param == "to each state" else 0)


@DEVICES
@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_ctc_loss(reduction: str, place: str) -> None:
    need(place)
    lasting, lengths = [7, 5, 2], [3, 2, 1]
    one_behind_the_other = np.concatenate([row[:n] for row, n in zip(SAID, lengths, strict=True)])
    for targets in (SAID, one_behind_the_other):
        check_against_torch(
            place,
            lambda x, targets=targets: dl.nn.functional.ctc_loss(
                dl.log_softmax(x, -1), dl.tensor(targets, device=place), lasting, lengths, reduction=reduction
            ),
            values(TIMES, LINES, CLASSES),
            g=lambda x, targets=targets: torch.nn.functional.ctc_loss(
                torch.log_softmax(x, -1),
                torch.from_numpy(targets),
                torch.tensor(lasting),
                torch.tensor(lengths),
                reduction=reduction,
            ),
        )


@pytest.mark.usefixtures("steps")
def test_ctc_loss_of_what_cannot_be_said() -> None:
    """Two of the same label need a blank between them, so at least three times."""
    check_against_torch(
        "cpu",
        lambda x: dl.nn.functional.ctc_loss(
            dl.log_softmax(x, -1), SAID[1:2], [2], [2], reduction="none", zero_infinity=True
        ),
        values(2, 1, 5),
        g=lambda x: torch.nn.functional.ctc_loss(
            torch.log_softmax(x, -1),
            torch.from_numpy(SAID[1:2]),
            torch.tensor([2]),
            torch.tensor([2]),
            reduction="none",
            zero_infinity=True,
        ),
    )
    scores = dl.log_softmax(dl.zeros(2, 1, 5, device="cpu"), -1)
    assert dl.nn.functional.ctc_loss(scores, SAID[1:2], [2], [2], reduction="none").tolist() == [float("inf")]


@pytest.mark.usefixtures("steps")
def test_ctc_loss_of_classes_that_cannot_be(device: str) -> None:
    """Probabilities of 0, where PyTorch's gradients are partly nan and these are numbers."""
    shares = np.random.default_rng(5).random((TIMES, LINES, CLASSES)).astype(np.float32)
    shares[::2, :, 1] = 0
    shares[1, :, :] = 0
    with np.errstate(divide="ignore"):
        scores = np.log(shares)
    scores[1, :, 2] = 0.0
    lasting, lengths = [7, 5, 4], [3, 2, 1]
    theirs = torch.tensor(scores, requires_grad=True)
    expected = torch.nn.functional.ctc_loss(
        theirs, torch.from_numpy(SAID), torch.tensor(lasting), torch.tensor(lengths), reduction="none",
        zero_infinity=True,
    )  # fmt: skip
    expected.sum().backward()
    ours = dl.tensor(scores, device=device).requires_grad_()
    found = dl.nn.functional.ctc_loss(ours, SAID, lasting, lengths, reduction="none", zero_infinity=True)
    found.sum().backward()
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-5)
    assert ours.grad is not None
    assert theirs.grad is not None
    gradient, known = ours.grad.numpy(), ~np.isnan(theirs.grad.numpy())
    assert np.isfinite(gradient).all()
    np.testing.assert_allclose(gradient[known], theirs.grad.numpy()[known], rtol=1e-4, atol=1e-6)


def test_steps_of_ctc_loss_have_the_same_second_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for most in (1 << 60, 0):
        monkeypatch.setattr(ctc, "SMALL", most)
        x = dl.tensor(values(TIMES, LINES, CLASSES), device="cpu", requires_grad=True)
        loss = dl.nn.functional.ctc_loss(dl.log_softmax(x, -1), SAID, [7, 5, 2], [3, 2, 1])
        (first,) = dl.autograd.grad(loss, x, create_graph=True)
        (second,) = dl.autograd.grad(first.square().sum(), x)
        found.append((first.detach().numpy(), second.numpy()))
    assert np.abs(found[0][1]).max() > 1e-4
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-7)


def test_ctc_loss_in_float16() -> None:
    scores = dl.log_softmax(dl.tensor(values(TIMES, LINES, CLASSES), device="cpu"), -1)
    losses = []
    for dtype in ("float32", "float16"):
        x = scores.detach().to(dtype).requires_grad_()
        loss = dl.nn.functional.ctc_loss(x, SAID, [7, 5, 2], [3, 2, 1])
        loss.backward()
        assert x.grad is not None
        assert loss.dtype == x.grad.dtype == dtype
        losses.append((loss.item(), x.grad.float().numpy()))
    np.testing.assert_allclose(losses[1][0], losses[0][0], rtol=2e-3)
    np.testing.assert_allclose(losses[1][1], losses[0][1], rtol=1e-2, atol=2e-3)


def test_random_activations_and_dropout() -> None:
    F = dl.nn.functional
    x = dl.randn(200, 50, device="cpu")
    slopes = (F.rrelu(-abs(x), 0.2, 0.4, training=True) / -abs(x)).numpy()
    assert 0.2 <= slopes.min() < 0.21
    assert 0.39 < slopes.max() <= 0.4
    dropped = F.alpha_dropout(x, 0.3, training=True).numpy()
    assert abs(dropped.mean()) < 0.05
    assert abs(dropped.std() - 1) < 0.05
    _, counts = np.unique(dropped, return_counts=True)
    assert abs(counts.max() / dropped.size - 0.3) < 0.02
    assert F.alpha_dropout(x, 0.3) is x
    assert (F.alpha_dropout(x, 1.0, training=True) == 0).all().item()
    channels = F.feature_alpha_dropout(dl.ones(20, 30, 5, device="cpu"), 0.4, training=True).numpy()
    assert (channels == channels[:, :, :1]).all()
    assert len(np.unique(channels)) == 2
    for function, shape in ((F.dropout1d, (20, 30, 5)), (F.dropout3d, (20, 30, 2, 2, 2))):
        found = function(dl.ones(*shape, device="cpu"), 0.25).numpy().reshape(600, -1)
        assert (found == found[:, :1]).all()
        assert 0.15 < (found[:, 0] == 0).mean() < 0.35


def test_random_choices_follow_the_scores() -> None:
    chances = np.array([0.2, 0.5, 0.3], np.float32)
    logits = dl.tensor(np.log(np.tile(chances, (4000, 1))), device="cpu").requires_grad_()
    hard = dl.nn.functional.gumbel_softmax(logits, tau=0.7, hard=True)
    np.testing.assert_allclose(hard.detach().numpy().mean(0), chances, atol=0.03)
    assert set(np.unique(hard.detach().numpy().round(5))) == {0.0, 1.0}
    hard.backward(dl.tensor(values(4000, 3), device="cpu"))
    assert logits.grad is not None
    assert float(abs(logits.grad).numpy().max()) > 0
    soft = dl.nn.functional.gumbel_softmax(logits.detach(), dim=0)
    np.testing.assert_allclose(soft.numpy().sum(0), 1, rtol=1e-5)


def signed(nn: Any) -> Any:
    """A layer of one operand; PyTorch's gives its target no gradient."""
    layer = nn.SoftMarginLoss()
    target = dl.tensor(SIGNS, device="cpu") if nn is dl.nn else torch.from_numpy(SIGNS)
    layer.register_forward_pre_hook(lambda module, given: (*given, target))
    return layer


def padded(name: str) -> Callable[[Any], Any]:
    amounts: Any = {"1d": (1, 2), "2d": (1, 2, 3, 0), "3d": 2}[name[-2:]]
    more = (2.5,) if name.startswith("Constant") else ()
    return lambda nn: getattr(nn, name)(amounts, *more)


LAYERS: dict[str, tuple[Callable[[Any], Any], tuple[NDArray, ...]]] = {
    **{
        f"{kind}{n}d": (padded(f"{kind}{n}d"), (values(2, 3, *(5, 6, 7)[:n]),))
        for kind in ("ConstantPad", "ZeroPad", "ReflectionPad", "ReplicationPad", "CircularPad")
        for n in (1, 2, 3)
    },
    "Hardshrink": (lambda nn: nn.Hardshrink(0.7), (values(4, 5),)),
    "Softshrink": (lambda nn: nn.Softshrink(0.7), (values(4, 5),)),
    "Tanhshrink": (lambda nn: nn.Tanhshrink(), (values(4, 5),)),
    "RReLU": (lambda nn: nn.RReLU().eval(), (values(4, 5),)),
    "Softmax2d": (lambda nn: nn.Softmax2d(), (values(2, 3, 4, 5),)),
    "Dropout1d": (lambda nn: nn.Dropout1d().eval(), (values(2, 3, 4),)),
    "Dropout3d": (lambda nn: nn.Dropout3d().eval(), (values(2, 3, 4, 5),)),
    "AlphaDropout": (lambda nn: nn.AlphaDropout().eval(), (values(2, 3, 4),)),
    "FeatureAlphaDropout": (lambda nn: nn.FeatureAlphaDropout().eval(), (values(2, 3, 4),)),
    "MaxPool1d": (lambda nn: nn.MaxPool1d(2, return_indices=True), (shuffled(2, 3, 6),)),
    "MaxPool3d": (lambda nn: nn.MaxPool3d(2), (shuffled(2, 3, 4, 4, 4),)),
    "AvgPool3d": (lambda nn: nn.AvgPool3d((1, 2, 2), padding=0), (values(2, 3, 4, 4, 4),)),
    "AdaptiveAvgPool3d": (lambda nn: nn.AdaptiveAvgPool3d(1), (values(2, 3, 4, 4, 4),)),
    "AdaptiveMaxPool1d": (lambda nn: nn.AdaptiveMaxPool1d(2), (shuffled(2, 3, 5),)),
    "AdaptiveMaxPool3d": (lambda nn: nn.AdaptiveMaxPool3d((2, 1, 1)), (shuffled(2, 3, 4, 4, 4),)),
    "LPPool1d": (lambda nn: nn.LPPool1d(2, 2), (values(2, 3, 6),)),
    "LPPool2d": (lambda nn: nn.LPPool2d(2, 2), (values(2, 3, 6, 4),)),
    "LPPool3d": (lambda nn: nn.LPPool3d(2, 2), (values(2, 3, 6, 4, 2),)),
    "LocalResponseNorm": (lambda nn: nn.LocalResponseNorm(3), (values(2, 5, 4),)),
    "ChannelShuffle": (lambda nn: nn.ChannelShuffle(2), (values(2, 4, 3, 3),)),
    "UpsamplingNearest2d": (lambda nn: nn.UpsamplingNearest2d(scale_factor=2), (values(1, 2, 3, 4),)),
    "UpsamplingBilinear2d": (lambda nn: nn.UpsamplingBilinear2d(size=(5, 7)), (values(1, 2, 3, 4),)),
    "Unflatten": (lambda nn: nn.Unflatten(1, (2, -1)), (values(3, 6),)),
    "PairwiseDistance": (lambda nn: nn.PairwiseDistance(1.0), (values(4, 5), values(4, 5) * 2)),
    "SoftMarginLoss": (signed, (values(4, 5),)),
    "MultiLabelSoftMarginLoss": (lambda nn: nn.MultiLabelSoftMarginLoss(), (values(4, 5), CHANCES)),
    "TripletMarginLoss": (
        lambda nn: nn.TripletMarginLoss(2.0),
        (values(4, 5), values(4, 5) * 2, values(4, 5) + 1),
    ),
    "TripletMarginWithDistanceLoss": (
        lambda nn: nn.TripletMarginWithDistanceLoss(swap=True),
        (values(4, 5), values(4, 5) * 2, values(4, 5) + 1),
    ),
    "GaussianNLLLoss": (lambda nn: nn.GaussianNLLLoss(full=True), (values(4, 5), CHANCES, CHANCES + 1)),
    "PoissonNLLLoss": (lambda nn: nn.PoissonNLLLoss(), (values(4, 5), CHANCES)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str) -> None:
    make, arrays = LAYERS[name]
    check_against_torch("cpu", make(dl.nn), *arrays, g=make(torch.nn))
    assert name in repr(make(dl.nn))


COMPARED = {
    *LAYERS,
    *("Bilinear", "EmbeddingBag", "MultiMarginLoss", "MultiLabelMarginLoss", "CTCLoss"),
    *("MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "ParameterList", "ParameterDict"),
}
"""The layers that the tests of this file look at."""


def test_layers_with_ints_and_parameters() -> None:
    ours, theirs = dl.nn.Bilinear(3, 4, 5), torch.nn.Bilinear(3, 4, 5)
    ours.load_state_dict({name: value.detach().numpy() for name, value in theirs.state_dict().items()})
    check_against_torch("cpu", ours, values(2, 3), values(2, 4), g=theirs)
    bags, theirs = dl.nn.EmbeddingBag(6, 3, mode="sum"), torch.nn.EmbeddingBag(6, 3, mode="sum")
    bags.load_state_dict({name: value.detach().numpy() for name, value in theirs.state_dict().items()})
    rows = np.array([[0, 2], [5, 5]])
    np.testing.assert_allclose(
        bags(dl.tensor(rows, device="cpu")).detach().numpy(), theirs(torch.from_numpy(rows)).detach().numpy()
    )
    places = np.array([0, 3, 4, 1])
    makes: tuple[Call, ...] = (lambda nn: nn.MultiMarginLoss(2), lambda nn: nn.MultiLabelMarginLoss())
    for make in makes:
        target = places if "MultiMarginLoss" in repr(make(dl.nn)) else LABELS
        check_against_torch(
            "cpu",
            lambda x, m=make, t=target: m(dl.nn)(x, dl.tensor(t, device="cpu")),
            values(4, 5),
            g=lambda x, m=make, t=target: m(torch.nn)(x, torch.from_numpy(t)),
        )
    scores = dl.log_softmax(dl.tensor(values(7, 3, 5), device="cpu"), -1)
    expected = torch.nn.CTCLoss()(
        torch.from_numpy(scores.numpy()),
        torch.from_numpy(SAID),
        torch.tensor([7, 5, 2]),
        torch.tensor([3, 2, 1]),
    )
    got = dl.nn.CTCLoss()(scores, SAID, [7, 5, 2], [3, 2, 1]).item()
    assert got == pytest.approx(expected.item(), rel=1e-5)
    for axes in (1, 2, 3):

        def there_and_back(x: Any, nn: Any = dl.nn, axes: int = axes) -> Any:
            pooled = getattr(nn, f"MaxPool{axes}d")(2, return_indices=True)(x)
            return getattr(nn, f"MaxUnpool{axes}d")(2)(*pooled)

        check_against_torch(
            "cpu", there_and_back, shuffled(1, 2, *(4,) * axes), g=lambda x, f=there_and_back: f(x, torch.nn)
        )


def test_lists_and_dicts_of_parameters() -> None:
    scales = dl.nn.ParameterList([dl.ones(2, device="cpu"), dl.nn.Parameter(dl.zeros(3, device="cpu"))])
    scales.append(dl.ones(1, device="cpu"))
    scales[-1] = dl.full((4,), 2.0, device="cpu")
    assert [p.shape for p in scales] == [(2,), (3,), (4,)]
    assert len(list(scales.parameters())) == 3
    assert all(p.requires_grad for p in scales)
    assert [p.shape for p in scales[1:]] == [(3,), (4,)]
    named = dl.nn.ParameterDict({"a": dl.ones(2, device="cpu")})
    named["b"] = dl.ones(3, device="cpu")
    assert (list(named), len(named), "a" in named, "c" in named) == (["a", "b"], 2, True, False)
    assert [name for name, _ in named.named_parameters()] == ["a", "b"]
    del named["a"]
    assert list(named.keys()) == ["b"]
    scales.extend([dl.nn.ParameterList([dl.rand(5)]), 3, None])
    assert [name for name, _ in scales.named_parameters()] == ["0", "1", "2", "3.0"]
    assert (len(scales), scales[4], scales[5]) == (6, 3, None)
    with pytest.raises(ArgumentError, match="attribute of modules"):
        named["training"] = dl.ones(1)


REFUSED: tuple[tuple[type[Exception], str, Callable[[Any, Any], Any]], ...] = (
    (ArgumentError, r"\[softshrink\]", lambda F, x: F.softshrink(x, -1)),
    (ArgumentError, r"\[rrelu\]", lambda F, x: F.rrelu(x, 1, 0)),
    (ArgumentError, r"\[dropout1d\]", lambda F, x: F.dropout1d(x[0])),
    (ArgumentError, r"\[alpha_dropout\]", lambda F, x: F.alpha_dropout(x, 2)),
    (ArgumentError, r"\[channel_shuffle\]", lambda F, x: F.channel_shuffle(x, 2)),
    (ArgumentError, r"\[local_response_norm\]", lambda F, x: F.local_response_norm(x, 2)),
    (ShapeError, r"\[bilinear\]", lambda F, x: F.bilinear(x, x, x)),
    (ShapeError, r"\[pdist\]", lambda F, x: F.pdist(x[0])),
    (ArgumentError, r"\[soft_margin_loss\] reduction", lambda F, x: F.soft_margin_loss(x, x, reduction="no")),
    (ArgumentError, r"\[multi_margin_loss\] p", lambda F, x: F.multi_margin_loss(x, x, 3)),
    (ShapeError, r"\[multi_margin_loss\]", lambda F, x: F.multi_margin_loss(x, x)),
    (ArgumentError, r"\[multi_margin_loss\] index 9", lambda F, x: F.multi_margin_loss(x, dl.tensor([9, 0]))),
    (ShapeError, r"\[multilabel_margin_loss\]", lambda F, x: F.multilabel_margin_loss(x, x[0])),
    (ArgumentError, r"\[triplet_margin_loss\]", lambda F, x: F.triplet_margin_loss(x, x, x, margin=0)),
    (ShapeError, r"\[gaussian_nll_loss\]", lambda F, x: F.gaussian_nll_loss(x, x, dl.ones(7, device="cpu"))),
    (ArgumentError, r"\[gaussian_nll_loss\]", lambda F, x: F.gaussian_nll_loss(x, x, -abs(x))),
    (ArgumentError, r"\[ctc_loss\] blank", lambda F, x: F.ctc_loss(x, [[1]], [2], [1], blank=9)),
    (ArgumentError, r"\[ctc_loss\] input_lengths", lambda F, x: F.ctc_loss(x, [[1]], [3], [1])),
    (ArgumentError, r"\[ctc_loss\] target_lengths", lambda F, x: F.ctc_loss(x, [[1]], [2], [2])),
    (ShapeError, r"\[max_pool3d\]", lambda F, x: F.max_pool3d(x, 2)),
    (ArgumentError, r"\[avg_pool3d\] kernel_size", lambda F, x: F.avg_pool3d(x[None, None], (2, 2))),
    (ArgumentError, r"divisor_override", lambda F, x: F.avg_pool3d(x[None, None], 1, divisor_override=0)),
    (ArgumentError, r"\[lp_pool2d\] kernel_size", lambda F, x: F.lp_pool2d(x[None], 2, (2, 2, 2))),
    (ArgumentError, r"\[lp_pool\]", lambda F, x: F.lp_pool1d(x[None], 0, 2)),
    (ShapeError, r"\[max_unpool2d\]", lambda F, x: F.max_unpool2d(x, x, 2)),
    (ShapeError, r"\[affine_grid\]", lambda F, x: F.affine_grid(x, (1, 1, 2, 2))),
    (ArgumentError, r"\[grid_sample\] the mode", lambda F, x: F.grid_sample(x, x, "cubic")),
    (ArgumentError, r"\[grid_sample\] padding", lambda F, x: F.grid_sample(x, x, padding_mode="no")),
    (ShapeError, r"\[grid_sample\]", lambda F, x: F.grid_sample(x, x)),
    (ShapeError, r"bicubic", lambda F, x: F.grid_sample(x[None, None, None], x[None, None, None], "bicubic")),
    (ArgumentError, r"\[embedding_bag\] the mode", lambda F, x: F.embedding_bag([0], x, [0], mode="no")),
    (ShapeError, r"\[embedding_bag\]", lambda F, x: F.embedding_bag([0], x)),
    (ArgumentError, r"\[embedding_bag\] offsets", lambda F, x: F.embedding_bag([0, 1], x, [1, 0])),
    (DTypeError, r"\[embedding_bag\]", lambda F, x: F.embedding_bag([0.5], x, [0])),
)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[1])
def test_what_is_refused(case: tuple[type[Exception], str, Callable[[Any, Any], Any]]) -> None:
    kind, message, call = case
    with pytest.raises(kind, match=message):
        call(dl.nn.functional, dl.tensor([[1.0, 2.0, 0.5], [0.25, 1.0, 1.5]], device="cpu"))


def test_padding_layers_refuse_other_counts() -> None:
    with pytest.raises(ArgumentError, match=r"\[ReflectionPad2d\] expected an int or 4"):
        dl.nn.ReflectionPad2d((1, 2))
