"""What modules do in a step, found out without computing, against what a simulated device counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all import nn
from dl4all.errors import ArgumentError, ShapeError, TraceError
from dl4all.multi_device.trace.work_trace import WorkTrace, batch_work, resized, trace_work
from dl4all.runtime.simulated import clock
from dl4all.runtime.work import WorkCounts
from dl4all.scheduler.cost.simulation import simulated_device

Case = tuple[nn.Module, dl.Tensor]


def resnet() -> Case:
    net = dl.models.resnet18(num_classes=5, base_channels=8)
    return net, dl.rand(2, 3, 32, 32, device="cpu")


def lenet() -> Case:
    return dl.models.LeNet(), dl.rand(3, 1, 28, 28, device="cpu")


def mlp() -> Case:
    return dl.models.MLP(6, [5, 4], 3, dropout=0.5), dl.rand(4, 6, device="cpu")


def gpt() -> Case:
    net = dl.models.GPT(vocab_size=11, block_size=8, n_layer=2, n_head=2, n_embd=6)
    return net, dl.tensor([[1, 2, 3], [7, 10, 0]], device="cpu")


def tagger() -> Case:
    net = dl.models.LSTMTagger(100, 5, embedding_dim=8, hidden_dim=4)
    return net, dl.tensor([[7, 8, 9], [3, 5, 0]], device="cpu")


CASES = pytest.mark.parametrize("make", [resnet, lenet, mlp, gpt, tagger])


def paths(trace: WorkTrace) -> list[str]:
    return [module.path for module in trace.modules]


def cuts(trace: WorkTrace) -> dict[str, int]:
    return {module.path: module.cut for module in trace.modules if module.cut is not None}


def assert_same_work(found: WorkCounts, expected: WorkCounts) -> None:
    assert found.launches == expected.launches > 0
    assert found.nbytes == expected.nbytes > 0
    assert found.flops == expected.flops


def counted(net: nn.Module, x: dl.Tensor, training: bool) -> WorkCounts:
    """The work of a step on a simulated device that the model is really on."""
    device = simulated_device(computes=False)
    assert device.simulated is not None
    net.to(device).train(training)
    x = x.to(device)
    device.simulated.work = WorkCounts()
    with dl.set_grad_enabled(training):
        output = net(x)
    if training:
        gradient = dl.empty(*output.shape, device=device)
        output.backward(gradient)
    return device.simulated.work


@CASES
@pytest.mark.parametrize("training", [True, False])
def test_the_work_is_that_of_the_model_on_a_device(make: Any, training: bool) -> None:
    net, x = make()
    trace = trace_work(net, x, training=training)
    assert_same_work(trace.step, counted(net, x, training))
    assert bool(trace.backward.launches) == training


@CASES
def test_bytes_of_parameters_and_buffers_are_the_models(make: Any) -> None:
    net, x = make()
    trace = trace_work(net, x)
    assert sum(m.parameters for m in trace.modules) == sum(p.nbytes for p in net.parameters())
    assert sum(sum(m.trained) for m in trace.modules) == sum(p.nbytes for p in net.parameters())
    assert sum(m.trained_elements for m in trace.modules) == sum(p.numel() for p in net.parameters())
    assert sum(m.buffers for m in trace.modules) == sum(b.nbytes for b in net.buffers())


@CASES
def test_the_model_is_left_alone(make: Any) -> None:
    net, x = make()
    net.eval()
    before = {
        name: (id(t), t.storage, t.detach().numpy().copy())
        for name, t in net.state_dict(keep_vars=True).items()
    }
    state, now = dl.ops.random.generator.default_generator().get_state(), clock.now()
    trace_work(net, x)
    assert not net.training
    assert all(p.grad is None for p in net.parameters())
    for name, tensor in net.state_dict(keep_vars=True).items():
        identity, storage, values = before[name]
        assert (id(tensor), tensor.storage) == (identity, storage)
        np.testing.assert_array_equal(tensor.detach().numpy(), values)
    assert not any(module._call_hooks for module in net.modules())
    assert dl.ops.random.generator.default_generator().get_state() == state
    assert clock.now() == now


def test_each_call_has_its_work() -> None:
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    trace = trace_work(net, dl.rand(5, 4, device="cpu"))
    assert paths(trace) == ["0", "1", "2"]
    assert [m.kind for m in trace.modules] == ["Linear", "ReLU", "Linear"]
    assert [m.forward.flops for m in trace.modules] == [{"linalg.linear": 120}, {}, {"linalg.linear": 60}]
    # The first has no gradient of its input to compute.
    assert [m.backward.flops for m in trace.modules] == [{"linalg.matmul": 120}, {}, {"linalg.matmul": 120}]
    assert [m.output for m in trace.modules] == [60, 60, 40]
    assert [m.trained for m in trace.modules] == [(48, 12), (), (24, 8)]
    assert trace.input == 80


def test_a_frozen_layer_has_no_gradients() -> None:
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    net.get_submodule("0").requires_grad_(False)
    first, second = trace_work(net, dl.rand(5, 4, device="cpu")).modules
    assert (first.trained, first.backward.launches, first.parameters) == ((), 0, 60)
    assert second.backward.flops == {"linalg.matmul": 60}
    assert all(not p.requires_grad for p in net.get_submodule("0").parameters())


def test_a_module_called_twice_counts_each_call_and_its_parameters_once() -> None:
    shared = nn.Linear(4, 4)
    net = nn.Sequential(shared, nn.ReLU(), shared)
    trace = trace_work(net, dl.rand(2, 4, device="cpu"))
    assert paths(trace) == ["0", "1", "0"]
    assert [m.parameters for m in trace.modules] == [80, 0, 0]
    assert trace.modules[0].forward.flops == trace.modules[2].forward.flops


def test_the_loss_is_a_part_of_its_own() -> None:
    net, x = lenet()
    labels = dl.tensor([1, 2, 3], device="cpu")
    trace = trace_work(net, x, loss=nn.CrossEntropyLoss(), targets=[labels])
    assert trace.modules[-1].path == "(loss)"
    assert trace.modules[-1].forward.launches > 0
    assert trace.modules[-1].backward.launches > 0
    without = trace_work(net, x)
    assert [m.forward for m in trace.modules[:-1]] == [m.forward for m in without.modules]


def test_a_checkpointed_block_works_twice_and_keeps_little() -> None:
    class Block(nn.Module):
        def __init__(self, checkpointed: bool) -> None:
            super().__init__()
            self.checkpointed = checkpointed
            self.layers = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())

        def forward(self, x: dl.Tensor) -> dl.Tensor:
            y: dl.Tensor = dl.autograd.checkpoint(self.layers, x) if self.checkpointed else self.layers(x)
            return y

    x = dl.rand(2, 8, device="cpu")
    plain, again = (trace_work(nn.Sequential(nn.Linear(8, 8), Block(flag)), x) for flag in (False, True))
    assert_same_work(again.forward, plain.forward)
    repeated = again.backward - plain.backward
    assert repeated.flops["linalg.linear"] == 2 * (2 * 2 * 8 * 8)
    assert sum(m.saved for m in again.modules) < sum(m.saved for m in plain.modules)


# Where a model can be cut


def test_a_chain_is_cut_everywhere() -> None:
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2), nn.ReLU())
    assert cuts(trace_work(net, dl.rand(5, 4, device="cpu"))) == {"0": 60, "1": 60, "2": 40}


def test_residual_blocks_stay_whole() -> None:
    trace = trace_work(*resnet())
    inside = [path for path in cuts(trace) if path.startswith("layer")]
    assert inside == [f"layer{i}.{j}.relu" for i in (1, 2, 3, 4) for j in (0, 1)]
    assert cuts(trace)["layer2.1.relu"] == 4 * 2 * 16 * 4 * 4


def test_a_chain_within_a_chain_is_cut() -> None:
    net = nn.Sequential(nn.Linear(6, 6), mlp()[0], nn.ReLU())
    assert set(cuts(trace_work(net, dl.rand(4, 6, device="cpu")))) == {
        "0", "1.0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6",
    }  # fmt: skip


def test_shared_parameters_stay_together() -> None:
    assert cuts(trace_work(*gpt())) == {}  # the first table is the last layer's
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    net.get_submodule("2").register_parameter("weight", net.get_parameter("0.weight"))
    assert set(cuts(trace_work(net, dl.rand(2, 4, device="cpu")))) == {"2", "3"}


def test_an_input_that_is_used_later_crosses_too() -> None:
    class Skip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: dl.Tensor) -> dl.Tensor:
            y: dl.Tensor = self.c(self.b(self.a(x)) + x)
            return y

    trace = trace_work(Skip(), dl.rand(2, 4, device="cpu"))
    assert paths(trace) == ["a", "b", "", "c"]  # "" is the sum
    assert cuts(trace) == {"": 32}


def test_two_outputs_leave_no_cut_behind_the_first() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: dl.Tensor) -> tuple[dl.Tensor, dl.Tensor]:
            y = self.a(x)
            return self.b(y), self.c(y)

    assert cuts(trace_work(Heads(), dl.rand(2, 4, device="cpu"))) == {"a": 32}


# What cannot be traced


class Looks(nn.Module):
    """Computes with numbers on the host that are not there."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: dl.Tensor) -> dl.Tensor:
        y: dl.Tensor = self.fc(x)
        kept = np.flatnonzero(np.isfinite(y.numpy()).all(1) & (y.numpy() != 0).all(1))
        return y[int(kept[0])]


