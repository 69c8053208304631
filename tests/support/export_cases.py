"""Layers and functions to be written as ONNX files, with an input each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import dl4all as dl
from dl4all import nn
from dl4all.nn import functional as F


class FunctionModule(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def numbers(*shape: int, seed: int = 0) -> Any:
    generator = np.random.default_rng(seed + len(shape))
    return dl.tensor(generator.standard_normal(shape).astype(np.float32), device="cpu")


def words(*shape: int) -> Any:
    return dl.tensor(np.random.default_rng(0).integers(0, 20, shape), device="cpu")


MATRIX, SEQUENCE, IMAGE, VOLUME = (3, 4), (3, 4, 9), (3, 4, 8, 8), (2, 4, 5, 6, 7)

ACTIVATIONS = (
    "ReLU", "GELU", "SiLU", "ELU", "SELU", "CELU", "LeakyReLU", "Hardswish", "Hardsigmoid", "Hardtanh",
    "ReLU6", "Sigmoid", "Tanh", "Softplus", "Softsign", "LogSigmoid", "Mish", "Tanhshrink", "Softshrink",
    "Hardshrink", "Identity", "PReLU", "GLU", "Dropout", "AlphaDropout",
)  # fmt: skip

LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    **{name: (getattr(nn, name), MATRIX) for name in ACTIVATIONS},
    "gelu_tanh": (lambda: nn.GELU(approximate="tanh"), MATRIX),
    "softplus_beta": (lambda: nn.Softplus(2.0), MATRIX),
    "softmax": (lambda: nn.Softmax(1), MATRIX),
    "log_softmax": (lambda: nn.LogSoftmax(1), MATRIX),
    "linear": (lambda: nn.Linear(4, 5), MATRIX),
    "linear_of_3_axes": (lambda: nn.Linear(9, 5), SEQUENCE),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3), SEQUENCE),
    "conv2d": (lambda: nn.Conv2d(4, 6, 3, 2, 1, groups=2), IMAGE),
    "conv3d": (lambda: nn.Conv3d(4, 6, 3), VOLUME),
    "conv_transpose1d": (lambda: nn.ConvTranspose1d(4, 6, 3, 2), SEQUENCE),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1), IMAGE),
    "conv_transpose3d": (lambda: nn.ConvTranspose3d(4, 6, 3), VOLUME),
    "max_pool1d": (lambda: nn.MaxPool1d(3), SEQUENCE),
    "max_pool2d": (lambda: nn.MaxPool2d(3, 2, 1, ceil_mode=True), IMAGE),
    "max_pool3d": (lambda: nn.MaxPool3d(2), VOLUME),
    "max_pool_ceil": (lambda: nn.MaxPool2d(2, 3, ceil_mode=True), (3, 4, 8, 9)),
    "avg_pool_ceil": (lambda: nn.AvgPool2d(3, 2, 1, True, False), (3, 4, 8, 9)),
    "conv_same": (lambda: nn.Conv2d(4, 4, (3, 4), padding="same", dilation=2), IMAGE),
    "conv_reflect": (lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), IMAGE),
    "avg_pool1d": (lambda: nn.AvgPool1d(3), SEQUENCE),
    "avg_pool2d": (lambda: nn.AvgPool2d(3, 2, 1), IMAGE),
    "avg_pool3d": (lambda: nn.AvgPool3d(2), VOLUME),
    "adaptive_avg": (lambda: nn.AdaptiveAvgPool2d(1), IMAGE),
    "adaptive_avg_even": (lambda: nn.AdaptiveAvgPool2d((2, 4)), IMAGE),
    "adaptive_avg_uneven": (lambda: nn.AdaptiveAvgPool2d((3, 5)), IMAGE),
    "adaptive_max": (lambda: nn.AdaptiveMaxPool2d(1), IMAGE),
    "batch_norm1d": (lambda: nn.BatchNorm1d(4), SEQUENCE),
    "batch_norm2d": (lambda: nn.BatchNorm2d(4), IMAGE),
    "group_norm": (lambda: nn.GroupNorm(2, 4), IMAGE),
    "layer_norm": (lambda: nn.LayerNorm(8), IMAGE),
    "layer_norm_of_2_axes": (lambda: nn.LayerNorm((8, 8)), IMAGE),
    "instance_norm": (lambda: nn.InstanceNorm2d(4), IMAGE),
    "rms_norm": (lambda: nn.RMSNorm(8), IMAGE),
    "local_response_norm": (lambda: nn.LocalResponseNorm(3), IMAGE),
    "flatten": (nn.Flatten, IMAGE),
    "unflatten": (lambda: nn.Unflatten(1, (2, 2)), MATRIX),
    "pixel_shuffle": (lambda: nn.PixelShuffle(2), IMAGE),
    "pixel_unshuffle": (lambda: nn.PixelUnshuffle(2), IMAGE),
    "constant_pad": (lambda: nn.ConstantPad2d((1, 2, 0, 3), 2.5), IMAGE),
    "reflection_pad": (lambda: nn.ReflectionPad2d(2), IMAGE),
    "replication_pad": (lambda: nn.ReplicationPad2d(2), IMAGE),
    "circular_pad": (lambda: nn.CircularPad2d(2), IMAGE),
    "upsample": (lambda: nn.Upsample(None, 2), IMAGE),
    "upsample_bilinear": (lambda: nn.UpsamplingBilinear2d(None, 2), IMAGE),
    "unfold": (lambda: nn.Unfold(3), IMAGE),
    "encoder_layer": (lambda: nn.TransformerEncoderLayer(8, 2, 16), (5, 3, 8)),
    "lstm": (lambda: nn.LSTM(9, 5, 2, batch_first=True, bidirectional=True), SEQUENCE),
    "gru": (lambda: nn.GRU(9, 5, batch_first=True), SEQUENCE),
    "rnn": (lambda: nn.RNN(9, 5, batch_first=True, bias=False), SEQUENCE),
    "lstm_cell": (lambda: nn.LSTMCell(4, 5), MATRIX),
    "gru_cell": (lambda: nn.GRUCell(4, 5), MATRIX),
    "rnn_cell": (lambda: nn.RNNCell(4, 5), MATRIX),
}
"""By name, what makes a layer, and the shape of its input."""


def columns_set(x: Any) -> Any:
    y = x * 2
    y[:, 1:3] = 0
    y[:, 0] = x[:, 1]
    return y


def rows_added(x: Any) -> Any:
    y = x.clone()
    y[1] += 5
    y[0, 0] = 3
    y[:, -1] *= 2
    return y


def windows_filled(x: Any) -> Any:
    y = dl.zeros_like(x)
    y[:, ::2] = x[:, ::2]
    y[:, 1] -= 1
    return y


def transposed_changed(x: Any) -> Any:
    y = x + 1
    y.T.mul_(3)[1:3].add_(x.T[:2])
    return y


def elements_set(x: Any) -> Any:
    y = x * 1
    y[:, dl.tensor([0, 2])] = 7.0
    y[:, [1, 3]] = x[:, :2]
    y[x > 1] = -1
    return y


def filled_then_changed(x: Any) -> Any:
    """A tensor that is read as it was filled, too."""
    y = dl.ones(len(x), 3)
    before = y.cumsum(1)
    y[:, 0:1].add_(y[:, :1])
    return before + y


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cat": lambda x: dl.cat([x, x * 2], 1),
    "cat_rows": lambda x: dl.cat([x, x * 2], 0),
    "stack": lambda x: dl.stack([x, -x], -1),
    "slices": lambda x: (x[:, 1:3] * 2, x[:, ::2] + 1, x[:, 1::3] + 1, x[:, None, 2] * 3),
    "transposed": lambda x: (x.T @ x, x.T.reshape(-1) * 2),
    "flip": lambda x: (x.flip(1) + 0, x.flip((0, 1)) * 2),
    "expand": lambda x: x[:, None].expand(-1, 3, -1) * 2,
    "indices": lambda x: (x[:, [2, 0]] + 1, x.gather(1, (x > 0).long())),
    "sums": lambda x: (x.sum(1), x.mean((0, 1)), x.amax(1, keepdim=True), x.norm(dim=1), x.prod(1), x.std(1)),
    "integers": lambda x: ((x * 10).int() // 3, (x * 10).int() % 3, x.argmax(1), (x * 3).round()),
    "bools": lambda x: ((x > 0) & (x < 1), (x > 0).any(1), (x > -9).all(), (x > 0).float() * 3, ~(x > 0)),
    "where": lambda x: (dl.where(x > 0, x, -x), x.clamp(-0.5, 0.5), x.clamp(min=0.1), dl.maximum(x, -x)),
    "powers": lambda x: (
        x.abs() ** 1.5,
        (x.abs() + 1).log(),
        (x * x + 1).rsqrt(),
        1 / (x.abs() + 1),
        x % 0.7,
    ),
    "cumulative": lambda x: (x.cumsum(1), dl.logsumexp(x, 1), x.tril(), x.triu(1)),
    "products": lambda x: ((x @ x.T).softmax(-1), dl.einsum("ij,kj->ik", x, x), dl.bmm(x[None], x.T[None])),
    "mixed": lambda x: (
        dl.addcmul(x, x, x, value=0.5),
        dl.lerp(x, x * 2, 0.3),
        1 - x,
        x.repeat(2, 3),
        x.roll(1, 1) + 0,
    ),
    "half": lambda x: x.half() * 2,
    "in_place": lambda x: (x * 2).add_(1).relu_(),
    "parts_in_place": lambda x: (columns_set(x), rows_added(x), windows_filled(x), transposed_changed(x)),
    "parts_by_index": lambda x: (
        elements_set(x),
        x.scatter(1, (x > 0).long() + 2, 2.5),
        dl.diag_embed(x),
        filled_then_changed(x),
    ),
    "sums_by_index": lambda x: (
        x.scatter_add(1, (x > 0).long(), x * 2),
        x.index_add(1, dl.tensor([3, 1]), dl.ones(len(x), 2)),
    ),
    "sorted": lambda x: (
        *x.topk(2, 1),
        *x.topk(3, 1, largest=False),
        *x.sort(0, descending=True),
        x.argsort(1),
        x.kthvalue(2, 1)[0],
        x.round().sort(1)[1],
        (x * 3).int().sort(1)[0],
        (x > 0).sort(1)[1],
    ),
    "searched": lambda x: (
        dl.bucketize(x, dl.tensor([-1.0, 0.0, 0.5])),
        dl.bucketize(x.round(), dl.tensor([-1.0, 0.0, 1.0]), right=True),
        dl.searchsorted(x.sort(1)[0], x[:, :2].contiguous()),
    ),
    "one_hot": lambda x: F.one_hot(x.argmax(1), 5) * 2.5,
    "windows": lambda x: (x.unfold(1, 3, 1) * 2, x.unfold(1, 2, 2)[:, 1]),
    "angles": lambda x: dl.atan2(x, x.flip(1)),
    "sampled": lambda x: (
        F.grid_sample(x[:, None, None].expand(-1, 2, 3, -1), x[:, None, :, None].expand(-1, 2, -1, 2) / 2),
    ),
    "running_maximum": lambda x: x.cummax(1),
    "of_the_default_device": lambda x: (
        x + dl.zeros(4),
        x * dl.arange(4),
        x + dl.tensor([1.0, 2.0, 3.0, 4.0]),
    ),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
    "resized": lambda x: F.interpolate(x[None], size=6, mode="linear"),
    "pad": lambda x: F.pad(x, (1, 2)),
    "full": lambda x: x + dl.full((4,), 2.5, device=x.device),
    "constant": lambda x: x @ dl.ones(4, 2, device=x.device),
}
"""Functions of a matrix, whose first axis may be open."""

INTEGER_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "divided": lambda x: (
        x / 2,
        x / x.flip(1),
        x // 3,
        (x - 5) // 2,
        dl.div(x - 5, 2, rounding_mode="trunc"),
    ),
    "remainders": lambda x: (x % 3, (x - 5) % 3),
    "mixed": lambda x: (x + 0.5, x * 1.5, (x > 3) * x, (x > 3) * 1.5, dl.where(x > 3, 1.5, 0.0) * x),
    "compared": lambda x: (x > 2.5, x == 3, x != 3, x.bool(), (x > 3).sum(1)),
    "floats": lambda x: (x.sqrt(), x.float().mean(1), dl.where(x > 3, x, 0)),
    "integers": lambda x: (x**2, x.int() + 1, x.clamp(2, 5), -x, (x - 5).abs(), x.prod(1), 10 - x, x.amax(1)),
}
"""Functions of a matrix of integers from 1 to 8."""
