"""Networks of linear layers: perceptrons from small to wide, and what is built of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.networks.case import Batch, Case, supervised, vectors

PIXELS, LATENT = 784, 20
ACTIONS = 6


def mlp(lib: Any) -> Any:
    nn = lib.nn
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))


def small_mlp(lib: Any) -> Any:
    nn = lib.nn
    return nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))


def wide_mlp(lib: Any) -> Any:
    nn = lib.nn
    layers = []
    for features in (512, 1024, 1024):
        layers += [nn.Linear(features, 1024), nn.LayerNorm(1024), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(1024, 10))


def variational_autoencoder(lib: Any) -> Any:
    nn = lib.nn

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(PIXELS, 400), nn.ReLU(), nn.Linear(400, 2 * LATENT))
            self.decoder = nn.Sequential(nn.Linear(LATENT, 400), nn.ReLU(), nn.Linear(400, PIXELS))

        def forward(self, x: Any, noise: Any) -> Any:
            mean, log_variance = self.encoder(x).chunk(2, -1)
            return self.decoder(mean + noise * (0.5 * log_variance).exp()), mean, log_variance

    return Net()


def evidence(lib: Any, net: Any, x: Any, noise: Any) -> Any:
    """The negative evidence lower bound of an image."""
    scores, mean, log_variance = net(x, noise)
    error = lib.nn.functional.binary_cross_entropy_with_logits(scores, x, reduction="sum")
    divergence = -0.5 * (1 + log_variance - mean * mean - log_variance.exp()).sum()
    return (error + divergence) / len(x)


def pictures_and_noise(rng: np.random.Generator) -> Batch:
    x = rng.random((128, PIXELS), np.float32)
    return x, rng.standard_normal((128, LATENT)).astype(np.float32)


def contrastive(lib: Any) -> Any:
    nn = lib.nn
    return nn.Sequential(
        nn.Linear(256, 512), nn.BatchNorm1d(512), nn.ReLU(),
        nn.Linear(512, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 128),
    )  # fmt: skip


def pairs_loss(lib: Any, net: Any, first: Any, second: Any, partner: Any) -> Any:
    """NT-Xent: each of two views is to find the other one among all of the batch."""
    F = lib.nn.functional
    z = F.normalize(net(lib.cat([first, second])), dim=1)
    similarity = z @ z.t() / 0.5
    itself = lib.eye(len(z), device=z.device) > 0
    return F.cross_entropy(similarity.masked_fill(itself, -1e9), partner)


def views(rng: np.random.Generator) -> Batch:
    x = rng.standard_normal((128, 256)).astype(np.float32)
    first, second = (x + 0.1 * rng.standard_normal(x.shape).astype(np.float32) for _ in range(2))
    return first, second, (np.arange(256) + 128) % 256


def actor_critic(lib: Any) -> Any:
    nn = lib.nn

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(24, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
            self.policy, self.value = nn.Linear(64, ACTIONS), nn.Linear(64, 1)

        def forward(self, x: Any) -> Any:
            x = self.body(x)
            return self.policy(x).log_softmax(-1), self.value(x).squeeze(-1)

    return Net()


def clipped_policy_loss(
    lib: Any, net: Any, x: Any, action: Any, before: Any, advantage: Any, returns: Any
) -> Any:
    """PPO's: of the policy, the value and the entropy."""
    log_policy, value = net(x)
    ratio = (log_policy.gather(1, action).squeeze(1) - before).exp()
    gain = lib.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    entropy = -(log_policy.exp() * log_policy).sum(-1).mean()
    return 0.5 * lib.nn.functional.mse_loss(value, returns) - gain - 0.01 * entropy


def transitions(rng: np.random.Generator) -> Batch:
    x = rng.standard_normal((64, 24)).astype(np.float32)
    before = np.full(64, -np.log(ACTIONS), np.float32)
    advantage, returns = rng.standard_normal((2, 64)).astype(np.float32)
    return x, rng.integers(0, ACTIONS, (64, 1)), before, advantage, returns


CASES = {
    "mlp": Case(mlp, vectors(128, 784), supervised()),
    "mlp-b1": Case(small_mlp, vectors(1, 32), supervised(optimizer="Adam", lr=1e-4)),
    "mlp-b32": Case(small_mlp, vectors(32, 32), supervised(optimizer="Adam", lr=1e-4)),
    "wide-mlp": Case(wide_mlp, vectors(256, 512), supervised(optimizer="AdamW", lr=1e-4)),
    "vae": Case(variational_autoencoder, pictures_and_noise, supervised(evidence, optimizer="Adam", lr=1e-3)),
    "contrastive": Case(contrastive, views, supervised(pairs_loss, optimizer="Adam", lr=1e-4)),
    "actor-critic": Case(
        actor_critic, transitions, supervised(clipped_policy_loss, optimizer="Adam", clip=0.5, lr=3e-4)
    ),
}
