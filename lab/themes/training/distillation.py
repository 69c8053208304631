"""Distillation: a small network learns the soft labels of a frozen large one."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
x = torch.from_numpy(np.random.default_rng(0).normal(size=(64, 20)).astype(np.float32))
y = (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()
teacher = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4)).to(device)
student = nn.Sequential(nn.Linear(20, 8), nn.GELU(), nn.Linear(8, 4)).to(device)
x, y = x.to(device), y.to(device)


def fit(model, loss_fn, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    out = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_fn(model(x))
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    return out


fit(teacher, lambda out: F.cross_entropy(out, y), 20)
teacher.eval()
with torch.no_grad():
    soft = F.softmax(teacher(x) / 4.0, dim=-1)
losses = fit(student, lambda out: 16 * F.kl_div(F.log_softmax(out / 4.0, dim=-1), soft, reduction="batchmean") + 0.3 * F.cross_entropy(out, y), 20)
print(losses[0], losses[-1])
