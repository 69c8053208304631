"""Graph attention over an adjacency matrix, data from NumPy, no device named."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1)
rng = np.random.default_rng(1)
N, C = 40, 3
labels = torch.from_numpy(rng.integers(0, C, N))
adj = torch.from_numpy((rng.random((N, N)) < 0.1).astype(np.float32))
adj = ((adj + adj.T + torch.eye(N)) > 0).float()
features = F.one_hot(labels, C).float() + 0.5 * torch.from_numpy(rng.normal(size=(N, C)).astype(np.float32))


class GraphAttention(nn.Module):
    def __init__(self, i, o, dropout=0.1, alpha=0.2):
        super().__init__()
        self.W = nn.Parameter(torch.empty(i, o))
        self.a = nn.Parameter(torch.empty(2 * o, 1))
        nn.init.xavier_uniform_(self.W, gain=1.414)
        nn.init.xavier_uniform_(self.a, gain=1.414)
        self.leaky, self.o, self.dropout = nn.LeakyReLU(alpha), o, dropout

    def forward(self, h, adj):
        Wh = torch.mm(h, self.W)
        e = self.leaky(Wh @ self.a[: self.o] + (Wh @ self.a[self.o :]).T)
        attention = F.softmax(torch.where(adj > 0, e, -9e15 * torch.ones_like(e)), dim=1)
        return torch.matmul(F.dropout(attention, self.dropout, training=self.training), Wh)


class GAT(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList([GraphAttention(C, 8) for _ in range(2)])
        self.out = GraphAttention(16, C)

    def forward(self, x, adj):
        x = torch.cat([F.elu(head(x, adj)) for head in self.heads], dim=1)
        return F.log_softmax(self.out(x, adj), dim=1)


model = GAT()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
losses = []
idx = torch.from_numpy(np.arange(0, N, 2))
for epoch in range(25):
    model.train()
    optimizer.zero_grad()
    loss = F.nll_loss(model(features, adj)[idx], labels[idx])
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
accuracy = (model(features, adj).argmax(1) == labels).float().mean()
print(losses[0], losses[-1])
