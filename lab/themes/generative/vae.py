"""A variational autoencoder on a loader whose data nobody moves."""
import numpy as np
import torch
from torch import nn, optim
from torch.nn import functional as F

torch.manual_seed(0)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.mu, self.logvar = nn.Linear(64, 32), nn.Linear(32, 4), nn.Linear(32, 4)
        self.fc3, self.fc4 = nn.Linear(4, 32), nn.Linear(32, 64)

    def forward(self, x):
        h = F.relu(self.fc1(x.view(-1, 64)))
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar


images = (np.random.default_rng(0).random((64, 1, 8, 8)) ** 2).astype(np.float32)
dataset = [(torch.from_numpy(image), 0) for image in images]
model = VAE()
optimizer = optim.Adam(model.parameters(), lr=3e-3)
losses = []
for epoch in range(4):
    order = np.random.default_rng(epoch).permutation(64)
    for start in range(0, 64, 16):
        data = torch.stack([dataset[i][0] for i in order[start : start + 16]])
        recon, mu, logvar = model(data)
        bce = F.binary_cross_entropy(recon, data.view(-1, 64), reduction="sum")
        loss = bce - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
print(losses[0], losses[-1])
