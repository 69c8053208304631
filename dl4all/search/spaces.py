"""Ready-made spaces of networks: each function makes one that :func:`dl4all.search.run` searches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dl4all import nn
from dl4all.errors import ArgumentError
from dl4all.search.choices import Choices
from dl4all.tensor.tensor import Tensor

Net = Callable[[Choices], nn.Module]
ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU, "tanh": nn.Tanh}


def mlp(
    inputs: int, outputs: int, *, depth: tuple[int, int] = (1, 4), width: tuple[int, int] = (8, 256)
) -> Net:
    """Perceptrons: number and widths of the hidden layers, activation, normalization, dropout.

    Args:
        inputs, outputs: numbers of a sample, and of its result; samples of several axes are flattened.
        depth: the fewest and the most hidden layers.
        width: the narrowest and the widest one.

    Example:
        >>> import dl4all as dl
        >>> space = dl.search.Space(dl.search.spaces.mlp(64, 10))
        >>> space.build(space.draw(seed=0)).eval()(dl.rand(5, 1, 8, 8)).shape
        (5, 10)
    """

    def net(s: Choices) -> nn.Module:
        act = s.choice("activation", ACTIVATIONS)
        norm, dropout = s.choice("norm", [False, True]), s.floating("dropout", 0.0, 0.5)
        layers: list[nn.Module] = [nn.Flatten()]
        before = inputs
        for out in s.repeat("layers", lambda s: s.integer("width", *width, log=True), *depth):
            layers += [nn.Linear(before, out), *([nn.BatchNorm1d(out)] if norm else []), act()]
            layers.append(nn.Dropout(dropout))
            before = out
        return nn.Sequential(*layers, nn.Linear(before, outputs))

    return net


def nas_bench_201(inputs: int, classes: int, *, width: int = 16, cells: int = 5) -> Net:
    """Convolutional cells of four nodes and six edges with five operations: 15,625 networks.

    Three stages of equal cells, with a residual block that halves the picture between them.

    Args:
        inputs: channels of the pictures.
        classes: of the output.
        width: channels of the first stage.
        cells: of each stage.

    Source: X. Dong and Y. Yang, NAS-Bench-201, 2020.

    Example:
        >>> import dl4all as dl
        >>> space = dl.search.Space(dl.search.spaces.nas_bench_201(1, 10, width=4, cells=1))
        >>> space.size
        15625
        >>> space.build(space.draw(seed=0)).eval()(dl.rand(5, 1, 8, 8)).shape
        (5, 10)
    """
    names = ["none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3"]

    def net(s: Choices) -> nn.Module:
        edges = [(source, target) for target in range(1, 4) for source in range(target)]
        chosen = {edge: s.choice(f"{edge[0]} to {edge[1]}", names) for edge in edges}
        layers: list[nn.Module] = [nn.Conv2d(inputs, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)]
        channels = width
        for stage in range(3):
            if stage:
                layers.append(_Residual(channels, 2 * channels, 3, 2))
                channels *= 2
            layers += [_Cell(chosen, channels) for _ in range(cells)]
        head = (nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return nn.Sequential(*layers, *head, nn.Linear(channels, classes))

    return net


def resnet(inputs: int, classes: int, *, stages: int = 3, widths: Sequence[int] = (8, 16, 32)) -> Net:
    """Residual networks: blocks of each stage, their kernels, and the width.

    Args:
        inputs: channels of the pictures.
        classes: of the output.
        stages: each halves the picture but the first, and doubles the channels.
        widths: of the first stage.

    Example:
        >>> import dl4all as dl
        >>> space = dl.search.Space(dl.search.spaces.resnet(1, 10))
        >>> space.build(space.draw(seed=0)).eval()(dl.rand(5, 1, 8, 8)).shape
        (5, 10)
    """

    def net(s: Choices) -> nn.Module:
        channels = s.choice("width", list(widths))
        layers: list[nn.Module] = [
            nn.Conv2d(inputs, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
        ]
        for stage in range(stages):
            kernels = s.repeat(f"stage {stage}", lambda s: s.choice("kernel", [3, 5]), 1, 3)
            for number, kernel in enumerate(kernels):
                grows = stage > 0 and number == 0
                out = channels * 2 if grows else channels
                layers.append(_Residual(channels, out, kernel, 2 if grows else 1))
                channels = out
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))

    return net


def mobilenet(inputs: int, classes: int, *, widths: Sequence[int] = (16, 24, 40)) -> Net:
    """Inverted bottlenecks: depth of each stage, and kernel and expansion of each block.

    Args:
        inputs: channels of the pictures.
        classes: of the output.
        widths: channels of each stage, which halves the picture; the largest of what is searched.

    Source: H. Cai et al., Once-for-All: Train One Network and Specialize it for Efficient Deployment, 2020.

    Example:
        >>> import dl4all as dl
        >>> space = dl.search.Space(dl.search.spaces.mobilenet(3, 10))
        >>> space.build(space.draw(seed=0)).eval()(dl.rand(2, 3, 32, 32)).shape
        (2, 10)
    """

    def net(s: Choices) -> nn.Module:
        scale = s.choice("scale", [0.5, 0.75, 1.0])
        channels = max(4, int(widths[0] * scale))
        layers: list[nn.Module] = [nn.Conv2d(inputs, channels, 3, padding=1), nn.BatchNorm2d(channels)]

        def block(s: Choices) -> tuple[int, int]:
            return s.choice("kernel", [3, 5, 7]), s.choice("expansion", [3, 4, 6])

        for stage, width in enumerate(widths):
            out = max(4, int(width * scale))
            for number, (kernel, expansion) in enumerate(s.repeat(f"stage {stage}", block, 2, 4)):
                stride = 2 if number == 0 else 1
                layers.append(_InvertedBottleneck(channels, out, kernel, expansion, stride))
                channels = out
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))

    return net


def transformer(
    inputs: int,
    outputs: int,
    *,
    layers: tuple[int, int] = (1, 6),
    widths: Sequence[int] = (32, 64, 128),
    longest: int = 1024,
) -> Net:
    """Encoders of sequences (N, T, inputs), whose mean is classified: layers, heads, width, feed-forward.

    Args:
        inputs, outputs: features of each step, and numbers of the result.
        layers: the fewest and the most.
        widths: features within; each divides by 8.
        longest: most steps of a sequence, whose positions are encoded by sines and cosines.

    Example:
        >>> import dl4all as dl
        >>> space = dl.search.Space(dl.search.spaces.transformer(3, 2))
        >>> space.build(space.draw(seed=0)).eval()(dl.rand(5, 9, 3)).shape
        (5, 2)
    """

    def net(s: Choices) -> nn.Module:
        width, heads = s.choice("width", list(widths)), s.choice("heads", [1, 2, 4, 8])
        forward = width * s.choice("feed-forward", [1, 2, 4])
        dropout = s.floating("dropout", 0.0, 0.3)
        norm_first = s.choice("norm first", [True, False])
        count = s.integer("layers", *layers)
        encoders = [
            nn.TransformerEncoderLayer(
                width, heads, forward, dropout, batch_first=True, norm_first=norm_first
            )
            for _ in range(count)
        ]
        positions = nn.SinusoidalPositionalEncoding(width, longest, batch_first=True)
        return nn.Sequential(
            nn.Linear(inputs, width), positions, *encoders, _Mean(1), nn.Linear(width, outputs)
        )

    return net


def rnn(inputs: int, outputs: int, *, width: tuple[int, int] = (8, 128)) -> Net:
    """Recurrent networks of sequences (N, T, inputs), whose last state is classified.

    Args:
        inputs, outputs: features of each step, and numbers of the result.
        width: the narrowest and the widest.

    Example:
        >>> import dl4all as dl
        >>> space = dl.search.Space(dl.search.spaces.rnn(3, 2))
        >>> space.build(space.draw(seed=0)).eval()(dl.rand(5, 9, 3)).shape
        (5, 2)
    """
    kinds: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}

    def net(s: Choices) -> nn.Module:
        kind, hidden = s.choice("kind", kinds), s.integer("width", *width, log=True)
        layers, both = s.integer("layers", 1, 3), s.choice("bidirectional", [False, True])
        cell = kind(inputs, hidden, layers, batch_first=True, bidirectional=both)
        return nn.Sequential(_LastState(cell), nn.Linear(hidden * (2 if both else 1), outputs))

    return net


class _Residual(nn.Module):
    """Two convolutions beside a way past them."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, kernel, padding=kernel // 2, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        same = inputs == outputs and stride == 1
        self.past = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x) + self.past(x)
        return y.relu()


