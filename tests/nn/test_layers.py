"""Layers beside PyTorch's with the same state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, ShapeError
from tests.nn.test_functional import COMPARED

torch = pytest.importorskip("torch", reason="layers are compared with PyTorch's")

# Our layer, PyTorch's and an input's shape; both layers take the same arguments.
LAYERS = [
    ("Conv2d", (3, 8, 3), {}, (2, 3, 11, 13)),
    ("Conv2d", (6, 9, (3, 2)), {"stride": 2, "padding": (1, 0), "groups": 3, "bias": False}, (2, 6, 11, 13)),
    ("Conv2d", (4, 4, 3, 1, 2, 2, 4), {}, (1, 4, 7, 9)),
    ("Conv2d", (4, 4, 3), {"padding": "same", "dilation": 2}, (1, 4, 7, 9)),
    ("Conv1d", (4, 6, 3, 2, 1), {"groups": 2}, (2, 4, 13)),
    ("Conv3d", (2, 3, (3, 1, 2)), {"padding": 1}, (1, 2, 5, 4, 3)),
    ("ConvTranspose1d", (4, 6, 3, 2, 1, 1, 2), {}, (2, 4, 7)),
    ("ConvTranspose2d", (4, 6, 3, 2, 1, (1, 0)), {"dilation": 2, "bias": False}, (2, 4, 5, 3)),
    ("Linear", (13, 5), {}, (7, 13)),
    ("Linear", (13, 5, False), {}, (2, 3, 13)),
    ("BatchNorm2d", (5,), {}, (3, 5, 7, 2)),
    ("BatchNorm2d", (5, 0.1), {}, (3, 5, 7, 2)),
    ("BatchNorm1d", (5,), {}, (3, 5)),
    ("BatchNorm3d", (5,), {}, (3, 5, 2, 3, 2)),
    ("GroupNorm", (2, 6), {}, (3, 6, 5)),
    ("InstanceNorm1d", (5,), {"affine": True}, (3, 5, 7)),
    ("InstanceNorm2d", (5,), {}, (3, 5, 7, 2)),
    ("InstanceNorm3d", (5,), {}, (3, 5, 7, 2, 3)),
    ("LayerNorm", (5,), {}, (3, 5)),
    ("RMSNorm", (5,), {}, (3, 5)),
    ("ConvTranspose3d", (2, 3, 2, 2), {}, (1, 2, 3, 4, 2)),
    ("ReLU", (), {}, (3, 5)),
    ("ReLU", (True,), {}, (3, 5)),
    ("LeakyReLU", (0.2,), {}, (3, 5)),
    ("ELU", (0.7,), {}, (3, 5)),
    ("CELU", (0.7,), {}, (3, 5)),
    ("GELU", (), {}, (3, 5)),
    ("GELU", ("tanh",), {}, (3, 5)),
    ("Softplus", (2.0, 1.0), {}, (3, 5)),
    ("Hardtanh", (-0.5, 0.7), {}, (3, 5)),
    ("Threshold", (0.1, -3.0), {}, (3, 5)),
    ("GLU", (0,), {}, (4, 5)),
    ("PReLU", (3,), {}, (2, 3, 5)),
    ("LogSoftmax", (1,), {}, (3, 5)),
    ("Softmin", (1,), {}, (3, 5)),
    *(
        (name, (), {}, (3, 5))
        for name in (
            "ReLU6",
            "SELU",
            "SiLU",
            "Mish",
            "Hardswish",
            "Hardsigmoid",
            "Sigmoid",
            "LogSigmoid",
            "Tanh",
            "Softsign",
        )
    ),
    ("Upsample", (None, 2), {}, (2, 3, 5, 4)),
    ("Upsample", ((7, 5),), {"mode": "bilinear"}, (2, 3, 5, 4)),
    ("PixelShuffle", (2,), {}, (2, 12, 3, 5)),
    ("PixelUnshuffle", (3,), {}, (2, 2, 6, 9)),
    ("ZeroPad2d", (2,), {}, (2, 3, 5, 4)),
    ("ZeroPad2d", ((1, 0, -1, 2),), {}, (2, 3, 5, 4)),
    ("Unfold", ((2, 3),), {"padding": 1}, (2, 3, 5, 4)),
    ("Fold", ((5, 4), (2, 3)), {"padding": 1}, (2, 18, 24)),
    ("Softmax", (1,), {}, (3, 5)),
    ("Softmax", (-1,), {}, (3, 5, 2)),
    ("MaxPool2d", (3, 2, 1), {}, (2, 3, 11, 13)),
    ("MaxPool2d", ((2, 3),), {"dilation": (1, 2)}, (2, 3, 11, 13)),
    ("MaxPool2d", (3, 2), {"ceil_mode": True}, (2, 3, 10, 12)),
    ("MaxPool1d", (3, 2, 1), {}, (2, 3, 11)),
    ("AvgPool1d", (3,), {"ceil_mode": True}, (2, 3, 11)),
    ("AvgPool2d", ((3, 2), 2, 1, True, False), {}, (2, 3, 11, 13)),
    ("AvgPool2d", (2,), {"divisor_override": 3}, (2, 3, 11, 13)),
    ("AdaptiveAvgPool1d", (4,), {}, (2, 3, 11)),
    ("AdaptiveMaxPool2d", ((3, None),), {}, (2, 3, 11, 13)),
    ("AdaptiveAvgPool2d", (1,), {}, (2, 3, 11, 13)),
    ("AdaptiveAvgPool2d", ((3, 4),), {}, (2, 3, 11, 13)),
    ("Flatten", (), {}, (2, 3, 5)),
    ("Flatten", (0, 1), {}, (2, 3, 5)),
    ("Identity", (), {}, (2, 3)),
    ("Dropout", (0.3,), {}, (3, 5)),
    ("Dropout2d", (0.3,), {}, (3, 5, 2, 2)),
]


def fill(layer: Any, seed: int = 0) -> None:
    """Give every entry of a PyTorch layer's state values with spread; variances positive."""
    rng = np.random.default_rng(seed)
    for name, tensor in layer.state_dict().items():
        if not tensor.shape:
            tensor.fill_(17)
            continue
        values = rng.uniform(0.5, 2, tensor.shape) * (
            1 if "var" in name else rng.choice((-1, 1), tensor.shape)
        )
        tensor.copy_(torch.tensor(values))


