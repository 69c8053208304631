"""``Trainer(precision=...)``: mixed precision, the scale in the history, skipped steps, and going on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.data import DataLoader
from dl4all.errors import ArgumentError


def loader() -> DataLoader:
    return DataLoader(dl.data.spiral(90), 16, device=None, shuffle=True)


def fitted(device: str, epochs: int = 8, **options: Any) -> tuple[dl.Trainer, Any]:
    dl.manual_seed(0)
    net = dl.nn.Sequential(dl.nn.Linear(2, 32), dl.nn.ReLU(), dl.nn.Linear(32, 3))
    optimizer = dl.optim.AdamW(net.parameters(), lr=0.02)
    trainer = dl.Trainer(
        net, dl.nn.CrossEntropyLoss(), optimizer, ["accuracy"], device, progress=False, **options
    )
    resume = options.get("folder") is not None
    return trainer, trainer.fit(loader(), epochs, loader(), resume=resume)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_it_learns_as_in_float32(precision: str, compiled: bool, device: str) -> None:
    _, plain = fitted(device)
    trainer, history = fitted(device, precision=precision, compile=compiled)
    assert abs(history["loss"][-1] - plain["loss"][-1]) < 0.05
    assert {p.dtype for p in trainer.model.parameters()} == {np.dtype("float32")}
    assert trainer.predict(loader()).dtype == np.float32
    assert ("scale" in history.rows[-1]) is (precision == "fp16")


def test_skipped_steps_halve_the_scale(device: str) -> None:
    """From a scale with which the gradients are infinite."""
    trainer, _ = fitted(device, 1, precision="fp16")
    trainer.scaler.load_state_dict({**trainer.scaler.state_dict(), "scale": 2.0**40})
    row = trainer.fit(loader(), 2).rows[-1]
    assert row["skipped_steps"] == 6  # of six batches
    assert row["scale"] == 2.0**34


def test_accumulated_gradients_are_clipped_unscaled(device: str) -> None:
    options: dict[str, Any] = {"accumulate": 2, "clip_norm": 0.5}
    _, plain = fitted(device, **options)
    _, history = fitted(device, precision="fp16", **options)
    assert abs(history["loss"][-1] - plain["loss"][-1]) < 0.05


def test_the_scale_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    first, _ = fitted("cpu", 1, precision="fp16", folder=tmp_path)
    first.scaler.load_state_dict({**first.scaler.state_dict(), "scale": 1024.0})
    first.fit(loader(), 2)
    again, history = fitted("cpu", 3, precision="fp16", folder=tmp_path)
    assert again.scaler.get_scale() == 1024.0
    assert [row["epoch"] for row in history.rows] == [1, 2, 3]


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"precision must be one of .*, got 'half'"):
        fitted("cpu", precision="half")
