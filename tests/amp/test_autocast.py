"""Blocks of mixed precision: which dtype ops take and give, gradients, nesting, and training."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, GradientError, UnknownDeviceError
from dl4all.nn import functional as F
from dl4all.ops.core import autocast, tape

torch = pytest.importorskip("torch", reason="dtypes and losses are compared with PyTorch's")

HALVES = ("bfloat16", "float16")


def kind(device: str) -> str:
    return device.partition(":")[0]


@pytest.fixture(params=HALVES)
def half(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# Calls, written once for dl and torch: x of shape (4, 6), w of (6, 6), i of (2, 3, 8, 8), f of (5, 3, 3, 3),
# b of (6,), y labels of 4 rows.
CALLS: dict[str, Callable[..., Any]] = {
    "matmul": lambda t, f, v: v["x"] @ v["w"],
    "mm": lambda t, f, v: t.mm(v["x"], v["w"]),
    "linear": lambda t, f, v: f.linear(v["x"], v["w"], v["b"]),
    "bmm": lambda t, f, v: t.bmm(v["x"][None], v["w"][None]),
    "addmm": lambda t, f, v: t.addmm(v["b"], v["x"], v["w"]),
    "conv2d": lambda t, f, v: f.conv2d(v["i"], v["f"], padding=1),
    "conv_transpose2d": lambda t, f, v: f.conv_transpose2d(v["i"], v["f"].transpose(0, 1)),
    "einsum": lambda t, f, v: t.einsum("ij,jk->ik", v["x"], v["w"]),
    "attention": lambda t, f, v: f.scaled_dot_product_attention(v["x"][None], v["x"][None], v["x"][None]),
    "softmax": lambda t, f, v: f.softmax(v["h"], -1),
    "log_softmax": lambda t, f, v: f.log_softmax(v["h"], -1),
    "layer_norm": lambda t, f, v: f.layer_norm(v["h"], (6,), v["b"], v["b"]),
    "group_norm": lambda t, f, v: f.group_norm(v["h"], 2),
    "exp": lambda t, f, v: v["h"].exp(),
    "log": lambda t, f, v: t.log(v["h"] * v["h"] + 1),
    "pow": lambda t, f, v: v["h"] ** 2,
    "rsqrt": lambda t, f, v: t.rsqrt(v["h"] * v["h"] + 1),
    "sum": lambda t, f, v: v["h"].sum(1),
    "cumsum": lambda t, f, v: v["h"].cumsum(1),
    "prod": lambda t, f, v: v["h"].prod(),
    "norm": lambda t, f, v: t.norm(v["h"]),
    "mse_loss": lambda t, f, v: f.mse_loss(v["h"], v["x"]),
    "cross_entropy": lambda t, f, v: f.cross_entropy(v["h"], v["y"]),
    "bce_with_logits": lambda t, f, v: f.binary_cross_entropy_with_logits(v["h"], v["x"].sigmoid()),
    "relu": lambda t, f, v: v["h"].relu(),
    "gelu": lambda t, f, v: f.gelu(v["h"]),
    "add": lambda t, f, v: v["h"] + v["h"],
    "add mixed": lambda t, f, v: v["h"] + v["x"],
    "mean": lambda t, f, v: v["h"].mean(),
    "max": lambda t, f, v: v["h"].amax(1),
    "cat": lambda t, f, v: t.cat([v["h"], v["h"]]),
    "addcmul": lambda t, f, v: t.addcmul(v["x"], v["h"], v["h"]),
    "dot": lambda t, f, v: t.dot(v["h"][0], v["x"][0]),
    "batch_norm": lambda t, f, v: f.batch_norm(v["h"], None, None, v["b"], v["b"], training=True),
    "dropout": lambda t, f, v: f.dropout(v["h"], 0.0),
    "embedding": lambda t, f, v: f.embedding(v["y"], v["w"]),
    "doubles": lambda t, f, v: v["d"] @ v["d"].T,
}


def values() -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(11)
    shapes = {"x": (4, 6), "w": (6, 6), "i": (2, 3, 8, 8), "f": (5, 3, 3, 3), "b": (6,), "h": (4, 6)}
    found: dict[str, Any] = {name: rng.standard_normal(shape).astype("f4") for name, shape in shapes.items()}
    return found | {"y": np.array([1, 5, 0, 2]), "d": rng.standard_normal((4, 6))}


@pytest.mark.parametrize("name", CALLS)
def test_dtypes_and_numbers_are_those_of_pytorch(name: str, half: str, device: str) -> None:
    """``h`` is of 16 bits, as what a layer before gave; PyTorch's lists are those of its CUDA devices, which
    its CPU does not share for all, so that the dtype is that of the policy."""
    arrays = values()
    mine = {n: dl.tensor(a, device=device) for n, a in arrays.items()}
    theirs = {n: torch.from_numpy(a) for n, a in arrays.items()}
    mine["h"], theirs["h"] = mine["h"].to(half), theirs["h"].to(getattr(torch, half))
    with dl.autocast(kind(device), dtype=half):
        result = CALLS[name](dl, F, mine)
    wide = {n: t.double() if t.is_floating_point() else t for n, t in theirs.items()}
    expected = CALLS[name](torch, torch.nn.functional, wide).numpy()
    assert str(result.dtype) == EXPECTED.get(name, half)
    scale = np.abs(expected).max()
    tolerance = {"bfloat16": 3e-2, "float16": 4e-3}[half]
    assert np.abs(result.double().cpu().numpy() - expected).max() <= tolerance * scale


FLOAT32 = (
    "softmax", "log_softmax", "layer_norm", "group_norm", "exp", "log", "pow", "rsqrt", "sum", "cumsum",
    "prod", "norm", "mse_loss", "cross_entropy", "bce_with_logits", "add mixed", "addcmul", "dot",
    "embedding",
)  # fmt: skip
EXPECTED = dict.fromkeys(FLOAT32, "float32") | {"doubles": "float64"}


def test_parameters_and_gradients_stay_float32(half: str, device: str) -> None:
    layer, x = dl.nn.Linear(6, 3).to(device), dl.randn(4, 6, device=device)
    with dl.autocast(kind(device), dtype=half):
        loss = layer(x).square().mean()
    loss.backward()
    assert layer.weight.dtype == layer.weight.grad.dtype == np.float32
    wide = dl.nn.Linear(6, 3).to(device)
    wide.load_state_dict(layer.state_dict())
    wide(x).square().mean().backward()
    expected = wide.weight.grad.numpy()
    difference = np.abs(layer.weight.grad.numpy() - expected).max()
    assert 0 < difference < 0.05 * np.abs(expected).max()


def test_gradients_are_computed_in_the_dtype_of_their_ops(half: str, device: str) -> None:
    """Whether or not the backward pass lies in a block: of float32 they have the same bits."""
    numbers = np.random.default_rng(0)
    weight, x = (numbers.standard_normal((7, 7)).astype(np.float32) for _ in range(2))
    found = []
    for within in (False, True):
        parameter = dl.tensor(weight, device=device, requires_grad=True)
        loss = (dl.tensor(x, device=device) @ parameter).square().mean()
        with dl.autocast(kind(device), dtype=half, enabled=within):
            loss.backward()
        assert parameter.grad is not None
        found.append(parameter.grad.numpy())
    np.testing.assert_array_equal(*found)


def test_a_parameter_is_cast_once_in_a_block(device: str) -> None:
    layer, x = dl.nn.Linear(6, 6).to(device), dl.randn(2, 6, device=device)
    with dl.autocast(kind(device), dtype="bfloat16"):
        first = layer(x)
        before = tape.state.casts
        assert before is not None
        kept = [entry[2] for entry in before.values()]
        layer(first)
        assert [entry[2] for entry in before.values()] == kept
        with dl.no_grad():
            layer.weight.mul_(2.0)  # what was cast is of an older version
        assert not np.array_equal(layer(x).numpy(), first.numpy())
        dl.clear_autocast_cache()
        assert not tape.state.casts
    with dl.autocast(kind(device), dtype="bfloat16", cache_enabled=False):
        layer(x)
        assert tape.state.casts is None
    assert not autocast.blocks


def test_blocks_nest_and_end_with_errors(device: str) -> None:
    x, here = dl.randn(3, 3, device=device), kind(device)
    with dl.autocast(here, dtype="bfloat16"):
        assert dl.is_autocast_enabled(here)
        with dl.autocast(here, dtype="float16"):
            assert (x @ x).dtype == dl.float16
            with dl.autocast(here, enabled=False):
                assert (x @ x).dtype == dl.float32
        assert (x @ x).dtype == dl.bfloat16
        with pytest.raises(ZeroDivisionError), dl.autocast(here, dtype="float16"):
            raise ZeroDivisionError
        assert (x @ x).dtype == dl.bfloat16
    assert (x @ x).dtype == dl.float32
    assert not dl.is_autocast_enabled()


def test_a_decorator_and_other_threads(device: str) -> None:
    x, found = dl.randn(3, 3, device=device), list[Any]()

    @dl.autocast(kind(device), dtype=dl.bfloat16)
    def product() -> Any:
        thread = threading.Thread(target=lambda: found.append((x @ x).dtype))
        thread.start()
        thread.join()
        return x @ x

    assert product().dtype == product().dtype == dl.bfloat16
    assert found == [dl.float32, dl.float32]


def test_tensors_of_other_devices_stay(device: str) -> None:
    other = "cpu" if device != "cpu" else "null"
    x = dl.randn(3, 3, device=device)
    with dl.autocast(other, dtype="bfloat16"):
        assert (x @ x).dtype == dl.float32


def test_defaults() -> None:
    assert dl.get_autocast_dtype("cpu") == dl.bfloat16
    assert dl.get_autocast_dtype("null") == dl.float16
    dl.set_autocast_dtype("null", "bfloat16")
    assert dl.autocast("null").fast_dtype == dl.bfloat16
    dl.set_autocast_dtype("null", "float16")
    assert dl.amp.is_autocast_available("cpu")
    assert not dl.amp.is_autocast_available("mps")


def test_bad_use(device: str) -> None:
    with pytest.raises(UnknownDeviceError):
        dl.autocast("nothing")
    with pytest.raises(DTypeError, match="float31"):
        dl.autocast("cpu", dtype="float31")
    with pytest.warns(UserWarning, match="float64 is neither float16 nor bfloat16: it is switched off"):
        dl.autocast("cpu", dtype="float64")
    with pytest.warns(UserWarning, match="there are no mps devices: it is switched off"):
        dl.autocast("mps")
    with pytest.raises(
        ArgumentError, match=r"\[set_autocast_dtype\] expected float16 or bfloat16, got int64"
    ):
        dl.set_autocast_dtype("cpu", "int64")
    x = dl.rand(3, device=device)
    with dl.autocast(kind(device), dtype="float16"), pytest.raises(DTypeError, match="BCEWithLogitsLoss"):
        F.binary_cross_entropy(x, x)
    parameter = dl.nn.Parameter(dl.ones(2, device=device).half())
    (parameter * 2).sum().backward()
    scaler, optimizer = dl.amp.GradScaler(kind(device)), dl.optim.SGD([parameter], lr=0.1)
    with pytest.raises(
        GradientError, match=r"\[unscale_\] gradients of float16 lose what the scale has saved"
    ):
        scaler.step(optimizer)


def test_compiled_functions_follow_the_block(half: str, device: str) -> None:
    x = dl.randn(5, 5, device=device)
    function: Any = dl.compile(lambda x: (x @ x).relu() + 1)
    for dtype in (None, half, None, half):
        for _ in range(3):
            if dtype is None:
                assert function(x).dtype == dl.float32
            else:
                with dl.autocast(kind(device), dtype=dtype):
                    assert function(x).dtype == np.dtype(dtype)


def test_a_replay_casts_what_parameters_have_become(device: str) -> None:
    layer, x = dl.nn.Linear(4, 4).to(device), dl.randn(3, 4, device=device)
    compiled: Any = dl.compile(lambda x: layer(x))
    with dl.autocast(kind(device), dtype="bfloat16"):
        layer(x)  # whose casts are kept
        for _ in range(4):
            assert np.array_equal(compiled(x).detach().float().numpy(), layer(x).detach().float().numpy())
            with dl.no_grad():
                layer.weight.mul_(1.5)


def test_checkpoints_compute_again_in_the_same_precision(half: str, device: str) -> None:
    layer, x = dl.nn.Linear(4, 4).to(device), dl.randn(3, 4, device=device)
    gradients = []
    for again in (False, True):
        layer.zero_grad()
        with dl.autocast(kind(device), dtype=half):
            out = dl.autograd.checkpoint(layer, x) if again else layer(x)
        out.float().square().sum().backward()
        gradients.append(layer.weight.grad.numpy())
    np.testing.assert_array_equal(*gradients)


def test_functions_of_their_own(half: str, device: str) -> None:
    here, seen = kind(device), list[Any]()

    class Square(dl.autograd.Function):
        @staticmethod
        @dl.amp.custom_fwd(device_type=here, cast_inputs=dl.float32)  # type: ignore[untyped-decorator]
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            seen.append((x @ x).dtype)
            return x * x

        @staticmethod
        @dl.amp.custom_bwd(device_type=here)  # type: ignore[untyped-decorator]
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            seen.append((x @ x).dtype)
            return grad * x * 2

    x = dl.randn(3, 3, device=device).to(half).requires_grad_()
    with dl.autocast(here, dtype=half):
        y = Square.apply(x)
    y.sum().backward()
    assert (y.dtype, seen) == (dl.float32, [dl.float32, dl.float32])
    assert x.grad.dtype == np.dtype(half)


def test_a_network_that_underflows_trains_with_a_scaler(device: str) -> None:
    """Gradients of 2e-8 are 0 in float16; with bfloat16's range, or a scale, they are not."""
    here = kind(device)
    for dtype, enabled, moves in (
        ("float16", False, False),
        ("float16", True, True),
        ("bfloat16", False, True),
    ):
        layer, x = dl.nn.Linear(8, 1, bias=False).to(device), dl.ones(4, 8, device=device)
        before = layer.weight.detach().numpy().copy()
        optimizer = dl.optim.SGD(layer.parameters(), lr=1e6)
        scaler = dl.amp.GradScaler(here, enabled=enabled)
        with dl.autocast(here, dtype=dtype):
            loss = layer(x).float().mean() * 1e-7
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        assert (not np.array_equal(layer.weight.detach().numpy(), before)) is moves, (dtype, enabled)


