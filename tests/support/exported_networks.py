"""Small networks in plain PyTorch, of each kind that people export, and their files by PyTorch's exporter."""

from __future__ import annotations

import functools
import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tests.support.torch_models import Block

Inputs = dict[str, torch.Tensor]
Axes = dict[str, dict[int, str]]
Exported = tuple[bytes, nn.Module, Inputs, Axes]


class ResNet(nn.Module):
    """Bottlenecks, as in ResNet-50."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.pool, self.one = nn.MaxPool2d(3, 2, 1), Block(8, 4, 1, True)
        self.two, self.fc = Block(16, 8, 2, True), nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.two(self.one(self.pool(self.stem(x))))
        return self.fc(F.adaptive_avg_pool2d(y, 1).flatten(1))


class MobileNet(nn.Module):
    """An inverted residual with squeeze and excitation, as in MobileNetV3 and EfficientNet."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Sequential(nn.Conv2d(3, 12, 1), nn.BatchNorm2d(12), nn.Hardswish())
        self.depth = nn.Sequential(nn.Conv2d(12, 12, 5, 1, 2, groups=12), nn.SiLU())
        self.squeeze, self.excite = nn.Conv2d(12, 3, 1), nn.Conv2d(3, 12, 1)
        self.narrow = nn.Conv2d(12, 3, 1)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.depth(self.wide(x))
        scale = F.hardsigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(y, 1)))))
        return x + self.narrow(y * scale)


class ConvNext(nn.Module):
    """A block with its channels last, layer norm and a scale."""

    def __init__(self) -> None:
        super().__init__()
        self.depth, self.norm = nn.Conv2d(6, 6, 7, padding=3, groups=6), nn.LayerNorm(6)
        self.up, self.down, self.scale = nn.Linear(6, 24), nn.Linear(24, 6), nn.Parameter(torch.rand(6))

    def forward(self, x: torch.Tensor) -> Any:
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class Heads(nn.Module):
    """Attention by hand, with keys and values that may come from before."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, x: torch.Tensor, mask: Any, past: Any = None) -> Any:
        batch, length, size = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = parts[0], parts[1], parts[2]
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        scores = q @ k.transpose(-1, -2) / (q.shape[-1] ** 0.5)
        y = (scores + mask).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, size)), k, v


class VisionTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, 16, 4, 4), nn.Parameter(torch.rand(1, 1, 16))
        self.places = nn.Parameter(torch.rand(1, 17, 16))
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True, activation="gelu")
        self.layers, self.head = nn.ModuleList([layer]), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(x.shape[0], -1, -1), y], 1) + self.places
        for layer in self.layers:
            y = layer(y)
        return self.head(y[:, 0])


class Bert(nn.Module):
    """Embeddings, and attention with a mask of words that are none."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.norm = nn.Embedding(50, 16), nn.Embedding(32, 16), nn.LayerNorm(16)
        self.attention, self.up, self.down = Heads(16, 4), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> Any:
        x = self.norm(self.words(ids) + self.places(torch.arange(ids.shape[1])[None]))
        away = (1.0 - mask[:, None, None, :].float()) * -10000.0
        y = self.norm(x + self.attention(x, away)[0])
        return self.norm(y + self.down(F.gelu(self.up(y))))


class Gpt(nn.Module):
    """A causal model that takes and gives keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.attention = nn.Embedding(50, 16), nn.Embedding(64, 16), Heads(16, 4)
        self.head = nn.Linear(16, 50)

    def forward(self, ids: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> Any:
        before, length = keys.shape[2], ids.shape[1]
        x = self.words(ids) + self.places(torch.arange(before, before + length))
        mask = torch.full((length, before + length), -1e9).triu(before + 1)
        y, k, v = self.attention(x, mask, (keys, values))
        return self.head(x + y), k, v


class Whisper(nn.Module):
    """Convolutions over time, and attention."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv1d(8, 16, 3, padding=1), nn.Conv1d(16, 16, 3, 2, 1)
        self.attention, self.norm = Heads(16, 4), nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> Any:
        y = F.gelu(self.two(F.gelu(self.one(x)))).transpose(1, 2)
        return y + self.attention(self.norm(y), torch.zeros(1))[0]


class Recurrent(nn.Module):
    def __init__(self, kind: type[Any]) -> None:
        super().__init__()
        self.layers, self.head = kind(6, 8, 2, bidirectional=True, batch_first=True), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.layers(x)[0])


