"""accelerate takes dlall by itself, alone and in a group of processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import dl4all.torch  # noqa: E402, F401
from dl4all.pytorch.device.devices import names  # noqa: E402
from tests.pytorch.device.frameworks.training import CLOSE, batches, network  # noqa: E402

accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")


@pytest.fixture(autouse=True)
def no_state() -> Iterator[None]:
    """accelerate keeps the first choice of a process."""
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def trained(folder: Path, **options: Any) -> tuple[list[float], str]:
    """The losses of two epochs, with what accelerate adds to a loop, and the device they were computed on."""
    accelerator = accelerate.Accelerator(gradient_accumulation_steps=2, **options)
    net = network()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    net, optimizer, loader = accelerator.prepare(net, optimizer, batches())
    losses = []
    for epoch in range(2):
        for x, y in loader:
            with accelerator.accumulate(net):
                loss = torch.nn.functional.cross_entropy(net(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather(loss.reshape(1)).item())
        if epoch == 0:
            accelerator.save_state(str(folder))
            accelerator.load_state(str(folder))
    return losses, loss.device.type


def test_losses_are_those_of_the_cpu(tmp_path: Path) -> None:
    losses, device = trained(tmp_path / "here")
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    on_cpu, cpu = trained(tmp_path / "cpu", cpu=True)
    assert (device, cpu) == ("dlall", "cpu")
    assert losses == pytest.approx(on_cpu, rel=CLOSE)
    assert losses[-1] < 0.9 * losses[0]


def test_bfloat16_computes_on_the_device(tmp_path: Path) -> None:
    losses, device = trained(tmp_path / "float32")
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    halves, there = trained(tmp_path / "bfloat16", mixed_precision="bf16")
    assert (device, there) == ("dlall", "dlall")
    assert halves != losses
    assert halves == pytest.approx(losses, rel=2e-2)


def test_a_device_that_was_named_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "cpu")
    assert accelerate.Accelerator().device.type == "cpu"


GROUP = """
import accelerate
import torch
import dl4all.torch
from tests.pytorch.device.frameworks.training import batches, network

accelerator = accelerate.Accelerator()
net = network()
net, optimizer, loader = accelerator.prepare(net, torch.optim.SGD(net.parameters(), 0.1), batches())
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(net(x), y)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
losses = accelerator.gather(loss.reshape(1)).tolist()
state = accelerator.unwrap_model(net).state_dict()["3.weight"].sum().item()
found = accelerator.process_index, x.device, type(net).__name__, len(losses), f"{state:.6f}"
print(" ".join(map(str, ("group", *found))) + "\\n", end="", flush=True)  # in one piece: there are two
accelerator.end_training()
"""


def test_a_group_of_processes_trains_one_model(tmp_path: Path) -> None:
    script = tmp_path / "group.py"
    script.write_text(GROUP)
    command = (
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(script),
    )
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd()), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    found = sorted(line.split()[1:] for line in done.stdout.splitlines() if line.startswith("group"))
    assert done.returncode == 0, done.stderr
    assert [line[0] for line in found] == ["0", "1"]
    assert [line[1] for line in found] == [f"dlall:{rank % len(names())}" for rank in range(2)]
    assert {(kind, count) for _, _, kind, count, _ in found} == {("DistributedDataParallel", "2")}
    assert float(found[0][4]) == pytest.approx(float(found[1][4]), rel=1e-4)  # the same parameters


def test_safetensors_reads_to_the_device(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = network().state_dict()
    save_file(weights, tmp_path / "weights.safetensors")
    found = load_file(tmp_path / "weights.safetensors", device="dlall")
    assert {tensor.device.type for tensor in found.values()} == {"dlall"}
    for name, tensor in load_file(tmp_path / "weights.safetensors").items():
        torch.testing.assert_close(found[name].cpu(), tensor)
        assert tensor.device.type == "cpu"
