"""A training run for test_killed: its folder is the argument, and its weights go to weights.bin there."""

from __future__ import annotations

import sys
from pathlib import Path

import dl4all as dl


def main(folder: Path) -> None:
    dl.manual_seed(3)
    nn = dl.nn
    net = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))
    optimizer = dl.optim.AdamW(net.parameters(), lr=0.02)
    trainer = dl.Trainer(
        net,
        nn.CrossEntropyLoss(),
        optimizer,
        ["accuracy"],
        "cpu",
        scheduler=dl.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=6 * 10),
        scheduler_interval="step",
        ema=dl.optim.EMA(net.parameters(), 0.9),
        folder=folder,
        checkpoint_every=1,
        progress=False,
    )
    train = dl.data.DataLoader(dl.data.spiral(150), 16, shuffle=True, num_workers=1, device=None)
    test = dl.data.DataLoader(dl.data.spiral(30, seed=1), 30, device=None)
    print("ready", flush=True)
    trainer.fit(train, 6, test, resume=True)
    arrays = [tensor.numpy().tobytes() for tensor in net.state_dict().values()]
    part = folder / "weights.part"
    part.write_bytes(b"".join(arrays))
    part.replace(folder / "weights.bin")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