class Functions(nn.Module):
    """Functions that segmentation and detection need besides."""

    def forward(self, x: torch.Tensor) -> Any:
        grid = x[:, :2].permute(0, 2, 3, 1).tanh()
        return (
            F.interpolate(x, scale_factor=2, mode="bilinear"),
            F.interpolate(x, size=(5, 7), mode="bicubic", align_corners=True),
            F.interpolate(x, scale_factor=3),
            F.grid_sample(x, grid, align_corners=False),
            F.pad(x, (1, 2, 3, 0), mode="reflect"),
            F.pixel_shuffle(x[:, :1].expand(-1, 4, -1, -1), 2),
            x.cumsum(1),
            x[:, [2, 0], 1:-1, ::2],
            torch.where(x > 0, x, x * 2).argmax(1),
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
            torch.einsum("nchw,nkhw->nck", x, x),
        )


def _image(size: int = 16, channels: int = 3) -> tuple[Inputs, Axes]:
    return {"x": torch.randn(2, channels, size, size)}, {"x": {0: "batch"}}


def _texts() -> tuple[Inputs, Axes]:
    mask = torch.ones(2, 7, dtype=torch.int64)
    mask[1, 4:] = 0
    axes = {0: "batch", 1: "length"}
    return {"ids": torch.randint(0, 50, (2, 7)), "mask": mask}, {"ids": axes, "mask": axes}


def _with_past() -> tuple[Inputs, Axes]:
    past = {name: torch.randn(2, 4, 5, 4) for name in ("keys", "values")}
    axes = {0: "batch", 2: "before"}
    ids = {"ids": torch.randint(0, 50, (2, 3))}
    return ids | past, {"ids": {0: "batch", 1: "length"}, "keys": axes, "values": axes}


def _sequence() -> tuple[Inputs, Axes]:
    return {"x": torch.randn(3, 7, 6)}, {"x": {0: "batch", 1: "length"}}


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Inputs, Axes]]]] = {
    "resnet": (ResNet, lambda: _image(32)),
    "mobilenet": (MobileNet, _image),
    "convnext": (ConvNext, lambda: _image(9, 6)),
    "vision_transformer": (VisionTransformer, _image),
    "bert": (Bert, _texts),
    "gpt": (Gpt, _with_past),
    "whisper": (Whisper, lambda: ({"x": torch.randn(2, 8, 20)}, {"x": {0: "batch", 2: "time"}})),
    "lstm": (functools.partial(Recurrent, nn.LSTM), _sequence),
    "gru": (functools.partial(Recurrent, nn.GRU), _sequence),
    "rnn": (functools.partial(Recurrent, nn.RNN), _sequence),
    "functions": (Functions, lambda: ({"x": torch.randn(2, 3, 8, 8)}, {"x": {0: "batch"}})),
}


@functools.cache
def exported(
    name: str, *, dynamo: bool = False, training: bool = False
) -> tuple[bytes, nn.Module, Inputs, Axes]:
    """A network's file, with random statistics in its batch norms, by one of PyTorch's exporters."""
    torch.manual_seed(len(name))
    make, examples = NETWORKS[name]
    network, (inputs, axes) = make().eval(), examples()
    for vector in (*network.parameters(), *network.buffers()):
        if vector.ndim == 1:  # not all alike, which the exporter would share
            nn.init.uniform_(vector, 0.5, 1.5)
    file: Any = io.BytesIO()  # which the exporter takes, and its types do not
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what PyTorch will do otherwise one day
        if dynamo:
            program: Any = torch.onnx.export(network, tuple(inputs.values()), dynamo=True, verbose=False)
            return program.model_proto.SerializeToString(), network, inputs, {}
        kept = torch.onnx.TrainingMode.PRESERVE if training else torch.onnx.TrainingMode.EVAL
        torch.onnx.export(
            network, tuple(inputs.values()), file, input_names=list(inputs), dynamic_axes=axes,
            opset_version=17, dynamo=False, training=kept, do_constant_folding=not training,
        )  # fmt: skip
    return file.getvalue(), network, inputs, axes


def other_sizes(inputs: Inputs, axes: Axes) -> dict[str, Any]:
    """Inputs with one more of each size that is open, and other numbers."""
    generator, made = np.random.default_rng(3), {}
    for name, example in inputs.items():
        shape = [n + (i in axes.get(name, {})) for i, n in enumerate(example.shape)]
        if example.dtype == torch.int64:
            made[name] = generator.integers(0, 2 if name == "mask" else 50, shape)
            made[name][..., 0] = 1
        else:
            made[name] = generator.standard_normal(shape).astype(np.float32)
    return made
