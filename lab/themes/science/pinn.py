"""A physics-informed network: the residual of a differential equation by derivatives of the output."""
import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(0)
torch.set_default_dtype(torch.float32)
net = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1))
rng = np.random.default_rng(0)
xt = torch.tensor(rng.uniform(0, 1, (64, 2)), dtype=torch.float32, requires_grad=True)
x0 = torch.tensor(np.stack([np.linspace(0, 1, 16), np.zeros(16)], 1), dtype=torch.float32)
u0 = torch.sin(np.pi * x0[:, :1])
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
losses = []
for step in range(15):
    u = net(xt)
    du = torch.autograd.grad(u, xt, torch.ones_like(u), create_graph=True)[0]
    u_x, u_t = du[:, :1], du[:, 1:]
    u_xx = torch.autograd.grad(u_x, xt, torch.ones_like(u_x), create_graph=True)[0][:, :1]
    loss = ((u_t - 0.1 * u_xx) ** 2).mean() + ((net(x0) - u0) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(losses[0], losses[-1])
