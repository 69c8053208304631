"""Small scripts of other ways to train, as in ``image_scripts.py``."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import nn
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal
from torch.nn import functional

from lab.torch_zoo.cases import Script, train


def policy_gradient(device: str) -> list[torch.Tensor]:
    """REINFORCE with a baseline: an episode step by step, discounted returns, entropy."""
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)).to(device)

    def loss() -> Any:
        state, logs, rewards, entropy = torch.randn(4), [], [], []
        for _ in range(6):
            policy = Categorical(functional.softmax(model(state.to(device)), dim=-1))
            action = torch.randint(3, ()).to(device)
            logs.append(policy.log_prob(action))
            entropy.append(policy.entropy())
            state = 0.9 * state + 0.1 * action.item()
            rewards.append(float(state.sum()))
        returns: list[float] = []
        for reward in reversed(rewards):
            returns.insert(0, reward + 0.99 * (returns[0] if returns else 0.0))
        gains = torch.tensor(returns, device=device)
        gains = (gains - gains.mean()) / (gains.std() + 1e-6)
        return -(torch.stack(logs) * gains).sum() - 0.01 * torch.stack(entropy).mean()

    return train(model, loss, torch.optim.Adam(model.parameters(), 0.01, eps=1e-3))


def q_learning(device: str) -> list[torch.Tensor]:
    """A target network that follows, values gathered by action, and Huber's loss."""
    model, slow = (nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)).to(device) for _ in range(2))
    slow.load_state_dict(model.state_dict())
    state, after = (torch.randn(9, 4).to(device) for _ in range(2))
    action, reward, end = (
        torch.randint(3, (9, 1)).to(device),
        torch.randn(9).to(device),
        (torch.rand(9) > 0.7).to(device),
    )

    def loss() -> Any:
        value = model(state).gather(1, action).squeeze(1)
        with torch.no_grad():
            follow = slow(after).max(1).values
            follow[end] = 0.0
            for kept, now in zip(slow.parameters(), model.parameters(), strict=True):
                kept.data.mul_(0.9).add_(now.data, alpha=0.1)
        return functional.smooth_l1_loss(value, reward + 0.9 * follow)

    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, amsgrad=True, eps=1e-3)
    return train(model, loss, optimizer)


def neural_ode(device: str) -> list[torch.Tensor]:
    """Runge-Kutta steps through a network, with the times on the device."""
    model = nn.Sequential(nn.Linear(3, 17), nn.Tanh(), nn.Linear(17, 2)).to(device)
    times = torch.linspace(0, 1, 7).to(device)
    start, target = torch.randn(5, 2).to(device), torch.randn(7, 5, 2).to(device)

    def slope(time: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = model(torch.cat([y, time.expand(len(y), 1)], 1))
        return found

    def loss() -> Any:
        y, path = start, [start]
        for before, after in itertools.pairwise(times):
            step = after - before
            one = slope(before, y)
            two = slope(before + step / 2, y + step * one / 2)
            three = slope(before + step / 2, y + step * two / 2)
            y = y + step * (one + 2 * two + 2 * three + slope(after, y + step * three)) / 6
            path.append(y)
        return (torch.stack(path) - target).abs().mean()

    return train(model, loss, torch.optim.Adam(model.parameters(), 0.01, eps=1e-3))


def mixture_density(device: str) -> list[torch.Tensor]:
    """A mixture of normal distributions by torch.distributions."""
    model = nn.Sequential(nn.Linear(1, 15), nn.Tanh(), nn.Linear(15, 3 * 5)).to(device)
    x, y = torch.randn(19, 1).to(device), torch.randn(19, 2).to(device)

    def loss() -> Any:
        weights, mean, scale = model(x).split([3, 6, 6], dim=-1)
        parts = Independent(Normal(mean.view(-1, 3, 2), functional.softplus(scale).view(-1, 3, 2) + 1e-2), 1)
        return -MixtureSameFamily(Categorical(logits=weights), parts).log_prob(y).mean()

    return train(model, loss, torch.optim.NAdam(model.parameters(), 0.01, eps=1e-3))


def physics_informed(device: str) -> list[torch.Tensor]:
    """Second derivatives by autograd within the loss, minimized by L-BFGS."""
    model = nn.Sequential(nn.Linear(2, 13), nn.Tanh(), nn.Linear(13, 1)).to(device)
    points = torch.rand(17, 2).to(device).requires_grad_()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    found = []

    def closure() -> Any:
        optimizer.zero_grad()
        u = model(points)
        first = torch.autograd.grad(u.sum(), points, create_graph=True)[0]
        second = torch.autograd.grad(first[:, 0].sum(), points, create_graph=True)[0][:, 0]
        loss = (first[:, 1] - 0.1 * second + u.squeeze(1) * first[:, 0]).pow(2).mean() + (
            u - points[:, :1]
        ).pow(2).mean()
        loss.backward()
        return loss

    for _ in range(2):
        found.append(optimizer.step(closure).detach())
    return found + [p.detach() for p in model.parameters()]


def gaussian_process(device: str) -> list[torch.Tensor]:
    """Hyperparameters by the marginal likelihood: Cholesky factors and triangular solves."""
    x, y = torch.rand(11, 2).to(device), torch.randn(11).to(device)
    model = nn.ParameterList([nn.Parameter(torch.rand(2)), nn.Parameter(torch.tensor(0.1))]).to(device)

    def loss() -> Any:
        kernel = torch.exp(-0.5 * (((x[:, None] - x[None]) / model[0].exp()) ** 2).sum(-1))
        factor = torch.linalg.cholesky(kernel + torch.eye(11, device=device) * functional.softplus(model[1]))
        solved = torch.cholesky_solve(y[:, None], factor).squeeze(1)
        return 0.5 * y @ solved + factor.diagonal().log().sum()

    return train(model, loss, torch.optim.Adam(model.parameters(), 0.01, eps=1e-3))


def normalizing_flow(device: str) -> list[torch.Tensor]:
    """Coupling layers with masks and logarithms of determinants."""
    nets = nn.ModuleList(
        [nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(), nn.Linear(16, 8)) for _ in range(3)]
    ).to(device)
    x = torch.randn(13, 4).to(device)
    mask = torch.tensor([1.0, 0.0, 1.0, 0.0]).to(device)

    def loss() -> Any:
        z, volume = x, torch.zeros(13, device=device)
        for level, net in enumerate(nets):
            m = mask if level % 2 else 1 - mask
            scale, shift = net(z * m).chunk(2, -1)
            scale = torch.tanh(scale) * (1 - m)
            z = z * scale.exp() + shift * (1 - m)
            volume = volume + scale.sum(-1)
        base = torch.distributions.MultivariateNormal(
            torch.zeros(4, device=device), torch.eye(4, device=device)
        )
        return -(base.log_prob(z) + volume).mean()

    return train(nets, loss, torch.optim.Adadelta(nets.parameters(), 0.5))


