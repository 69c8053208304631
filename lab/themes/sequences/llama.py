"""A small Llama: RMS norm, rotary positions, grouped heads, SwiGLU, generation with a cache of keys."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
V, D, HEADS, KV, LAYERS = 32, 32, 4, 2, 2


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return self.weight * (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)).type_as(x)


def rotate(x, cos, sin):
    x1, x2 = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-x2, x1), dim=-1) * sin


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.hd = D // HEADS
        self.q, self.k, self.v = (nn.Linear(D, n * self.hd, bias=False) for n in (HEADS, KV, KV))
        self.o = nn.Linear(D, D, bias=False)
        self.gate, self.up, self.down = nn.Linear(D, 64, bias=False), nn.Linear(D, 64, bias=False), nn.Linear(64, D, bias=False)
        self.n1, self.n2 = RMSNorm(D), RMSNorm(D)

    def forward(self, x, cos, sin, cache=None):
        b, t, _ = x.shape
        h = self.n1(x)
        q, k, v = (f(h).view(b, t, -1, self.hd).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        cached = (k, v)
        k, v = (z.repeat_interleave(HEADS // KV, dim=1) for z in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        x = x + self.o(y.transpose(1, 2).contiguous().view(b, t, D))
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h)), cached


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.blocks, self.norm = nn.Embedding(V, D), nn.ModuleList(Block() for _ in range(LAYERS)), RMSNorm(D)
        self.head = nn.Linear(D, V, bias=False)
        self.head.weight = self.emb.weight
        inv = 1.0 / (10000 ** (torch.arange(0, D // HEADS, 2).float() / (D // HEADS)))
        angles = torch.outer(torch.arange(64).float(), torch.cat([inv, inv]))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids, caches=None):
        start = 0 if caches is None else caches[0][0].size(2)
        x, t, new = self.emb(ids), ids.size(1), []
        for i, block in enumerate(self.blocks):
            x, cache = block(x, self.cos[start : start + t], self.sin[start : start + t], None if caches is None else caches[i])
            new.append(cache)
        return self.head(self.norm(x)), new


model = Llama().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
data = torch.arange(200) % 11
losses = []
for step in range(12):
    ix = torch.randint(0, 150, (8,))
    batch = torch.stack([data[i : i + 17] for i in ix]).to(device)
    logits, _ = model(batch[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, V), batch[:, 1:].reshape(-1))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
model.eval()
with torch.inference_mode():
    ids = torch.tensor([[0, 1, 2]], device=device)
    logits, caches = model(ids)
    for _ in range(4):
        token = torch.multinomial(F.softmax(logits[:, -1] / 0.8, -1), 1)
        ids = torch.cat([ids, token], 1)
        logits, caches = model(token, caches)
    full, _ = model(ids)
assert torch.allclose(full[:, -1], logits[:, -1], atol=1e-4)
print(losses[0], losses[-1])
