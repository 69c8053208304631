"""Model-agnostic meta-learning of sine waves, with second derivatives."""
import math
import torch
import torch.nn.functional as F

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"


def net(x, w):
    x = F.relu(F.linear(x, w[0], w[1]))
    x = F.relu(F.linear(x, w[2], w[3]))
    return F.linear(x, w[4], w[5])


shapes = [(20, 1), (20,), (20, 20), (20,), (1, 20), (1,)]
meta = [torch.nn.Parameter(torch.randn(s, device=device) * (0.3 if len(s) > 1 else 0.0)) for s in shapes]
optimizer = torch.optim.Adam(meta, lr=5e-3)
losses = []
for iteration in range(8):
    total = 0.0
    for task in range(3):
        amplitude, phase = 1.0 + task, math.pi * task / 3
        xs, xq = (torch.rand(10, 1, device=device) * 10 - 5 for _ in range(2))
        ys, yq = amplitude * torch.sin(xs + phase), amplitude * torch.sin(xq + phase)
        fast = meta
        for _ in range(1):
            grads = torch.autograd.grad(F.mse_loss(net(xs, fast), ys), fast, create_graph=True)
            fast = [w - 0.02 * g for w, g in zip(fast, grads)]
        total = total + F.mse_loss(net(xq, fast), yq)
    optimizer.zero_grad()
    total.backward()
    optimizer.step()
    losses.append(total.item() / 3)
print(losses[0], min(losses[1:]))