def pair(name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
    theirs = getattr(torch.nn, name)(*args, **kwargs).eval()
    fill(theirs)
    ours = getattr(dl.nn, name)(*args, **kwargs).eval()
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    return ours, theirs


def test_every_layer_is_compared() -> None:
    """Here, or in the file of the tests of its module."""
    own = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    own |= {
        "margin_loss",
        "lazy",
        "data_parallel",
    }  # with losses, parametrizations and the module's interface
    layers = [
        value for value in vars(dl.nn).values() if isinstance(value, type) and issubclass(value, dl.nn.Module)
    ]
    elsewhere = {layer.__name__ for layer in layers if layer.__module__.rpartition(".")[2] in own}
    assert {layer.__name__ for layer in layers} - elsewhere - COMPARED - {
        name for name, *_ in LAYERS
    } == set()


@pytest.mark.parametrize(("name", "args", "kwargs", "shape"), LAYERS)
def test_state(name: str, args: Any, kwargs: Any, shape: Any) -> None:
    ours, theirs = getattr(dl.nn, name)(*args, **kwargs), getattr(torch.nn, name)(*args, **kwargs)
    state, expected = ours.state_dict(), theirs.state_dict()
    assert list(state) == list(expected)
    assert [t.shape for t in state.values()] == [tuple(t.shape) for t in expected.values()]
    assert [f"torch.{t.dtype}" for t in state.values()] == [str(t.dtype) for t in expected.values()]
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    assert [n for n, _ in ours.named_buffers()] == [n for n, _ in theirs.named_buffers()]


@pytest.mark.parametrize(("name", "args", "kwargs", "shape"), LAYERS)
def test_output(name: str, args: Any, kwargs: Any, shape: Any, device: str) -> None:
    ours, theirs = pair(name, args, kwargs)
    x = np.random.default_rng(1).uniform(-2, 2, shape).astype(np.float32)
    got = ours.to(device)(dl.tensor(x, device=device))
    expected = theirs(torch.from_numpy(x)).detach().numpy()
    assert got.device is dl.device(device)
    assert got.shape == expected.shape
    assert (
        np.abs(got.numpy() - expected).max() <= 1e-5 * np.abs(expected).max()
    )  # see tests/support/operands.py


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (
            dl.nn.Conv2d(4, 6, (3, 1), 2, groups=2, bias=False),
            "Conv2d(4, 6, kernel_size=(3, 1), stride=(2, 2), padding=(0, 0), dilation=(1, 1), groups=2, "
            "bias=False)",
        ),
        (dl.nn.Linear(3, 2), "Linear(3, 2, bias=True)"),
        (
            dl.nn.BatchNorm2d(5, 0.01),
            "BatchNorm2d(5, eps=0.01, momentum=0.1, affine=True, bias=True, track_running_stats=True)",
        ),
        (dl.nn.MaxPool2d(3, padding=1), "MaxPool2d(kernel_size=3, stride=3, padding=1, dilation=1)"),
        (dl.nn.AdaptiveAvgPool2d((1, 2)), "AdaptiveAvgPool2d(output_size=(1, 2))"),
        (dl.nn.Flatten(), "Flatten(start_dim=1, end_dim=-1)"),
        (dl.nn.Softmax(1), "Softmax(dim=1)"),
        (dl.nn.ReLU(), "ReLU()"),
        (dl.nn.Identity(), "Identity()"),
        (
            dl.nn.Sequential(dl.nn.ReLU(), dl.nn.Sequential(dl.nn.Identity())),
            "Sequential(\n  (0): ReLU()\n  (1): Sequential(\n    (0): Identity()\n  )\n)",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_repr(layer: dl.nn.Module, text: str) -> None:
    assert repr(layer) == text


SAME: Any = "same"
FUNCTION: Any = dl.relu


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dl.nn.Conv2d(3, 4, 3, groups=2), r"\[Conv2d\] 3 input and 4 output .* into 2 groups"),
        (lambda: dl.nn.Conv2d(0, 4, 3), r"\[Conv2d\] 0 input"),
        (lambda: dl.nn.Conv2d(3, 4, 0), r"\[Conv2d\] kernel_size must be at least 1, got 0"),
        (lambda: dl.nn.Conv2d(3, 4, 3, stride=(1, 0)), r"\[Conv2d\] stride must be at least 1"),
        (lambda: dl.nn.Conv2d(3, 4, 3, padding="full"), r"\[Conv2d\] padding must be .* got 'full'"),
        (lambda: dl.nn.Conv2d(3, 4, 3, 2, "same"), r"\[Conv2d\] padding='same' takes stride 1"),
        (lambda: dl.nn.Conv2d(3, 4, 3, padding_mode="wrap"), r"\[Conv2d\] padding_mode must be .* 'wrap'"),
        (lambda: dl.nn.ConvTranspose2d(3, 4, 3, 1, SAME), r"\[ConvTranspose2d\] padding must be ints"),
        (lambda: dl.nn.Linear(3, 0), r"\[Linear\] cannot map 3 features to 0"),
        (lambda: dl.nn.Sequential(dl.nn.ReLU(), FUNCTION), r"\[Sequential\] layer 1 must be .* <op relu"),
    ],
)  # fmt: skip
def test_arguments_that_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


