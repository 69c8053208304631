"""A mixture of experts with top-2 gates and a loss that balances them."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class MoE(nn.Module):
    def __init__(self, dim, experts=4, k=2):
        super().__init__()
        self.gate, self.k = nn.Linear(dim, experts, bias=False), k
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim)) for _ in range(experts)])

    def forward(self, x):
        shape = x.shape
        x = x.view(-1, shape[-1])
        probs = F.softmax(self.gate(x), dim=-1)
        weights, chosen = torch.topk(probs, self.k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        mask = F.one_hot(chosen, num_classes=len(self.experts)).permute(2, 1, 0)
        for i, expert in enumerate(self.experts):
            slot, token = torch.where(mask[i])
            if token.numel():
                out.index_add_(0, token, expert(x[token]) * weights[token, slot, None])
        load = mask.float().mean(dim=(1, 2))
        return out.view(shape), (load * probs.mean(0)).sum() * len(self.experts)


model = nn.ModuleDict({"emb": nn.Embedding(20, 16), "moe": MoE(16), "out": nn.Linear(16, 20)}).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
tokens = torch.randint(0, 20, (8, 12)).to(device)
losses = []
for step in range(10):
    h = model["emb"](tokens)
    y, aux = model["moe"](h)
    loss = F.cross_entropy(model["out"](h + y).flatten(0, 1), ((tokens * 7 + 3) % 20).flatten()) + 0.01 * aux
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(losses[0], losses[-1])
