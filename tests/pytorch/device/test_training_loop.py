"""What training loops use besides ops: files, mixed precision, loaders, checkpoints, transforms."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import dl4all as dl  # noqa: E402
import dl4all.torch  # noqa: E402
from dl4all.errors import DTypeError  # noqa: E402

nn, F, checkpoint = torch.nn, torch.nn.functional, torch.utils.checkpoint.checkpoint


def network() -> Any:
    return nn.Sequential(nn.Linear(7, 11), nn.LayerNorm(11), nn.ReLU(), nn.Linear(11, 5))


class Tied(nn.Module):  # type: ignore[name-defined, misc]
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Embedding(11, 5), nn.Linear(5, 11, bias=False)
        self.last.weight = self.first.weight

    def forward(self, x: Any) -> Any:
        return self.last(self.first(x))


def test_tied_weights_stay_tied(place: str) -> None:
    host = Tied()
    module = copy.deepcopy(host).to(place)
    assert module.last.weight is module.first.weight
    assert module.last.weight.device == torch.device(place)
    words = torch.randint(0, 11, (2, 3))
    for one, at in ((host, "cpu"), (module, place)):
        one(words.to(at)).square().mean().backward()
    torch.testing.assert_close(module.last.weight.grad.cpu(), host.last.weight.grad)


def test_copies_and_files_keep_elements_and_sharing(place: str) -> None:
    x = torch.randn(13, 7).to(place)
    state = {"whole": x, "part": x[2:5, 1:], "weights": network().to(place).state_dict()}
    copied = copy.deepcopy(state)
    old, new = io.BytesIO(), io.BytesIO()
    torch.save(state, new)
    torch.save(state, old, _use_new_zipfile_serialization=False)
    new.seek(0), old.seek(0)
    assert torch.equal(pickle.loads(pickle.dumps(x)).cpu(), x.cpu())
    for other in (copied, torch.load(new), torch.load(old)):
        assert other["whole"].device == x.device
        assert torch.equal(other["part"].cpu(), x[2:5, 1:].cpu())
        other["whole"][2, 1] = 100.0
        assert other["part"][0, 0].item() == 100.0
        assert x[2, 1].item() != 100.0
    new.seek(0)
    assert torch.equal(torch.load(new, map_location="cpu")["whole"], x.cpu())
    host = io.BytesIO()
    torch.save(x.cpu(), host)
    host.seek(0)
    assert torch.equal(torch.load(host, map_location=place).cpu(), x.cpu())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast_trains_as_on_the_cpu(place: str, dtype: Any, natively: None) -> None:
    torch.manual_seed(1)
    host = network()
    module = copy.deepcopy(host).to(place)
    x, y = torch.randn(3, 7), torch.randn(3, 5)
    losses = []
    for one, at in ((host, "cpu"), (module, torch.device(place).type)):
        with torch.autocast(at, dtype=dtype):
            out = one(x.to(one[0].weight.device))
            loss = F.mse_loss(out, y.to(out.device))
        assert out.dtype == dtype
        assert loss.dtype == torch.float32
        loss.backward()
        losses.append(loss.detach().cpu())
    torch.testing.assert_close(losses[1], losses[0], rtol=3e-3, atol=0)
    for ours, theirs in zip(module.parameters(), host.parameters(), strict=True):
        assert ours.grad.dtype == torch.float32
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad, rtol=0.05, atol=5e-3)


def test_weights_are_cast_once_in_autocast(place: str) -> None:
    linear = nn.Linear(7, 3).to(place)
    x = torch.randn(2, 7, device=place)
    with torch.autocast("dlall", dtype=torch.bfloat16):
        first = linear(x)
        second = linear(x)
        with torch.no_grad():
            assert not linear(x).requires_grad
        loss = (first + second).float().sum()
    loss.backward()
    once = linear.weight.grad.clone()
    linear.weight.data.mul_(2)
    with torch.autocast("dlall", dtype=torch.bfloat16):
        torch.testing.assert_close(linear(x) - linear.bias, 2 * (first - linear.bias), rtol=0.02, atol=0.05)
    assert once.dtype == torch.float32


def test_unsafe_loss_is_refused_in_autocast(place: str) -> None:
    p = torch.rand(3, device=place)
    with torch.autocast("dlall"), pytest.raises(RuntimeError, match="BCEWithLogitsLoss"):
        F.binary_cross_entropy(p, p)


def test_grad_scaler_skips_steps_with_infinite_gradients(place: str) -> None:
    module = network().to(place)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("dlall", init_scale=1024.0)
    before = module[0].weight.detach().cpu()
    scaler.scale(module(torch.full((2, 7), float("inf"), device=place)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 512.0
    assert torch.equal(module[0].weight.cpu(), before)
    optimizer.zero_grad()
    scaler.scale(module(torch.randn(2, 7, device=place)).sum()).backward()
    scaler.step(optimizer)
    assert not torch.equal(module[0].weight.cpu(), before)


def test_loader_pins_batches(place: str) -> None:
    rows = torch.utils.data.TensorDataset(torch.randn(7, 3), torch.arange(7))
    with torch.dlall.device(place):
        batches = list(torch.utils.data.DataLoader(rows, batch_size=3, pin_memory=True))
        assert [x.to(place).device for x, _ in batches] == [torch.device(place)] * 3
        assert all(
            x.is_pinned() == (dl.torch.devices.names()[torch.device(place).index] != "cpu")
            for x, _ in batches
        )
    assert torch.equal(torch.cat([x.to(place)[:, 1:].cpu() for x, _ in batches]), rows.tensors[0][:, 1:])
    assert torch.equal(torch.cat([x[1:].to(place).cpu() for x, _ in batches]), rows.tensors[0][[1, 2, 4, 5]])


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_repeat_dropout(place: str, reentrant: bool) -> None:
    module = nn.Sequential(nn.Linear(5, 7), nn.Dropout(0.5), nn.Linear(7, 3)).to(place)
    x = torch.randn(2, 5, device=place, requires_grad=True)
    torch.manual_seed(7)
    module(x).square().sum().backward()
    plain, x.grad = x.grad, None
    torch.manual_seed(7)
    checkpointed = checkpoint(module, x, use_reentrant=reentrant)
    checkpointed.square().sum().backward()
    torch.testing.assert_close(x.grad.cpu(), plain.cpu())


def test_gradients_are_clipped(place: str) -> None:
    host = network()
    module = copy.deepcopy(host).to(place)
    x = torch.randn(3, 7)
    for one, at in ((host, "cpu"), (module, place)):
        one(x.to(at)).square().sum().backward()
    norms = [nn.utils.clip_grad_norm_(one.parameters(), 0.5).cpu() for one in (host, module)]
    torch.testing.assert_close(norms[1], norms[0])
    for ours, theirs in zip(module.parameters(), host.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad)


def test_functional_transforms(place: str) -> None:
    x = torch.randn(4, 3, device=place)
    per_sample = torch.func.vmap(torch.func.grad(lambda row: (row**3).sum()))(x)
    torch.testing.assert_close(per_sample.cpu(), 3 * x.cpu() ** 2)
    w = torch.randn(2, 3, dtype=torch.float64).to(place).requires_grad_()
    assert torch.autograd.gradcheck(lambda a: torch.tanh(a) @ a.t(), w)


def test_profiler_sees_ops_and_ranges(place: str) -> None:
    x = torch.randn(3, device=place)
    # Without acc_events PyTorch 2.12 warns that it forgets events at the end of a cycle.
    with torch.profiler.profile(acc_events=True) as profile, torch.profiler.record_function("mine"):
        (x + x).relu().sum().item()
    assert {"mine", "aten::add", "aten::relu"} <= {event.key for event in profile.key_averages()}


def test_bfloat16_computes_on_the_device(place: str, natively: None) -> None:
    x, w = torch.randn(7, 13).bfloat16(), torch.randn(5, 13).bfloat16()

    def results(x: Any, w: Any) -> list[Any]:
        changed = x.clone()
        changed[1:, 2::3].add_(1.5)
        return [
            x + w[0],
            x.t() * 2,
            F.linear(x, w),
            x.float(),
            (x + x.float()),
            x.sum(1),
            changed,
            x[:0],
            x > 0,
        ]

    for ours, theirs in zip(results(x.to(place), w.to(place)), results(x, w), strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.stride() == theirs.stride()
        torch.testing.assert_close(ours.cpu(), theirs)
    y = torch.randn(5, 3, device=place)
    assert torch.equal(y.t().bfloat16().cpu(), y.cpu().t().bfloat16())


def test_tensors_are_shared_with_dl4all(place: str) -> None:
    x = torch.randn(5, 3).to(place).t()
    own = dl.torch.to_dl4all(x)
    np.testing.assert_array_equal(own.numpy(), x.cpu().numpy())
    back = dl.torch.from_dl4all(own)
    back.mul_(2)
    assert torch.equal(back.cpu(), x.cpu())
    assert back.stride() == x.stride()
    shared = torch.from_dlpack(x)
    shared.add_(1)
    assert torch.equal(shared.cpu(), x.cpu())
    assert torch.from_dlpack(x, device="cpu").device.type == "cpu"
    with pytest.raises(BufferError, match=r"export the tensor's \.cpu"):
        torch.utils.dlpack.to_dlpack(x)
    with pytest.raises(DTypeError, match="expected a tensor on dlall"):
        dl.torch.to_dl4all(x.cpu())
