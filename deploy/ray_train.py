"""Two workers of Ray Train train one model: ``pip install 'ray[train]' 'dl4all[dist]'``.

    python ray_train.py

Ray makes a group of torch.distributed in each worker; `Trainer(distributed=True)` takes it as it is.
"""

from __future__ import annotations

import ray
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer


def train() -> None:
    """Train in a worker."""
    import dl4all as dl

    dl.manual_seed(0)
    net = dl.models.MLP(64, [32], 10)
    trainer = dl.Trainer(
        net,
        dl.nn.CrossEntropyLoss(),
        dl.optim.AdamW(net.parameters(), lr=0.01),
        metrics=["accuracy"],
        distributed=True,
        progress=False,
    )
    x, y = dl.data.digits().arrays
    data = dl.data.TensorDataset(x.reshape(len(x), -1), y)
    loader = dl.data.DataLoader(data, batch_size=256, shuffle=True, device=None)
    history = trainer.fit(loader, epochs=10)
    rank, count = dl.distributed.get_rank(), dl.distributed.get_world_size()
    print(f"rank {rank} of {count}: accuracy {history['accuracy'][-1]:.3f}")


if __name__ == "__main__":
    ray.init(include_dashboard=False)
    TorchTrainer(train, scaling_config=ScalingConfig(num_workers=2)).fit()
