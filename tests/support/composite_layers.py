"""Small calls of pooling, image, normalization and loss functions, as in ``composite_cases``."""

from __future__ import annotations

from typing import Any

import dl4all as dl
from tests.support.composite_cases import (
    FRACTION,
    POSITIVE,
    SIGNAL,
    Calls,
    F,
    X,
    call,
    floating,
    floats,
    ints,
    same_calls,
)

CLASSES, SIGNS, TARGET = ints(4, 0, 2), floats(1.0, -1.0, 1.0), floats(0.3, 1.0, 0.0, 0.6, 0.9)
SCORES = ints([1, 3, -1, 0, 0], [4, -1, 1, 1, 0], [0, 2, 4, -1, 0])
PAIR, IMAGE, VOLUME = (2, 3), (1, 2, 4, 5), (1, 1, 3, 4, 3)

ATTENTION: Calls = {
    "multi_head_attention_forward": (
        call(
            lambda q, k, w, b, out: F.multi_head_attention_forward(
                q, k, k, 2, 2, w, b, None, None, False, 0.0, out, None, need_weights=False
            )[0],
            (3, 1, 2), (2, 1, 2), (6, 2), (6,), (2, 2),
        ),
    ),
}  # fmt: skip
BOXES = dl.tensor([[0.0, 0.7, 1.1, 7.3, 6.9], [1.0, 1.2, 0.3, 6.4, 8.1]], dtype="float64", device="cpu")


def around(x: Any) -> Any:
    """Boxes of different sizes around one point, from positive numbers (boxes, 4)."""
    return dl.cat([-x[:, :2], x[:, 2:]], 1)


IMAGES: Calls = {
    **same_calls("avg_pool1d max_pool1d", SIGNAL, kernel_size=3, stride=2),
    "max_pool1d_with_indices": (call(lambda x: floating(F.max_pool1d_with_indices(x, 3, 2)), SIGNAL),),
    "max_pool2d_with_indices": (call(lambda x: floating(F.max_pool2d_with_indices(x, 2)), IMAGE),),
    "max_pool3d_with_indices": (call(lambda x: floating(F.max_pool3d_with_indices(x, 2)), VOLUME),),
    "max_pool3d": (call(lambda x: F.max_pool3d(x, 2, 1), VOLUME),),
    "avg_pool3d": (call(lambda x: F.avg_pool3d(x, 2, 1), VOLUME),),
    "lp_pool1d": (call(lambda x: F.lp_pool1d(x, 2.0, 3, 2), SIGNAL, limits=POSITIVE),),
    "lp_pool2d": (call(lambda x: F.lp_pool2d(x, 3.0, 2), IMAGE, limits=POSITIVE),),
    "lp_pool3d": (call(lambda x: F.lp_pool3d(x, 2.0, 2), VOLUME, limits=POSITIVE),),
    "adaptive_avg_pool1d": (call(lambda x: F.adaptive_avg_pool1d(x, 3), SIGNAL),),
    "adaptive_avg_pool3d": (call(lambda x: F.adaptive_avg_pool3d(x, 2), VOLUME),),
    "adaptive_max_pool1d": (call(lambda x: F.adaptive_max_pool1d(x, 3), SIGNAL),),
    "adaptive_max_pool3d": (call(lambda x: F.adaptive_max_pool3d(x, 2), VOLUME),),
    "adaptive_max_pool1d_with_indices": (
        call(lambda x: floating(F.adaptive_max_pool1d_with_indices(x, 3)), SIGNAL),
    ),
    "adaptive_max_pool2d_with_indices": (
        call(lambda x: floating(F.adaptive_max_pool2d_with_indices(x, 2)), IMAGE),
    ),
    "adaptive_max_pool3d_with_indices": (
        call(lambda x: floating(F.adaptive_max_pool3d_with_indices(x, 2)), VOLUME),
    ),
    "roi_align": (
        call(lambda x: dl.ops.roi_align(x, BOXES, (2, 3), 0.5, aligned=True), (2, 2, 5, 6)),
        call(lambda x: dl.ops.roi_align(x, BOXES, 2, 0.5, 2), (2, 1, 5, 6)),
    ),
    "deform_conv2d": (call(dl.ops.deform_conv2d, (1, 2, 4, 5), (1, 8, 3, 4), (2, 2, 2, 2), (2,)),),
    "box_iou": (call(lambda a, b: dl.ops.box_iou(around(a), around(b)), (3, 4), (2, 4), limits=POSITIVE),),
    "max_unpool1d": (call(lambda x: F.max_unpool1d(x, ints([[1, 2, 5]]), 2), (1, 1, 3)),),
    "max_unpool2d": (call(lambda x: F.max_unpool2d(x, ints([[[0, 3], [8, 10]]]), 2), (1, 1, 2, 2)),),
    "max_unpool3d": (call(lambda x: F.max_unpool3d(x, ints([[[[5, 2]]]]), 2), (1, 1, 1, 1, 2)),),
    "conv_transpose1d": (call(lambda *o: F.conv_transpose1d(*o, stride=2), (1, 2, 3), (2, 2, 2), (2,)),),
    "conv_transpose2d": (
        call(lambda *o: F.conv_transpose2d(*o, padding=1), (1, 2, 2, 3), (2, 1, 2, 3), (1,)),
    ),
    "conv_transpose3d": (call(F.conv_transpose3d, (1, 1, 2, 1, 2), (1, 2, 1, 2, 2), (2,)),),
    "affine_grid": (call(lambda t: F.affine_grid(t, (1, 1, 2, 3), align_corners=False), (1, 2, 3)),),
    "grid_sample": (
        *(
            call(
                lambda x, g, m=mode: F.grid_sample(x, g, m, align_corners=False),
                (1, 2, 3, 4),
                (1, 2, 2, 2),
                limits=(-0.9, 0.8),
            )
            for mode in ("bilinear", "nearest")
        ),
        call(
            lambda x, g: F.grid_sample(x, g, padding_mode="border", align_corners=True),
            (1, 1, 3, 4),
            (1, 2, 2, 2),
        ),
    ),
    "interpolate": (
        *(
            call(lambda x, m=mode: F.interpolate(x, size=(3, 7), mode=m), IMAGE)
            for mode in ("nearest", "bilinear", "bicubic")
        ),
        call(lambda x: F.interpolate(x, size=5, mode="linear", align_corners=True), SIGNAL),
    ),
    "upsample": (call(lambda x: F.upsample(x, scale_factor=2), (1, 1, 2, 3)),),
    "upsample_bilinear": (call(lambda x: F.upsample_bilinear(x, scale_factor=2), (1, 1, 2, 3)),),
    "upsample_nearest": (call(lambda x: F.upsample_nearest(x, scale_factor=2), (1, 1, 2, 3)),),
    "unfold": (call(lambda x: F.unfold(x, 2), (1, 2, 3, 3)),),
    "fold": (call(lambda x: F.fold(x, (3, 3), 2), (1, 4, 4)),),
    "local_response_norm": (call(lambda x: F.local_response_norm(x, 3, 0.5), (1, 4, 3)),),
}

