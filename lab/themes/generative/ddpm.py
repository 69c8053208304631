"""Denoising diffusion: a network learns the noise of a noised image, with embedded time steps."""
import math
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
T = 50
betas = torch.linspace(1e-4, 0.02, T).to(device)
alphas_bar = torch.cumprod(1.0 - betas, dim=0)


class Time(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, t):
        half = self.dim // 2
        freqs = torch.exp(torch.arange(half, device=t.device) * -(math.log(10000) / (half - 1)))
        angles = t[:, None].float() * freqs[None, :]
        return torch.cat((angles.sin(), angles.cos()), dim=-1)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(Time(16), nn.Linear(16, 16), nn.SiLU())
        self.down = nn.Conv2d(1, 16, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(4, 16)
        self.up = nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1)
        self.out = nn.Conv2d(9, 1, 3, padding=1)

    def forward(self, x, t):
        h = F.silu(self.norm(self.down(x))) + self.time(t)[:, :, None, None]
        return self.out(torch.cat([F.silu(self.up(h)), x], dim=1))


images = np.random.default_rng(0).normal(size=(32, 1, 8, 8)).astype(np.float32).cumsum(-1)
loader = DataLoader(TensorDataset(torch.from_numpy(images)), batch_size=16, shuffle=True)
model = UNet().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
losses = []
for epoch in range(6):
    for (x0,) in loader:
        x0 = x0.to(device)
        t = torch.randint(0, T, (x0.shape[0],), device=device)
        noise = torch.randn_like(x0)
        a = alphas_bar[t].view(-1, 1, 1, 1)
        loss = F.mse_loss(model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t), noise)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
model.eval()
with torch.no_grad():
    x = torch.randn(2, 1, 8, 8, device=device)
    for i in reversed(range(T - 5, T)):
        t = torch.full((2,), i, device=device, dtype=torch.long)
        x = (x - betas[i] / (1 - alphas_bar[i]).sqrt() * model(x, t)) / (1 - betas[i]).sqrt()
assert torch.isfinite(x).all()
print(losses[0], losses[-1])
