"""A Fourier neural operator in one dimension."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class SpectralConv(nn.Module):
    def __init__(self, channels, modes):
        super().__init__()
        self.modes = modes
        self.weights = nn.Parameter(torch.rand(channels, channels, modes, dtype=torch.cfloat) / channels**2)

    def forward(self, x):
        ft = torch.fft.rfft(x)
        out = torch.zeros_like(ft)
        out[:, :, : self.modes] = torch.einsum("bix,iox->box", ft[:, :, : self.modes], self.weights)
        return torch.fft.irfft(out, n=x.size(-1))


class FNO(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift, self.spectral, self.w, self.out = nn.Conv1d(1, 8, 1), SpectralConv(8, 6), nn.Conv1d(8, 8, 1), nn.Conv1d(8, 1, 1)

    def forward(self, x):
        x = self.lift(x)
        return self.out(F.gelu(self.spectral(x) + self.w(x)))


x = torch.from_numpy(np.random.default_rng(0).normal(size=(16, 1, 32)).astype(np.float32)).to(device)
y = torch.cumsum(x, -1) / 8
model = FNO().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for step in range(15):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(losses[0], losses[-1])