def low_rank_adapters(device: str) -> list[torch.Tensor]:
    """A frozen network beside small matrices, weight norm, and a checkpoint."""
    base = nn.Sequential(
        nn.Linear(10, 12),
        nn.GELU(),
        nn.utils.parametrizations.weight_norm(nn.Linear(12, 12)),
        nn.Linear(12, 4),
    ).to(device)
    for p in base[0].parameters():
        p.requires_grad_(False)
    down, up = nn.Linear(10, 2, bias=False).to(device), nn.Linear(2, 12, bias=False).to(device)
    model = nn.ModuleList([base, down, up])
    x, y = torch.randn(9, 10).to(device), torch.randn(9, 4).to(device)

    def hidden(x: torch.Tensor) -> Any:
        found: torch.Tensor = base[1](base[0](x) + 0.5 * up(down(x)))
        return found

    def loss() -> Any:
        inside = torch.utils.checkpoint.checkpoint(hidden, x, use_reentrant=False)
        return functional.huber_loss(base[3](base[2](inside)), y) + functional.kl_div(
            base[3](inside).log_softmax(-1), y.softmax(-1), reduction="batchmean"
        )

    return train(
        model, loss, torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), 0.01, eps=1e-3)
    )


def meta_learning(device: str) -> list[torch.Tensor]:
    """MAML by torch.func: a step of gradient descent within the loss, over tasks by vmap."""
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
    x, y = torch.randn(3, 5, 1).to(device), torch.randn(3, 5, 1).to(device)

    def task(weights: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        def error(values: dict[str, torch.Tensor]) -> torch.Tensor:
            return functional.mse_loss(torch.func.functional_call(model, values, (x,)), y)

        slopes = torch.func.grad(error)(weights)
        return error({name: weights[name] - 0.1 * slopes[name] for name in weights})

    def loss() -> Any:
        weights: dict[str, Any] = dict(model.named_parameters())
        return torch.func.vmap(task, (None, 0, 0))(weights, x, y).mean()

    return train(model, loss, torch.optim.SGD(model.parameters(), 0.05))


METHOD_SCRIPTS: dict[str, Script] = {
    function.__name__: function
    for function in (
        policy_gradient,
        q_learning,
        neural_ode,
        mixture_density,
        physics_informed,
        gaussian_process,
        normalizing_flow,
        low_rank_adapters,
        meta_learning,
    )
}
