"""A learning rate finder: the rate grows each step, the loss is smoothed, weights are put back."""
import copy
import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Linear(32, 1)).to(device)
state = copy.deepcopy(model.state_dict())
x = torch.tensor(np.random.default_rng(0).normal(size=(64, 10)), dtype=torch.float32, device=device)
y = (x[:, :3].sum(1, keepdim=True)).sin()
criterion, optimizer = nn.SmoothL1Loss(), torch.optim.SGD(model.parameters(), lr=1e-5)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: 10 ** (i / 4))
rates, smooth, best = [], None, float("inf")
for i in range(20):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    smooth = loss.item() if smooth is None else 0.9 * smooth + 0.1 * loss.item()
    rates.append((optimizer.param_groups[0]["lr"], smooth))
    scheduler.step()
    best = min(best, smooth)
    if smooth > 4 * best:
        break
rate = min(rates, key=lambda pair: pair[1])[0]
model.load_state_dict(state)
optimizer = torch.optim.SGD(model.parameters(), lr=max(rate / 10, 1e-2))
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=15)
losses = []
for i in range(15):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
print(losses[0], losses[-1])
