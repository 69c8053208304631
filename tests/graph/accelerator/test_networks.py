"""Networks as programs of the accelerator: they compute what immediate mode does, however they are cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError
from dl4all.graph.accelerator.program import AcceleratorProgram
from dl4all.nn import functional as F
from tests.conftest import need

Made = tuple[Callable[..., Any], tuple[dl.Tensor, ...]]


def trained(network: dl.nn.Module) -> dl.nn.Module:
    """A network whose statistics and biases are no zeros and ones."""
    rng = np.random.default_rng(1)
    for name, tensor in (*network.named_parameters(), *network.named_buffers()):
        if tensor.dtype == np.float32 and len(tensor.shape) == 1:
            drawn = rng.uniform(0.5, 1.5, tensor.shape).astype(np.float32)
            tensor.data = dl.tensor(drawn if "bias" not in name else drawn - 1)
    return network.eval()


def noise(*shape: int) -> dl.Tensor:
    return dl.tensor(np.random.default_rng(2).standard_normal(shape, np.float32))


def words(*shape: int) -> dl.Tensor:
    return dl.tensor(np.random.default_rng(3).integers(0, 61, shape))


class Branches(dl.nn.Module):
    """Groups, dilation, pools of all kinds, norms, and a residual that two ops read."""

    def __init__(self) -> None:
        super().__init__()
        self.first = dl.nn.Conv2d(6, 12, (3, 2), stride=(2, 1), padding=(2, 1), dilation=(2, 1), groups=3)
        self.norm = dl.nn.GroupNorm(4, 12)
        self.second = dl.nn.Conv2d(12, 12, 3, padding=1, groups=12, bias=False)
        self.last = dl.nn.Linear(36, 5)

    def forward(self, x: dl.Tensor) -> tuple[dl.Tensor, dl.Tensor]:
        x = F.silu(self.norm(self.first(x)))
        y = F.max_pool2d(self.second(x) + x, 3, 2, 1)
        z = F.avg_pool2d(F.hardswish(y), 2)
        pooled = F.adaptive_avg_pool2d(z, (1, 3)).flatten(1)
        return self.last(pooled), F.gelu(y)


CASES: dict[str, Callable[[], Made]] = {
    "mlp": lambda: (trained(dl.models.MLP(64, [33], 10)), (noise(7, 64),)),
    "lenet": lambda: (trained(dl.models.LeNet(10)), (noise(3, 1, 28, 28),)),
    "resnet18": lambda: (trained(dl.models.resnet18(num_classes=10)), (noise(1, 3, 47, 33),)),
    "resnet18, batch": lambda: (trained(dl.models.resnet18(num_classes=10)), (noise(2, 3, 32, 32),)),
    "mobilenet": lambda: (trained(dl.models.mobilenet_v2(num_classes=10)), (noise(1, 3, 32, 32),)),
    "gpt": lambda: (trained(dl.models.GPT(61, 32, 2, 4, 32)), (words(2, 17),)),
    "branches": lambda: (trained(Branches()), (noise(2, 6, 13, 11),)),
}


def compiled(made: Made, **sizes: Any) -> AcceleratorProgram:
    network, inputs = made
    with dl.no_grad():
        return dl.accelerator_model(**sizes).compile(network, *inputs)


def check(made: Made, program: AcceleratorProgram, device: str) -> None:
    network, inputs = made
    with dl.no_grad():
        expected = network(*inputs)
    got = program(*inputs, device=device)
    pairs = zip(got, expected, strict=True) if isinstance(got, tuple) else [(got, expected)]
    for one, other in pairs:
        wanted = other.numpy()
        np.testing.assert_allclose(one.numpy(), wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("name", CASES)
def test_it_equals_immediate_mode(name: str) -> None:
    made = CASES[name]()
    program = compiled(made)
    check(made, program, "cpu")
    report = program.report()
    assert report.multiply_adds > 0
    assert max(report.busy.values()) <= report.cycles


@pytest.mark.vulkan
@pytest.mark.parametrize("name", ["lenet", "resnet18", "gpt", "branches"])
def test_it_equals_immediate_mode_on_a_device(name: str) -> None:
    need("vulkan:0")
    made = CASES[name]()
    check(made, compiled(made), "vulkan:0")


@pytest.mark.parametrize("dataflow", ["os", "ws", "is"])
@pytest.mark.parametrize(("name", "kib"), [("lenet", 12), ("gpt", 9), ("branches", 3), ("mlp", 2)])
def test_small_scratchpads(name: str, kib: int, dataflow: Any) -> None:
    """Tiles of every axis, and products that are cut along what they sum over."""
    made = CASES[name]()
    program = compiled(made, scratchpad=kib << 10, array=(4, 8), dataflow=dataflow)
    check(made, program, "cpu")
    assert program.program.scratchpad.words == kib << 8


IMAGES = noise(2, 4, 6, 6)
CALLS: dict[str, Callable[[dl.Tensor], Any]] = {
    "cat": lambda x: dl.cat([x[:, 1:], x.relu(), x[:, :1] * 3], 1).sum(1),
    "stack": lambda x: dl.stack([x, x * 2], 1),
    "pad": lambda x: F.pad(x, (1, 2, 1, 1), value=2.5) * 2,
    "repeat": lambda x: x.repeat(1, 2, 3, 1),
    "permute": lambda x: x.reshape(2, 2, 2, 3, 2, 6).permute(5, 0, 3, 1, 4, 2).contiguous() * 2,
    "index_select": lambda x: x.index_select(1, dl.tensor([3, 0, 0])),
    "amin": lambda x: x.amin((2, 3)),
    "amax": lambda x: x.amax(1),
    "var": lambda x: x.var(1),
    "population variance": lambda x: x.var(3, correction=0),
    "softmax": lambda x: F.softmax(x, 1) + F.log_softmax(x, 3),
    "instance norm": lambda x: F.instance_norm(x),
    "mish": lambda x: F.mish(x),
    "elu": lambda x: F.elu(x, 0.7),
    "clipped": lambda x: F.hardtanh(x, -0.3, 0.8) + F.hardsigmoid(x) + F.relu6(x * 5),
    "attention": lambda x: F.scaled_dot_product_attention(x, x + 1, x * 2, is_causal=True),
    "attention of fewer queries": lambda x: F.scaled_dot_product_attention(
        x[:, :, :2], x + 1, x * 2, is_causal=True
    ),
    "mask": lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=x[0, 0]),
    "einsum": lambda x: dl.einsum("bchw,bdhw->bcd", x, x),
}


@pytest.mark.parametrize("name", CALLS)
def test_ops(name: str) -> None:
    """Compared with what the CPU computes, in tiles that are small."""
    made = CALLS[name], (IMAGES,)
    check(made, compiled(made, scratchpad=2048), "cpu")


def test_a_scratchpad_that_is_too_small() -> None:
    with pytest.raises(ArgumentError, match=r"conv with a result of .* fits into no scratchpad of 256 bytes"):
        compiled(CASES["lenet"](), scratchpad=256)


def test_tiles_repeat_as_loops() -> None:
    """A program is much shorter than what it runs, also where loops stand in loops."""
    made: Made = (lambda x: (x * 2).relu()), (noise(64, 1000),)
    program = compiled(made, scratchpad=8 << 10)
    check(made, program, "cpu")
    report = program.report()
    assert len(program.program.instructions) < report.instructions / 4
    assert "loop i1" in program.text
    made = F.linear, (noise(480, 64), noise(384, 64))
    program = compiled(made, scratchpad=16 << 10, array=(8, 8))
    check(made, program, "cpu")
    assert "loop i0" in program.text


def test_it_takes_the_weights_of_today_and_other_inputs() -> None:
    network = dl.nn.Linear(5, 3)
    program = compiled((network, (noise(2, 5),)))
    with dl.no_grad():
        network.weight.mul_(2.0)
    x = noise(2, 5) + 1
    np.testing.assert_allclose(program(x).numpy(), network(x).detach().numpy(), rtol=1e-5)


def test_views_as_inputs_and_results() -> None:
    x = noise(6, 8)
    made = (lambda a, b: (a @ b).t()), (x[::2, 1:7], noise(6, 4))
    check(made, compiled(made), "cpu")
    other = noise(3, 6) * 3  # of the same shape, and not strided
    program = compiled(made)
    np.testing.assert_allclose(
        program(other, made[1][1]).numpy(), (other @ made[1][1]).t().numpy(), rtol=1e-5
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p(noise(2, 4)), "compiled for shape (2, 5) and float32, got (2, 4) and float32"),
        (lambda p: p(words(2, 5)), "got (2, 5) and int64"),
        (lambda p: p(), "takes 1 tensors, got 0"),
    ],
)
def test_other_inputs_are_refused(call: Callable[[AcceleratorProgram], Any], message: str) -> None:
    program = compiled((dl.nn.Linear(5, 3), (noise(2, 5),)))
    with pytest.raises(ArgumentError) as problem:
        call(program)
    assert message in str(problem.value)


def test_an_index_out_of_range_is_refused() -> None:
    network, (x,) = CASES["gpt"]()
    program = compiled((network, (x,)))
    wrong = x.numpy().copy()
    wrong[1, 3] = 61
    with pytest.raises(ArgumentError, match="index 61 is out of range for an axis of size 61"):
        program(dl.tensor(wrong))


class Counted(dl.nn.Module):
    """A layer that counts its calls in a buffer."""

    calls: dl.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", dl.zeros(1))

    def forward(self, x: dl.Tensor) -> dl.Tensor:
        self.calls.add_(1)
        return x * self.calls


def add_in_place(x: dl.Tensor) -> dl.Tensor:
    return x.add_(1) * 2


@pytest.mark.parametrize(
    "call", [Counted(), add_in_place, dl.nn.BatchNorm2d(4)], ids=["buffer", "argument", "statistics"]
)
def test_what_changes_tensors_is_refused(call: Callable[[dl.Tensor], Any]) -> None:
    with pytest.raises(ArgumentError, match="changes tensors in place that it was given or sees"):
        compiled((call, (noise(2, 4, 6, 6),)))


def test_results_are_words() -> None:
    with pytest.raises(ArgumentError, match="a result has elements of int64"):
        compiled((lambda x, ids: (x * 2, ids), (noise(3), words(3))))


def test_an_op_without_instructions_is_named() -> None:
    with pytest.raises(ArgumentError, match=r"\[accelerator_model\] the op cumsum has no instructions"):
        compiled((lambda x: x.cumsum(0) + 1, (noise(5),)))


@pytest.mark.vulkan
def test_tensors_of_a_device_are_refused() -> None:
    need("vulkan:0")
    with pytest.raises(ArgumentError, match="compiles calls with tensors on the CPU"):
        compiled((dl.nn.Linear(5, 3), (noise(2, 5).to("vulkan:0"),)))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"array": (0, 4)}, "array, scratchpad and lanes are positive ints"),
        ({"array": (4, 4, 4)}, "array, scratchpad and lanes are positive ints"),
        ({"lanes": 1.5}, "array, scratchpad and lanes are positive ints"),
        ({"clock": 0.0}, "clock and dram are positive numbers"),
        ({"dram": float("nan")}, "clock and dram are positive numbers"),
        ({"dataflow": "rs"}, "dataflow is 'os'"),
    ],
)
def test_sizes_that_no_accelerator_has(sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        dl.accelerator_model(**sizes)
