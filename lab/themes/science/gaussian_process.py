"""Gaussian process regression: the marginal likelihood by Cholesky."""
import math
import numpy as np
import torch

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
X = torch.from_numpy(np.linspace(0, 1, 30)).float().unsqueeze(-1).to(device)
y = torch.sin(6 * X).squeeze(-1) + 0.1 * torch.randn(30, device=device)
log_scale, log_length, log_noise = (torch.zeros(1, device=device, requires_grad=True) for _ in range(3))
optimizer = torch.optim.Adam([log_scale, log_length, log_noise], lr=0.1)


def kernel(a, b):
    return torch.exp(log_scale) * torch.exp(-0.5 * torch.cdist(a, b) ** 2 / torch.exp(log_length) ** 2)


losses = []
for step in range(15):
    optimizer.zero_grad()
    K = kernel(X, X) + (torch.exp(log_noise) + 1e-4) * torch.eye(len(X), device=device)
    L = torch.linalg.cholesky(K)
    alpha = torch.cholesky_solve(y.unsqueeze(-1), L)
    loss = 0.5 * (y @ alpha.squeeze(-1)) + L.diagonal().log().sum() + 0.5 * len(X) * math.log(2 * math.pi)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
with torch.no_grad():
    Xs = torch.linspace(0, 1, 7, device=device).unsqueeze(-1)
    v = torch.linalg.solve_triangular(L, kernel(X, Xs), upper=False)
    var = kernel(Xs, Xs).diagonal() - (v**2).sum(0)
assert (var > -1e-3).all()
print(losses[0], losses[-1])