NORMS: Calls = {
    "batch_norm": (
        call(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), (3, 2, 2), (2,), (2,)),
        call(
            lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b),
            (3, 2, 2),
            (2,),
            (2,),
            (2,),
            (2,),
            limits=POSITIVE,
        ),
    ),
    "instance_norm": (call(lambda x, w, b: F.instance_norm(x, None, None, w, b), (2, 2, 4), (2,), (2,)),),
    "layer_norm": (call(lambda x, w, b: F.layer_norm(x, (5,), w, b), X, (5,), (5,)),),
    "group_norm": (call(lambda x, w, b: F.group_norm(x, 2, w, b), (2, 4, 2), (4,), (4,)),),
    "rms_norm": (call(lambda x, w: F.rms_norm(x, (5,), w), X, (5,)),),
}

LOSSES: Calls = {
    **same_calls("l1_loss mse_loss smooth_l1_loss huber_loss", X, X),
    "kl_div": (
        call(F.kl_div, X, X, limits=POSITIVE),
        call(lambda x, y: F.kl_div(x, y, log_target=True), X, X),
    ),
    "poisson_nll_loss": (
        call(F.poisson_nll_loss, X, X, limits=POSITIVE),
        call(lambda x: F.poisson_nll_loss(x, TARGET * 3, log_input=False, full=True), X, limits=POSITIVE),
    ),
    "gaussian_nll_loss": (
        call(lambda *o: F.gaussian_nll_loss(*o, full=True), PAIR, PAIR, PAIR, limits=POSITIVE),
    ),
    "binary_cross_entropy": (call(F.binary_cross_entropy, X, X, limits=FRACTION),),
    "binary_cross_entropy_with_logits": (
        call(lambda x, w: F.binary_cross_entropy_with_logits(x, TARGET.expand(3, 5), pos_weight=w), X, (5,)),
    ),
    "cross_entropy": (
        call(lambda x: F.cross_entropy(x, CLASSES, label_smoothing=0.1)),
        call(lambda x, y: F.cross_entropy(x, y.softmax(1)), X, X),
    ),
    "nll_loss": (
        call(lambda x: F.nll_loss(x, CLASSES)),
        call(lambda x: F.nll_loss(x, CLASSES, TARGET + 0.5)),
    ),
    "ctc_loss": (
        call(lambda x: F.ctc_loss(x.log_softmax(2), ints([1, 2], [2, 2]), ints(4, 3), ints(2, 1)), (4, 2, 3)),
    ),
    "cosine_embedding_loss": (call(lambda a, b: F.cosine_embedding_loss(a, b, SIGNS), (3, 2), (3, 2)),),
    "hinge_embedding_loss": (call(lambda x: F.hinge_embedding_loss(x, SIGNS, 1.3), (3,)),),
    "margin_ranking_loss": (call(lambda a, b: F.margin_ranking_loss(a, b, SIGNS, 0.3), (3,), (3,)),),
    "soft_margin_loss": (call(lambda x: F.soft_margin_loss(x, SIGNS), (3,)),),
    "multi_margin_loss": (*(call(lambda x, p=p: F.multi_margin_loss(x, CLASSES, p=p)) for p in (1, 2)),),
    "multilabel_margin_loss": (call(lambda x: F.multilabel_margin_loss(x, SCORES)),),
    "multilabel_soft_margin_loss": (
        call(lambda x: F.multilabel_soft_margin_loss(x, TARGET.expand(3, 5)), X),
    ),
    "triplet_margin_loss": (
        call(F.triplet_margin_loss, PAIR, PAIR, PAIR),
        call(lambda *o: F.triplet_margin_loss(*o, margin=4.0, swap=True), PAIR, PAIR, PAIR),
    ),
    "triplet_margin_with_distance_loss": (
        call(lambda *o: F.triplet_margin_with_distance_loss(*o, margin=4.0), PAIR, PAIR, PAIR),
    ),
}
