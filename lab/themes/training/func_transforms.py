"""torch.func: gradients of each sample, an ensemble by vmap, a Jacobian."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, jacrev, stack_module_state, vmap

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).to(device)
params = {k: v.detach() for k, v in model.named_parameters()}
x, y = torch.randn(12, 6, device=device), torch.randint(0, 3, (12,), device=device)


def sample_loss(params, sample, target):
    return F.cross_entropy(functional_call(model, params, (sample.unsqueeze(0),)), target.unsqueeze(0))


losses = []
for step in range(10):
    per_sample = vmap(grad(sample_loss), in_dims=(None, 0, 0))(params, x, y)
    norms = torch.sqrt(sum(g.flatten(1).pow(2).sum(1) for g in per_sample.values()))
    scale = (1.0 / (norms + 1e-6)).clamp(max=1.0)
    for k, g in per_sample.items():
        params[k] = params[k] - 0.5 * torch.einsum("n...,n->...", g, scale) / len(x)
    losses.append(F.cross_entropy(functional_call(model, params, (x,)), y).item())
models = [nn.Linear(6, 3).to(device) for _ in range(4)]
stacked, buffers = stack_module_state(models)
outs = vmap(lambda p, b, z: functional_call(models[0], (p, b), (z,)), in_dims=(0, 0, None))(stacked, buffers, x)
assert torch.allclose(outs[2], models[2](x), atol=1e-5)
J = vmap(jacrev(lambda z: functional_call(model, params, (z,))))(x)
assert J.shape == (12, 3, 6)
print(losses[0], losses[-1])
