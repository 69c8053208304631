"""Quantization aware training by fake quantization in the forward pass."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class FakeQuantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, bits):
        q = 2 ** (bits - 1) - 1
        ctx.save_for_backward((x / scale).abs() <= q)
        return torch.clamp(torch.round(x / scale), -q, q) * scale

    @staticmethod
    def backward(ctx, grad):
        (mask,) = ctx.saved_tensors
        return grad * mask, None, None


class QLinear(nn.Linear):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.register_buffer("running", torch.tensor(0.0))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.running.mul_(0.9).add_(0.1 * x.abs().max())
        x = FakeQuantize.apply(x, self.running.clamp(min=1e-3) / 127, 8)
        w = FakeQuantize.apply(self.weight, self.weight.detach().abs().max() / 7, 4)
        return F.linear(x, w, self.bias)


model = nn.Sequential(QLinear(12, 32), nn.ReLU(), QLinear(32, 3)).to(device)
x = torch.randn(64, 12).to(device)
y = x[:, :3].argmax(1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for step in range(20):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(losses[0], losses[-1])