class _InvertedBottleneck(nn.Module):
    """Wider channels between two 1x1 convolutions, and a depthwise one among them."""

    def __init__(self, inputs: int, outputs: int, kernel: int, expansion: int, stride: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.body = nn.Sequential(
            nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False), nn.BatchNorm2d(wide),
            nn.ReLU6(), nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.adds = inputs == outputs and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x)
        return x + y if self.adds else y


class _Cell(nn.Module):
    """Nodes that are sums of what edges make of those before."""

    def __init__(self, chosen: dict[tuple[int, int], str], channels: int) -> None:
        super().__init__()
        self._edges = [edge for edge, name in chosen.items() if name != "none"]
        self.ops = nn.ModuleList([_operation(chosen[edge], channels) for edge in self._edges])

    def forward(self, x: Tensor) -> Tensor:
        nodes: list[Any] = [x, None, None, None]
        for (source, target), op in zip(self._edges, self.ops, strict=True):
            if nodes[source] is not None:
                made = op(nodes[source])
                nodes[target] = made if nodes[target] is None else nodes[target] + made
        return x * 0.0 if nodes[3] is None else nodes[3]  # without a way through, it says nothing


def _operation(name: str, channels: int) -> nn.Module:
    """An operation of NAS-Bench-201.

    Raises:
        ArgumentError: there is none of this name.
    """
    if name == "skip_connect":
        return nn.Identity()
    if name == "avg_pool_3x3":
        return nn.AvgPool2d(3, 1, 1, count_include_pad=False)
    if name not in ("nor_conv_1x1", "nor_conv_3x3"):
        raise ArgumentError(f"[search] no operation {name!r}")
    kernel = int(name[-1])
    conv = nn.Conv2d(channels, channels, kernel, padding=kernel // 2, bias=False)
    return nn.Sequential(nn.ReLU(), conv, nn.BatchNorm2d(channels))


class _Mean(nn.Module):
    """The mean over an axis."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(self.axis)


class _LastState(nn.Module):
    """The last output of a recurrent layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layer(x)[0]
        return output[:, -1]
