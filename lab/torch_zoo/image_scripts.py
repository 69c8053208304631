"""Small training scripts about images, for ``torch_models.py``: a device in, losses and parameters out.

All random numbers are drawn on the CPU, so that every device computes the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributions import Bernoulli, Normal, kl_divergence
from torch.nn import functional

from lab.torch_zoo.cases import STEPS, Script, train


def dcgan(device: str) -> list[torch.Tensor]:
    """Two networks against each other, of transposed convolutions and of strided ones."""
    generator = nn.Sequential(
        nn.ConvTranspose2d(11, 16, 4, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(True),
        nn.ConvTranspose2d(16, 8, 4, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(True),
        nn.ConvTranspose2d(8, 3, 4, 2, 1, bias=False),
        nn.Tanh(),
    ).to(device)
    critic = nn.Sequential(
        nn.Conv2d(3, 8, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(8, 16, 4, 2, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(16, 1, 4, bias=False),
        nn.Sigmoid(),
    ).to(device)
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

    def loss() -> Any:
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

    def forward(self, x: torch.Tensor) -> Any:
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

    def loss() -> Any:
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

    def loss() -> Any:
        time, noise = torch.randint(100, (4,)).to(device), torch.randn(4, 3, 12, 12).to(device)
        share = kept[time][:, None, None, None]
        noisy = share.sqrt() * images + (1 - share).sqrt() * noise
        found = functional.mse_loss(model(noisy), noise[:, :2])
        average.update_parameters(model)
        return found

    found = train(model, loss, torch.optim.AdamW(model.parameters(), 1e-3, eps=1e-3))
    return found + [p.detach() for p in average.module.parameters()]


def siamese(device: str) -> list[torch.Tensor]:
    """Triplets and pairs through the same network."""
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.PReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(54, 8)
    ).to(device)
    anchor, positive, negative = (torch.randn(5, 1, 11, 11).to(device) for _ in range(3))

    def loss() -> Any:
        a, p, n = (functional.normalize(model(x), dim=1) for x in (anchor, positive, negative))
        margin = functional.relu(0.5 - functional.pairwise_distance(a, n)).pow(2).mean()
        cosine = functional.cosine_embedding_loss(a, p, torch.ones(5, device=device))
        return functional.triplet_margin_loss(a, p, n) + margin + cosine + torch.cdist(a, n).mean()

    return train(model, loss, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True))


def super_resolution(device: str) -> list[torch.Tensor]:
    """Sub-pixel convolution beside bicubic and nearest enlargement."""
    model = nn.Sequential(
        nn.Conv2d(3, 12, 5, padding=2), nn.Tanh(), nn.Conv2d(12, 12, 3, padding=1), nn.PixelShuffle(2)
    ).to(device)
    layers: list[Any] = [model[0], model[2]]
    for one in layers:
        start = nn.init.orthogonal_(torch.empty(one.weight.shape), nn.init.calculate_gain("relu"))
        one.weight.data.copy_(start)
    small, large = torch.rand(2, 3, 9, 7).to(device), torch.rand(2, 3, 18, 14).to(device)

    def loss() -> Any:
        rough = functional.interpolate(small, scale_factor=2, mode="bicubic", align_corners=False)
        back = functional.pixel_unshuffle(model(small), 2).mean(1)
        return functional.l1_loss(model(small) + rough, large) + functional.smooth_l1_loss(
            back, small.mean(1)
        )

    return train(model, loss, torch.optim.Adam(model.parameters(), 1e-3, eps=1e-3))


def spatial_transformer(device: str) -> list[torch.Tensor]:
    """Images moved by affine grids that a network finds."""
    locate = nn.Sequential(
        nn.Conv2d(1, 4, 5), nn.MaxPool2d(2, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 6)
    )
    classify = nn.Sequential(
        nn.Conv2d(1, 5, 3), nn.ELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(5 * 49, 3)
    )
    last: Any = locate[4]
    nn.init.zeros_(last.weight)
    last.bias.data.copy_(torch.tensor([1, 0, 0, 0, 1, 0], dtype=torch.float))
    model = nn.ModuleList([locate, classify]).to(device)
    images, labels = torch.randn(4, 1, 16, 16).to(device), torch.randint(3, (4,)).to(device)

    def loss() -> Any:
        grid = functional.affine_grid(locate(images).view(-1, 2, 3), list(images.shape), align_corners=False)
        return functional.cross_entropy(
            classify(functional.grid_sample(images, grid, align_corners=False)), labels
        )

    return train(model, loss, torch.optim.SGD(model.parameters(), 0.05))


def contrastive(device: str) -> list[torch.Tensor]:
    """SimCLR: two views, similarities without the diagonal, and a projection head."""
    model = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8)).to(device)
    views = torch.randn(10, 12).to(device)

    def loss() -> Any:
        found = functional.normalize(model(views))
        likeness = found @ found.T / 0.5
        likeness = likeness.masked_fill(torch.eye(10, dtype=torch.bool, device=device), float("-inf"))
        partner = torch.arange(10, device=device).roll(5)
        return functional.cross_entropy(likeness, partner)

    return train(model, loss, torch.optim.RAdam(model.parameters(), 0.01, eps=1e-3))


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

    def gram(x: torch.Tensor) -> Any:
        flat = x.flatten(2)
        return torch.einsum("bcn,bdn->bcd", flat, flat) / flat.numel()

    def loss() -> Any:
        variation = (image.diff(dim=2).abs().sum() + image.diff(dim=3).abs().sum()) * 1e-3
        return functional.mse_loss(gram(features(image)), gram(features(style))) + variation

    return train(nn.ParameterList([image]), loss, torch.optim.Adam([image], 0.02, eps=1e-3))


IMAGE_SCRIPTS: dict[str, Script] = {
    function.__name__: function
    for function in (
        dcgan,
        variational_autoencoder,
        unet,
        diffusion,
        siamese,
        super_resolution,
        spatial_transformer,
        contrastive,
        style_transfer,
    )
}