def test_initial_values() -> None:
    dl.manual_seed(4)
    for layer, fan_in in ((dl.nn.Conv2d(8, 64, 3, groups=2), 36), (dl.nn.Linear(100, 50), 100)):
        bound = 1 / np.sqrt(fan_in)  # as PyTorch draws them
        for tensor in layer.parameters():
            values = tensor.detach().numpy()
            assert np.abs(values).max() <= bound
            assert np.abs(values).max() > 0.9 * bound
            assert 0.4 < values.std() / bound < 0.75  # 1 / sqrt(3) = 0.58
    first = dl.nn.Linear(5, 5).weight.detach().numpy()
    assert not np.array_equal(first, dl.nn.Linear(5, 5).weight.detach().numpy())
    norm = dl.nn.BatchNorm2d(3).state_dict()
    assert [norm[name].tolist() for name in norm] == [[1] * 3, [0] * 3, [0] * 3, [1] * 3, 0]


# Folding


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("groups", [1, 3])
def test_fuse_conv_bn_eval(bias: bool, groups: int, device: str) -> None:
    conv, torch_conv = pair("Conv2d", (6, 9, 3, 2, 1), {"bias": bias, "groups": groups})
    norm, torch_norm = pair("BatchNorm2d", (9, 1e-3), {})
    before = {name: t.numpy().copy() for name, t in conv.state_dict().items()}
    conv.to(device)
    norm.to(device)
    x = np.random.default_rng(1).uniform(-2, 2, (2, 6, 11, 13)).astype(np.float32)
    fused = dl.nn.utils.fuse_conv_bn_eval(conv, norm)
    assert list(fused.state_dict()) == ["weight", "bias"]
    assert {str(t.device) for t in fused.parameters()} == {device}
    assert fused.training is conv.training
    got = fused(dl.tensor(x, device=device)).numpy()
    expected = torch_norm(torch_conv(torch.from_numpy(x))).detach().numpy()
    assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max()
    plain = norm(conv(dl.tensor(x, device=device))).numpy()
    assert np.abs(got - plain).max() <= 1e-5 * np.abs(expected).max()
    for name, tensor in conv.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), before[name])


def test_fuse_refuses_other_channels() -> None:
    with pytest.raises(ShapeError, match=r"\[fuse_conv_bn_eval\] 4 output channels, 1 features"):
        dl.nn.utils.fuse_conv_bn_eval(dl.nn.Conv2d(3, 4, 1), dl.nn.BatchNorm2d(1))
