"""Lightning's Trainer and Fabric take dlall by itself, and autocast for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import dl4all.torch  # noqa: E402, F401
from dl4all.errors import ArgumentError  # noqa: E402
from tests.pytorch.device.frameworks.training import CLOSE, batches, network  # noqa: E402

lightning: Any = pytest.importorskip("pytorch_lightning", reason="pytorch-lightning is not installed")
fabric = pytest.importorskip("lightning_fabric", reason="pytorch-lightning is not installed")

pytestmark = [
    # of Lightning's own code, and of PyTorch's that it calls
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
]


class Network(lightning.LightningModule):  # type: ignore[misc]
    """A network whose losses, and whose device and dtype in a step, are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()
        self.losses: list[float] = []
        self.seen: set[tuple[str, Any]] = set()

    def training_step(self, batch: Any, index: int) -> Any:
        x, y = batch
        logits = self.net(x)
        self.seen.add((logits.device.type, logits.dtype))
        loss = torch.nn.functional.cross_entropy(logits, y)
        self.log("loss", loss)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), 1e-2)


def fitted(folder: Path, **options: Any) -> tuple[Network, Any]:
    trainer = lightning.Trainer(
        max_epochs=2, logger=False, enable_progress_bar=False, enable_model_summary=False,
        log_every_n_steps=1, gradient_clip_val=1.0, default_root_dir=folder, **options,
    )  # fmt: skip
    model = Network()
    trainer.fit(model, batches())
    return model, trainer


@pytest.mark.parametrize("accelerator", ["auto", "gpu", "dlall"])
def test_losses_are_those_of_the_cpu(tmp_path: Path, accelerator: str) -> None:
    here, _ = fitted(tmp_path / "here", accelerator=accelerator)
    cpu, _ = fitted(tmp_path / "cpu", accelerator="cpu")
    assert here.seen == {("dlall", torch.float32)}
    assert cpu.seen == {("cpu", torch.float32)}
    assert here.losses == pytest.approx(cpu.losses, rel=CLOSE)
    checkpoint = next((tmp_path / "here").rglob("*.ckpt"))
    loaded = Network.load_from_checkpoint(checkpoint, map_location="cpu")
    for name, value in here.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], value.cpu())


@pytest.mark.parametrize(
    ("precision", "dtype"), [("bf16-mixed", torch.bfloat16), ("16-mixed", torch.float16)]
)
def test_mixed_precision_is_that_of_the_device(tmp_path: Path, precision: str, dtype: Any) -> None:
    model, trainer = fitted(tmp_path, precision=precision)
    assert model.seen == {("dlall", dtype)}
    scaler = trainer.precision_plugin.scaler
    assert (scaler is not None and scaler.is_enabled()) == (dtype == torch.float16)
    assert model.losses[-1] < model.losses[0]


def test_one_device_is_chosen_by_its_index(tmp_path: Path) -> None:
    trainer = lightning.Trainer(accelerator="dlall", devices=[0], logger=False)
    assert trainer.strategy.root_device == torch.device("dlall:0")
    with pytest.raises(ArgumentError, match=r"devices=2: it trains on one device.*torchrun"):
        lightning.Trainer(accelerator="gpu", devices=2, logger=False)


def test_fabric_trains_there() -> None:
    here, cpu = (_steps_of_fabric(accelerator) for accelerator in ("auto", "cpu"))
    assert (here[0], cpu[0]) == ("dlall", "cpu")
    assert here[1] == pytest.approx(cpu[1], rel=CLOSE)


def _steps_of_fabric(accelerator: str) -> tuple[str, list[float]]:
    run = fabric.Fabric(accelerator=accelerator, devices=1)
    net = network()
    net, optimizer = run.setup(net, torch.optim.SGD(net.parameters(), 0.1))
    losses = []
    for x, y in run.setup_dataloaders(batches()):
        loss = torch.nn.functional.cross_entropy(net(x), y)
        run.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return loss.device.type, losses


def test_a_plugin_of_the_callers_own_stays(tmp_path: Path) -> None:
    plugin = lightning.plugins.precision.MixedPrecision("bf16-mixed", "dlall")
    trainer = lightning.Trainer(plugins=[plugin], logger=False)
    assert trainer.precision_plugin is plugin
