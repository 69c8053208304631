"""Proximal policy optimization on a small environment of NumPy."""
import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.manual_seed(0)
rng = np.random.default_rng(0)


class Line:
    def reset(self):
        self.x, self.t = rng.uniform(-1, 1), 0
        return np.array([self.x, self.t / 10], np.float32)

    def step(self, a):
        self.x, self.t = self.x + (0.2 if a == 1 else -0.2), self.t + 1
        return np.array([self.x, self.t / 10], np.float32), -abs(self.x), self.t >= 10


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 32), nn.Tanh())
        self.pi, self.v = nn.Linear(32, 2), nn.Linear(32, 1)

    def forward(self, s):
        h = self.body(s)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
model, env = ActorCritic().to(device), Line()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, eps=1e-5)
losses, returns = [], []
for iteration in range(3):
    S, A, L, R, V = [], [], [], [], []
    for episode in range(3):
        s, done = env.reset(), False
        while not done:
            with torch.no_grad():
                dist, value = model(torch.from_numpy(s).float().unsqueeze(0).to(device))
            a = dist.sample()
            s2, r, done = env.step(a.item())
            S.append(s), A.append(a), L.append(dist.log_prob(a)), R.append(r), V.append(value)
            s = s2
    states = torch.tensor(np.stack(S), device=device)
    actions, old, values = torch.cat(A), torch.cat(L), torch.cat(V)
    G, ret = 0.0, []
    for t in reversed(range(len(R))):
        G = R[t] + (0.0 if t % 10 == 9 else 0.95 * G)
        ret.insert(0, G)
    ret = torch.tensor(ret, dtype=torch.float32, device=device)
    adv = ret - values
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    for _ in range(3):
        dist, v = model(states)
        ratio = (dist.log_prob(actions) - old).exp()
        policy = -torch.min(ratio * adv, torch.clamp(ratio, 0.8, 1.2) * adv).mean()
        loss = policy + 0.5 * (ret - v).pow(2).mean() - 0.01 * dist.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
print(losses[0], losses[-1])
