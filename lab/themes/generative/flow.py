"""A normalizing flow of affine couplings (RealNVP) on two moons."""
import numpy as np
import torch
from torch import nn, distributions as D

torch.manual_seed(0)
rng = np.random.default_rng(0)
angle = rng.uniform(0, np.pi, 256)
moons = np.stack([np.cos(angle), np.sin(angle)], 1)
moons[::2] = [1, 0.5] - moons[::2]
data = torch.from_numpy(moons.astype(np.float32))


class Coupling(nn.Module):
    def __init__(self, mask):
        super().__init__()
        self.register_buffer("mask", torch.tensor(mask, dtype=torch.float32))
        self.net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 4))

    def forward(self, x):
        s, t = self.net(x * self.mask).chunk(2, dim=-1)
        s, t = torch.tanh(s) * (1 - self.mask), t * (1 - self.mask)
        return x * torch.exp(s) + t, s.sum(-1)


flows = nn.ModuleList([Coupling([i % 2, 1 - i % 2]) for i in range(4)])
optimizer = torch.optim.Adam(flows.parameters(), lr=5e-3)
losses = []
for step in range(20):
    z, log_det = data, 0
    prior = D.MultivariateNormal(torch.zeros(2), torch.eye(2))
    for flow in flows:
        z, ld = flow(z)
        log_det = log_det + ld
    loss = -(prior.log_prob(z) + log_det).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(losses[0], losses[-1])
