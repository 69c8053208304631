"""Contrastive learning of two views (NT-Xent)."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Views(Dataset):
    def __init__(self):
        self.x = np.random.default_rng(0).normal(size=(32, 3, 8, 8)).astype(np.float32)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = torch.from_numpy(self.x[i])
        return torch.flip(x, dims=[2]) * 1.1, x - x.mean()


encoder = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 16)).to(device)
head = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 8)).to(device)
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.2, momentum=0.9)


def nt_xent(a, b, t=0.5):
    z = F.normalize(torch.cat([a, b]), dim=1)
    sim = z @ z.T / t
    n = a.size(0)
    sim.fill_diagonal_(float("-inf"))
    labels = torch.cat([torch.arange(n) + n, torch.arange(n)]).to(sim.device)
    return F.cross_entropy(sim, labels)


losses = []
for epoch in range(6):
    for a, b in DataLoader(Views(), batch_size=16, shuffle=True, drop_last=True):
        a, b = a.to(device, non_blocking=True), b.to(device, non_blocking=True)
        a, b = a + 0.1 * torch.randn_like(a), b + 0.1 * torch.randn_like(b)
        loss = nt_xent(head(encoder(a)), head(encoder(b)))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
print(losses[0], losses[-1])
