"""Losses on PyTorch's device and their gradients are those of PyTorch's CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the PyTorch device needs PyTorch")

import torch.nn.functional as F  # noqa: E402

pytestmark = pytest.mark.usefixtures("natively")

Loss = Callable[..., Any]


def _check(loss: Loss, place: str, *operands: Any) -> None:
    """The loss of each reduction, and its gradient for the first operand."""
    for reduction in ("mean", "sum", "none"):
        results = []
        for device in ("cpu", place):
            leaf, *others = (one.to(device, copy=True) for one in operands)
            result = loss(leaf.requires_grad_(), *others, reduction=reduction)
            torch.manual_seed(0)
            result.backward(torch.randn(result.shape).to(device))
            results.append((result.detach().cpu(), leaf.grad.cpu()))
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6)


OF_ELEMENTS: dict[str, Loss] = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth_l1": lambda x, y, **options: F.smooth_l1_loss(x, y, beta=0.7, **options),
    "smooth_l1 without a parabola": lambda x, y, **options: F.smooth_l1_loss(x, y, beta=0.0, **options),
    "huber": lambda x, y, **options: F.huber_loss(x, y, delta=0.3, **options),
    "soft_margin": lambda x, y, **options: F.soft_margin_loss(x, y.sign(), **options),
    "with_logits": lambda x, y, **options: F.binary_cross_entropy_with_logits(x, y.sigmoid(), **options),
    "with_logits, weighted": lambda x, y, **options: F.binary_cross_entropy_with_logits(
        x, y.sigmoid(), weight=y.exp(), pos_weight=y[:1].exp(), **options
    ),
}


@pytest.mark.parametrize("name", OF_ELEMENTS)
def test_losses_of_elements(name: str, place: str) -> None:
    _check(OF_ELEMENTS[name], place, torch.randn(5, 7), torch.randn(5, 7))


def test_binary_cross_entropy(place: str) -> None:
    x, target = torch.rand(5, 7), torch.rand(5, 7)
    _check(F.binary_cross_entropy, place, x, target)
    _check(lambda x, y, w, **o: F.binary_cross_entropy(x, y, w, **o), place, x, target, torch.rand(7))


@pytest.mark.parametrize("shape", [(7,), (5, 7), (2, 7, 3), (2, 7, 3, 4)])
def test_losses_of_classes(shape: tuple[int, ...], place: str) -> None:
    x, axis = torch.randn(shape), 1 if len(shape) > 1 else 0
    target = torch.randint(0, 7, shape[:axis] + shape[axis + 1 :])
    if len(shape) > 1:
        target.view(-1)[::3] = -100
    _check(F.cross_entropy, place, x, target)
    _check(F.nll_loss, place, x, target)
    _check(lambda x, t, w, **o: F.nll_loss(x, t, w, **o), place, x, target, torch.rand(7))
    _check(lambda x, t, **o: F.cross_entropy(x, t, label_smoothing=0.1, **o), place, x, target)


def test_no_target_that_counts(place: str) -> None:
    x, target = torch.randn(3, 5), torch.full((3,), -100)
    want, got = F.cross_entropy(x, target), F.cross_entropy(x.to(place), target.to(place))
    assert bool(want.isnan())
    assert bool(got.cpu().isnan())


def test_a_target_that_is_no_class(place: str) -> None:
    with pytest.raises(Exception, match=r"out of (range|bounds)|not one of 5 classes"):
        F.nll_loss(torch.randn(2, 5).to(place), torch.tensor([1, 5]).to(place)).item()


def test_margin_losses(place: str) -> None:
    x, target = torch.randn(5, 7), torch.randint(0, 7, (5,))
    _check(F.multi_margin_loss, place, x, target)
    _check(
        lambda x, t, w, **o: F.multi_margin_loss(x, t, p=2, margin=0.5, weight=w, **o),
        place, x, target, torch.rand(7),
    )  # fmt: skip
    labels = torch.tensor([[3, 0, -1, 2], [-1, 1, 1, 1], [2, 1, 0, 3]])
    _check(F.multilabel_margin_loss, place, torch.randn(3, 4), labels)


@pytest.mark.parametrize("zero_infinity", [True, False])
def test_ctc_loss(zero_infinity: bool, place: str) -> None:
    targets, lengths = torch.randint(1, 6, (4, 4)), (torch.tensor([9, 7, 3, 9]), torch.tensor([4, 2, 4, 0]))
    if not zero_infinity:
        lengths[0][2] = 9  # long enough for its labels

    def loss(x: Any, targets: Any, **options: Any) -> Any:
        return F.ctc_loss(x.log_softmax(-1), targets, *lengths, zero_infinity=zero_infinity, **options)

    _check(loss, place, torch.randn(9, 4, 6), targets)
