"""Small training scripts of plain PyTorch for ``torch_models.py``: a device in, losses and parameters out.

All random numbers are drawn on the CPU, so that every device computes the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.distributions import Bernoulli, Categorical, Independent, MixtureSameFamily, Normal, kl_divergence
from torch.nn import functional

STEPS = 5

Script = Callable[[str], list[torch.Tensor]]


def train(
    model: nn.Module,
    losses: Iterator[torch.Tensor] | Callable[[], torch.Tensor],
    optimizer: torch.optim.Optimizer,
) -> list[torch.Tensor]:
    """The losses of a few steps, then the parameters."""
    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = losses() if callable(losses) else next(losses)
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return found + [p.detach() for p in model.parameters()]


def dcgan(device: str) -> list[torch.Tensor]:
    """Two networks against each other, of transposed convolutions and of strided ones."""
    generator = nn.Sequential(
        nn.ConvTranspose2d(11, 16, 4, bias=False), nn.BatchNorm2d(16), nn.ReLU(True),
        nn.ConvTranspose2d(16, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
        nn.ConvTranspose2d(8, 3, 4, 2, 1, bias=False), nn.Tanh(),
    ).to(device)  # fmt: skip
    critic = nn.Sequential(
        nn.Conv2d(3, 8, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(8, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(16, 1, 4, bias=False), nn.Sigmoid(),
    ).to(device)  # fmt: skip
    for model in (generator, critic):
        for module in model:
            if isinstance(module, nn.BatchNorm2d):
                nn.init.constant_(module.bias, 0)
    generating = torch.optim.SGD(generator.parameters(), 0.02)
    judging = torch.optim.SGD(critic.parameters(), 0.02)
    real = torch.rand(7, 3, 16, 16).to(device)
    found = []
    for _ in range(STEPS):
        noise = torch.randn(7, 11, 1, 1).to(device)
        ones = torch.full((7,), 1.0, device=device)
        judging.zero_grad()
        made = generator(noise)
        loss = functional.binary_cross_entropy(critic(real).view(-1), ones)
        loss.backward()
        lies = functional.binary_cross_entropy(critic(made.detach()).view(-1), ones.fill_(0))
        lies.backward()
        judging.step()
        generating.zero_grad()
        fooled = functional.binary_cross_entropy(critic(made).view(-1), ones.fill_(1))
        fooled.backward()
        generating.step()
        found += [loss.detach(), lies.detach(), fooled.detach()]
    return found + [p.detach() for model in (generator, critic) for p in model.parameters()]


def variational_autoencoder(device: str) -> list[torch.Tensor]:
    """Binary images through a normal distribution, by the reparameterization."""
    encoder, decoder = nn.Linear(49, 2 * 5), nn.Sequential(nn.Linear(5, 31), nn.Softplus(), nn.Linear(31, 49))
    both = nn.ModuleList([encoder, decoder]).to(device)
    images = (torch.rand(13, 49) > 0.5).float().to(device)

    def loss() -> torch.Tensor:
        mean, log_variance = encoder(images).chunk(2, dim=-1)
        hidden = mean + torch.randn(13, 5).to(device) * torch.exp(0.5 * log_variance)
        fit = Bernoulli(logits=decoder(hidden)).log_prob(images).sum()
        posterior = Normal(mean, torch.exp(0.5 * log_variance))
        prior = Normal(torch.zeros_like(mean), torch.ones_like(mean))
        return (kl_divergence(posterior, prior).sum() - fit) / len(images)

    return train(both, loss, torch.optim.Adam(both.parameters(), 1e-3, eps=1e-3))


class _UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()

        def block(channels: int, out: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(channels, out, 3, padding=1), nn.GroupNorm(2, out), nn.SiLU())

        self.down = nn.ModuleList([block(3, 8), block(8, 16), block(16, 32)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)])
        self.join = nn.ModuleList([block(32, 16), block(16, 8)])
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else functional.max_pool2d(x, 2))
            kept.append(x)
        kept.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x, other = up(x), kept.pop()
            x = functional.pad(x, (0, other.shape[3] - x.shape[3], 0, other.shape[2] - x.shape[2]))
            x = join(torch.cat([other, x], dim=1))
        return self.out(x)


def unet(device: str) -> list[torch.Tensor]:
    """Segmentation, with the Dice loss beside cross entropy."""
    model = _UNet().to(device)
    x, y = torch.randn(2, 3, 21, 18).to(device), torch.randint(2, (2, 21, 18)).to(device)

    def loss() -> torch.Tensor:
        scores = model(x)
        chance, truth = scores.softmax(1), functional.one_hot(y, 2).permute(0, 3, 1, 2).float()
        dice = 1 - (2 * (chance * truth).sum((0, 2, 3)) / (chance + truth).sum((0, 2, 3))).mean()
        return functional.cross_entropy(scores, y) + dice

    return train(model, loss, torch.optim.RMSprop(model.parameters(), 1e-3, eps=1e-2))


def diffusion(device: str) -> list[torch.Tensor]:
    """Denoising with a schedule looked up by time, and a moving average of the parameters."""
    model = _UNet().to(device)
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 100), 0).to(device)
    images = torch.randn(4, 3, 12, 12).to(device)

    def loss() -> torch.Tensor:
        time, noise = torch.randint(100, (4,)).to(device), torch.randn(4, 3, 12, 12).to(device)
        share = kept[time][:, None, None, None]
        noisy = share.sqrt() * images + (1 - share).sqrt() * noise
        found = functional.mse_loss(model(noisy), noise[:, :2])
        average.update_parameters(model)
        return found

    found = train(model, loss, torch.optim.AdamW(model.parameters(), 1e-3, eps=1e-3))
    return found + [p.detach() for p in average.module.parameters()]


def graph_convolution(device: str) -> list[torch.Tensor]:
    """Messages along edges, summed by index_add, with attention over neighbours by scatter."""
    nodes, edges = 23, 71
    source, target = (torch.randint(nodes, (edges,)).to(device) for _ in range(2))
    features, labels = torch.randn(nodes, 9).to(device), torch.randint(4, (nodes,)).to(device)
    chosen = torch.rand(nodes).to(device) > 0.3
    model = nn.ModuleList([nn.Linear(9, 16), nn.Linear(16, 4), nn.Linear(32, 1)]).to(device)
    degree = (
        torch.zeros(nodes, device=device).index_add_(0, target, torch.ones(edges, device=device)).clamp(min=1)
    )

    def loss() -> torch.Tensor:
        hidden = model[0](features)
        norm = degree.rsqrt()
        messages = hidden[source] * (norm[source] * norm[target])[:, None]
        hidden = torch.zeros_like(hidden).index_add(0, target, messages).relu()
        logits = functional.leaky_relu(
            model[2](torch.cat([hidden[source], hidden[target]], -1)).squeeze(-1), 0.2
        )
        most = torch.zeros(nodes, device=device).scatter_reduce(0, target, logits, "amax", include_self=False)
        weight = (logits - most[target]).exp()
        total = torch.zeros(nodes, device=device).scatter_add(0, target, weight)
        weight = weight / (total[target] + 1e-9)
        index = target[:, None].expand(-1, 16)
        hidden = torch.zeros_like(hidden).scatter_add(0, index, hidden[source] * weight[:, None])
        return functional.nll_loss(model[1](hidden).log_softmax(-1)[chosen], labels[chosen])

    return train(model, loss, torch.optim.Adam(model.parameters(), 0.01, weight_decay=5e-4, eps=1e-3))


class _LanguageModel(nn.Module):
    def __init__(self, cell: type[nn.LSTM] | type[nn.GRU], bidirectional: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(37, 12, padding_idx=0)
        self.layers = cell(12, 16, 2, batch_first=True, bidirectional=bidirectional)
        self.out = nn.Linear(32 if bidirectional else 16, 37)

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embedding(ids), lengths, batch_first=True, enforce_sorted=False
        )
        found, _ = nn.utils.rnn.pad_packed_sequence(self.layers(packed)[0], batch_first=True)
        scores: torch.Tensor = self.out(found)
        return scores


def packed_lstm(device: str, cell: Any = nn.LSTM, bidirectional: bool = False) -> list[torch.Tensor]:
    """A language model over sentences of several lengths, with gradients clipped."""
    model = _LanguageModel(cell, bidirectional).to(device)
    lengths = torch.tensor([5, 9, 2, 7])
    ids = torch.randint(1, 37, (4, 9)).masked_fill(torch.arange(9) >= lengths[:, None], 0).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)

    def loss() -> torch.Tensor:
        if any(p.grad is not None for p in model.parameters()):
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        scores = model(ids, lengths)
        return functional.cross_entropy(scores[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)

    return train(model, loss, optimizer)


def packed_gru(device: str) -> list[torch.Tensor]:
    """The same with GRUs in both directions."""
    return packed_lstm(device, nn.GRU, True)


def seq2seq_transformer(device: str) -> list[torch.Tensor]:
    """nn.Transformer with padding, a causal mask and a schedule of the learning rate; then greedy decoding."""
    embedding, transformer, out = (
        nn.Embedding(29, 16),
        nn.Transformer(16, 4, 2, 2, 32, 0.0, batch_first=True),
        nn.Linear(16, 29),
    )
    model = nn.ModuleList([embedding, transformer, out]).to(device)
    source, target = torch.randint(1, 29, (3, 7)), torch.randint(1, 29, (3, 6))
    source[1, 5:] = 0
    source, target = source.to(device), target.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, eps=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=STEPS + 1)

    def scores(ids: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=torch.device(device))
        hidden = transformer(
            embedding(source), embedding(ids), tgt_mask=mask, src_key_padding_mask=mask.new_zeros(source.shape).masked_fill(source == 0, -1e9),
            memory_key_padding_mask=source == 0, tgt_is_causal=True,
        )  # fmt: skip
        found: torch.Tensor = out(hidden)
        return found

    def loss() -> torch.Tensor:
        found = functional.cross_entropy(
            scores(target[:, :-1]).transpose(1, 2), target[:, 1:], label_smoothing=0.1
        )
        schedule.step()
        return found

    found = train(model, loss, optimizer)
    model.eval()
    with torch.no_grad():
        ids = target[:, :1]
        for _ in range(4):
            ids = torch.cat([ids, scores(ids)[:, -1].argmax(-1, keepdim=True)], 1)
    return [*found, ids.float()]


def siamese(device: str) -> list[torch.Tensor]:
    """Triplets and pairs through the same network."""
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.PReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(54, 8)
    ).to(device)
    anchor, positive, negative = (torch.randn(5, 1, 11, 11).to(device) for _ in range(3))

    def loss() -> torch.Tensor:
        a, p, n = (functional.normalize(model(x), dim=1) for x in (anchor, positive, negative))
        margin = functional.relu(0.5 - functional.pairwise_distance(a, n)).pow(2).mean()
        cosine = functional.cosine_embedding_loss(a, p, torch.ones(5, device=device))
        return functional.triplet_margin_loss(a, p, n) + margin + cosine + torch.cdist(a, n).mean()

    return train(model, loss, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True))


def word2vec(device: str) -> list[torch.Tensor]:
    """Skip-grams with negative samples, and a bag of words."""
    centre, context, bag = nn.Embedding(53, 7), nn.Embedding(53, 7), nn.EmbeddingBag(53, 7, mode="mean")
    model = nn.ModuleList([centre, context, bag]).to(device)
    words, near, far = (torch.randint(53, shape).to(device) for shape in ((11,), (11,), (11, 4)))
    offsets = torch.tensor([0, 3, 3, 8]).to(device)

    def loss() -> torch.Tensor:
        vectors = centre(words)
        good = functional.logsigmoid((vectors * context(near)).sum(-1)).mean()
        bad = (
            functional.logsigmoid(-torch.bmm(context(far), vectors.unsqueeze(-1)).squeeze(-1)).sum(-1).mean()
        )
        return bag(words, offsets).pow(2).mean() - good - bad

    return train(model, loss, torch.optim.Adagrad(model.parameters(), 0.1))


def super_resolution(device: str) -> list[torch.Tensor]:
    """Sub-pixel convolution beside bicubic and nearest enlargement."""
    model = nn.Sequential(
        nn.Conv2d(3, 12, 5, padding=2), nn.Tanh(), nn.Conv2d(12, 12, 3, padding=1), nn.PixelShuffle(2)
    ).to(device)
    for one in (model[0], model[2]):
        start = nn.init.orthogonal_(torch.empty(one.weight.shape), nn.init.calculate_gain("relu"))
        one.weight.data.copy_(start)
    small, large = torch.rand(2, 3, 9, 7).to(device), torch.rand(2, 3, 18, 14).to(device)

    def loss() -> torch.Tensor:
        rough = functional.interpolate(small, scale_factor=2, mode="bicubic", align_corners=False)
        back = functional.pixel_unshuffle(model(small), 2).mean(1)
        return functional.l1_loss(model(small) + rough, large) + functional.smooth_l1_loss(
            back, small.mean(1)
        )

    return train(model, loss, torch.optim.Adam(model.parameters(), 1e-3, eps=1e-3))


def policy_gradient(device: str) -> list[torch.Tensor]:
    """REINFORCE with a baseline: an episode step by step, discounted returns, entropy."""
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)).to(device)

    def loss() -> torch.Tensor:
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

    def loss() -> torch.Tensor:
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

    def loss() -> torch.Tensor:
        y, path = start, [start]
        for before, after in zip(times[:-1], times[1:], strict=True):
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

    def loss() -> torch.Tensor:
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

    def closure() -> torch.Tensor:
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


def speech_ctc(device: str) -> list[torch.Tensor]:
    """Convolutions over time, a GRU and the CTC loss, in mixed batches."""
    convolution, layers, out = (
        nn.Conv1d(8, 12, 5, stride=2, padding=2),
        nn.GRU(12, 10, bidirectional=True),
        nn.Linear(20, 6),
    )
    model = nn.ModuleList([convolution, layers, out]).to(device)
    sound, lengths = torch.randn(3, 8, 31).to(device), torch.tensor([16, 13, 11])
    words, sizes = torch.randint(1, 6, (3, 5)).to(device), torch.tensor([5, 3, 4])

    def loss() -> torch.Tensor:
        hidden = functional.gelu(convolution(sound)).permute(2, 0, 1)
        scores = out(layers(hidden)[0]).log_softmax(-1)
        return functional.ctc_loss(scores, words, lengths, sizes, zero_infinity=True)

    return train(model, loss, torch.optim.Adamax(model.parameters(), 0.01, eps=1e-3))


def spatial_transformer(device: str) -> list[torch.Tensor]:
    """Images moved by affine grids that a network finds."""
    locate = nn.Sequential(
        nn.Conv2d(1, 4, 5), nn.MaxPool2d(2, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 6)
    )
    classify = nn.Sequential(
        nn.Conv2d(1, 5, 3), nn.ELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(5 * 49, 3)
    )
    nn.init.zeros_(locate[4].weight)
    locate[4].bias.data.copy_(torch.tensor([1, 0, 0, 0, 1, 0], dtype=torch.float))
    model = nn.ModuleList([locate, classify]).to(device)
    images, labels = torch.randn(4, 1, 16, 16).to(device), torch.randint(3, (4,)).to(device)

    def loss() -> torch.Tensor:
        grid = functional.affine_grid(locate(images).view(-1, 2, 3), list(images.shape), align_corners=False)
        return functional.cross_entropy(
            classify(functional.grid_sample(images, grid, align_corners=False)), labels
        )

    return train(model, loss, torch.optim.SGD(model.parameters(), 0.05))


def gaussian_process(device: str) -> list[torch.Tensor]:
    """Hyperparameters by the marginal likelihood: Cholesky factors and triangular solves."""
    x, y = torch.rand(11, 2).to(device), torch.randn(11).to(device)
    model = nn.ParameterList([nn.Parameter(torch.rand(2)), nn.Parameter(torch.tensor(0.1))]).to(device)

    def loss() -> torch.Tensor:
        kernel = torch.exp(-0.5 * (((x[:, None] - x[None]) / model[0].exp()) ** 2).sum(-1))
        factor = torch.linalg.cholesky(kernel + torch.eye(11, device=device) * functional.softplus(model[1]))
        solved = torch.cholesky_solve(y[:, None], factor).squeeze(1)
        return 0.5 * y @ solved + factor.diagonal().log().sum()

    return train(model, loss, torch.optim.Adam(model.parameters(), 0.01, eps=1e-3))


def recommender(device: str) -> list[torch.Tensor]:
    """A factorization machine over fields of categories and numbers, evaluated by its best items."""
    embedding, linear, deep = (
        nn.Embedding(41, 6),
        nn.Embedding(41, 1),
        nn.Sequential(nn.Linear(18, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)),
    )
    model = nn.ModuleList([embedding, linear, deep]).to(device)
    fields, clicked = torch.randint(41, (17, 3)).to(device), torch.randint(2, (17,)).float().to(device)

    def scores() -> torch.Tensor:
        vectors = embedding(fields)
        crossed = 0.5 * (vectors.sum(1).pow(2) - vectors.pow(2).sum(1)).sum(1)
        found: torch.Tensor = linear(fields).sum((1, 2)) + crossed + deep(vectors.flatten(1)).squeeze(1)
        return found

    def loss() -> torch.Tensor:
        weight = torch.tensor(1.5, device=device)
        return functional.binary_cross_entropy_with_logits(scores(), clicked, pos_weight=weight)

    found = train(model, loss, torch.optim.Adagrad(model.parameters(), 0.05, eps=1e-3))
    values, places = scores().detach().topk(5)
    ranked = scores().detach().sort(descending=True).values
    return [*found, values, places.float(), ranked, (torch.unique(fields, return_counts=True)[1]).float()]


def contrastive(device: str) -> list[torch.Tensor]:
    """SimCLR: two views, similarities without the diagonal, and a projection head."""
    model = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8)).to(device)
    views = torch.randn(10, 12).to(device)

    def loss() -> torch.Tensor:
        found = functional.normalize(model(views))
        likeness = found @ found.T / 0.5
        likeness = likeness.masked_fill(torch.eye(10, dtype=torch.bool, device=device), float("-inf"))
        partner = torch.arange(10, device=device).roll(5)
        return functional.cross_entropy(likeness, partner)

    return train(model, loss, torch.optim.RAdam(model.parameters(), 0.01, eps=1e-3))


def normalizing_flow(device: str) -> list[torch.Tensor]:
    """Coupling layers with masks and logarithms of determinants."""
    nets = nn.ModuleList(
        [nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(), nn.Linear(16, 8)) for _ in range(3)]
    ).to(device)
    x = torch.randn(13, 4).to(device)
    mask = torch.tensor([1.0, 0.0, 1.0, 0.0]).to(device)

    def loss() -> torch.Tensor:
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


def style_transfer(device: str) -> list[torch.Tensor]:
    """An image optimized by Gram matrices, instance norm and total variation."""
    features = nn.Sequential(
        nn.ReflectionPad2d(2),
        nn.Conv2d(3, 8, 5),
        nn.InstanceNorm2d(8, affine=True),
        nn.ReLU(),
        nn.Upsample(scale_factor=2),
        nn.ReplicationPad2d(1),
        nn.Conv2d(8, 8, 3),
    ).to(device)
    style, image = torch.rand(1, 3, 14, 11).to(device), nn.Parameter(torch.rand(1, 3, 14, 11).to(device))

    def gram(x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(2)
        return torch.einsum("bcn,bdn->bcd", flat, flat) / flat.numel()

    def loss() -> torch.Tensor:
        variation = (image.diff(dim=2).abs().sum() + image.diff(dim=3).abs().sum()) * 1e-3
        return functional.mse_loss(gram(features(image)), gram(features(style))) + variation

    return train(nn.ParameterList([image]), loss, torch.optim.Adam([image], 0.02, eps=1e-3))


def low_rank_adapters(device: str) -> list[torch.Tensor]:
    """A frozen network with parametrized weights, weight norm and spectral norm, trained with a checkpoint."""
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

    def hidden(x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = base[1](base[0](x) + 0.5 * up(down(x)))
        return found

    def loss() -> torch.Tensor:
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

    def loss() -> torch.Tensor:
        weights = dict(model.named_parameters())
        return torch.func.vmap(task, (None, 0, 0))(weights, x, y).mean()

    return train(model, loss, torch.optim.SGD(model.parameters(), 0.05))


SCRIPTS: dict[str, Script] = {
    function.__name__: function
    for function in (
        dcgan, variational_autoencoder, unet, diffusion, graph_convolution, packed_lstm, packed_gru, seq2seq_transformer,
        siamese, word2vec, super_resolution, policy_gradient, q_learning, neural_ode, mixture_density, physics_informed,
        speech_ctc, spatial_transformer, gaussian_process, recommender, contrastive, normalizing_flow, style_transfer,
        low_rank_adapters, meta_learning,
    )
}  # fmt: skip