def test_a_model_that_looks_at_numbers_is_refused() -> None:
    net, x = Looks(), dl.rand(2, 4, device="cpu")
    net(x)  # it does run
    with pytest.raises(TraceError, match=r"\[trace_work\] Looks .*IndexError"):
        trace_work(net, x)


def test_inputs_of_the_wrong_shape_are_the_models_own_error() -> None:
    with pytest.raises(ShapeError, match="linear"):
        trace_work(nn.Linear(4, 4), dl.rand(2, 5, device="cpu"))


# As a function of the batch


@CASES
def test_work_is_linear_in_the_batch(make: Any) -> None:
    net, x = make()
    work = batch_work(net, x)
    larger = resized((x,), 16)
    for training, share in ((True, work.step), (False, work.inference)):
        traced = trace_work(net, *larger, training=training).step
        found = share.at(16)
        assert found.launches == pytest.approx(traced.launches, rel=0.05)
        assert found.nbytes == pytest.approx(traced.nbytes, rel=0.05)
        assert found.flops == pytest.approx(traced.flops, rel=0.05)
        assert share.per_sample.nbytes > 0
        assert share.fixed.nbytes > 0
    assert work.forward.at(16).nbytes < work.step.at(16).nbytes


def test_inputs_without_a_batch_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"\[batch_work\] .*same number of samples .*\[2, 3\]"):
        batch_work(nn.Bilinear(4, 4, 2), dl.rand(2, 4, device="cpu"), dl.rand(3, 4, device="cpu"))


def test_ints_are_repeated() -> None:
    tokens = dl.tensor([[1, 2], [3, 4]], device="cpu")
    assert resized({"a": [tokens]}, 3)["a"][0].tolist() == [[1, 2], [3, 4], [1, 2]]