@pytest.mark.parametrize("name", ["mlp", "cnn", "lstm", "attention"])
@pytest.mark.sampled(2)
def test_training_reaches_the_loss_of_float32(name: str, half: str, device: str) -> None:
    def network() -> Any:
        dl.manual_seed(3)
        return {
            "mlp": lambda: dl.nn.Sequential(dl.nn.Linear(16, 32), dl.nn.GELU(), dl.nn.Linear(32, 4)),
            "cnn": lambda: dl.nn.Sequential(
                dl.nn.Unflatten(1, (1, 4, 4)), dl.nn.Conv2d(1, 8, 3, padding=1), dl.nn.BatchNorm2d(8),
                dl.nn.ReLU(), dl.nn.MaxPool2d(2), dl.nn.Flatten(), dl.nn.Linear(32, 4),
            ),
            "lstm": lambda: Last(dl.nn.LSTM(4, 16, batch_first=True), dl.nn.Linear(16, 4)),
            "attention": lambda: Last(
                dl.nn.TransformerEncoderLayer(4, 2, 16, 0.0, batch_first=True), dl.nn.Linear(4, 4)
            ),
        }[name]().to(device)  # type: ignore[no-untyped-call]  # fmt: skip

    rng = np.random.default_rng(5)
    inputs = rng.standard_normal((32, 16)).astype("f4")
    labels = (inputs[:, :4] + 0.3 * inputs[:, 4:8]).argmax(1)
    x, y = dl.tensor(inputs, device=device), dl.tensor(labels, device=device)
    if name in ("lstm", "attention"):
        x = x.reshape(32, 4, 4)
    losses = []
    for dtype in (None, half):
        net = network()
        optimizer = dl.optim.AdamW(net.parameters(), lr=1e-2)
        scaler = dl.amp.GradScaler(kind(device), init_scale=256.0, enabled=dtype == "float16")
        for _ in range(60):
            optimizer.zero_grad()
            with dl.autocast(kind(device), dtype=dtype or "bfloat16", enabled=dtype is not None):
                loss = F.cross_entropy(net(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        losses.append(loss.item())
    first = np.log(4)
    assert losses[0] < 0.7 * first
    assert abs(losses[1] - losses[0]) < 0.03 * first


class Last(dl.nn.Module):
    """A recurrent or attention layer, and a linear one for the mean of its steps."""

    def __init__(self, steps: Any, head: Any) -> None:
        super().__init__()
        self.steps, self.head = steps, head

    def forward(self, x: Any) -> Any:
        result = self.steps(x)
        return self.head((result[0] if isinstance(result, tuple) else result).mean(1))
