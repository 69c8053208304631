"""Networks without pruned channels and heads compute what the pruned ones do, and have fewer parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all import nn
from dl4all.errors import ArgumentError
from tests.support.subcases import FULL

prune = dl.nn.utils.prune


def size(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def settled(net: nn.Module, x: dl.Tensor) -> Any:
    """In evaluation mode, after batch norms have seen something and learned something."""
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            with dl.no_grad():
                part.weight.copy_(dl.rand(part.num_features, device=x.device) + 0.5)
                part.bias.copy_(dl.randn(part.num_features, device=x.device))
    with dl.no_grad():
        net.train()(x)
    return net.eval()


def pruned(net: nn.Module, amount: float = 0.4, dim: int = 0, last: str = "") -> nn.Module:
    """The rows, or the columns, of smallest norm of all layers but the last."""
    for name, part in net.named_modules():
        if (
            isinstance(part, (nn.Conv1d, nn.Conv2d, nn.Linear))
            and name != last
            and part.weight.shape[dim] > 3
        ):
            prune.ln_structured(part, "weight", amount, 2, dim)
    return net


def compared(net: nn.Module, x: dl.Tensor) -> tuple[Any, float]:
    """The compacted network, and its share of the parameters; results are equal for other inputs, too."""
    before, training = size(net), net.training
    small = prune.compact(net, x)
    assert (net.training, small.training, size(net)) == (training, training, before)
    assert not prune.is_pruned(small)
    other = dl.randn(3, *x.shape[1:], device=x.device) if x.dtype == np.float32 else x.flip(0)
    net.eval()
    with dl.no_grad():
        wanted, found = net(other).numpy(), small.eval()(other).numpy()
    net.train(training)
    small.train(training)
    assert np.abs(wanted).max() > 0
    np.testing.assert_allclose(found, wanted, 0, 2e-5 * np.abs(wanted).max())
    return small, size(small) / before


def test_linear_layers_and_what_biases_leave(device: str) -> None:
    dl.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(6, 20), nn.Sigmoid(), nn.Linear(20, 16, bias=False), nn.Tanh(), nn.Linear(16, 3, bias=False)
    ).to(device)
    small, share = compared(pruned(net, last="4"), dl.randn(4, 6, device=device))
    assert [(part.in_features, part.out_features) for part in small if isinstance(part, nn.Linear)] == [
        (6, 12), (12, 10), (10, 3),
    ]  # fmt: skip
    assert small[2].bias is not None  # a half, times the weights of what is not there
    assert small[4].bias is None
    assert share < 0.5


def test_convolutions_to_a_linear_layer(device: str) -> None:
    dl.manual_seed(1)
    net = nn.Sequential(
        nn.Conv2d(3, 10, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(10, 12, 3), nn.PReLU(12), nn.Flatten(),
        nn.Linear(12 * 4, 5),
    ).to(device)  # fmt: skip
    small, _ = compared(pruned(net, 0.5, last="6"), dl.randn(2, 3, 10, 10, device=device))
    assert (small[3].in_channels, small[3].out_channels, small[6].in_features) == (5, 6, 24)
    assert small[4].num_parameters == 6


def test_norms_leave_constants_that_padded_convolutions_do_not_take() -> None:
    dl.manual_seed(2)
    x = dl.randn(2, 3, 8, 8)
    net = settled(
        nn.Sequential(
            nn.Conv2d(3, 10, 3, padding=1), nn.BatchNorm2d(10), nn.Tanh(),
            nn.Conv2d(10, 8, 3, padding="same"), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Linear(8, 3),
        ), x,
    )  # fmt: skip
    pruned(net, last="8")
    small, _ = compared(net, x)
    assert small[0].out_channels == 10
    assert small[3].out_channels == 5  # in front of a linear layer a constant is taken
    prune.extend_to_norms(net, x)
    small, _ = compared(net, x)
    assert (small[0].out_channels, small[1].num_features, small[3].in_channels) == (6, 6, 6)
    trained = small.train()
    dl.nn.functional.cross_entropy(trained(x), dl.tensor([0, 2])).backward()
    assert all(p.grad is not None for p in trained.parameters())


class Residual(nn.Module):
    """Two ways that are added, of which only what both have pruned can go."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv1d(4, 9, 3, padding=1), nn.Conv1d(4, 9, 1)
        self.join = nn.Conv1d(13, 6, 1)
        self.out = nn.Linear(6, 2)

    def forward(self, x: Any) -> Any:
        added = (self.a(x) + self.b(x)).relu()
        return self.out(self.join(dl.cat([x, added], 1)).relu().mean(2))


def test_what_is_added_goes_where_both_are_pruned() -> None:
    dl.manual_seed(3)
    net = Residual()
    for layer, rows in ((net.a, (0, 4, 5)), (net.b, (4, 5, 8))):
        mask = np.ones(layer.weight.shape, np.float32)
        mask[list(rows)] = 0
        prune.custom_from_mask(layer, "weight", dl.tensor(mask))
    small, _ = compared(net, dl.randn(2, 4, 7))
    assert (small.a.out_channels, small.b.out_channels, small.join.in_channels) == (7, 7, 11)


def test_channels_that_nothing_uses_go() -> None:
    dl.manual_seed(4)
    x = dl.randn(2, 3, 8, 8)
    net = settled(
        nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.ReLU(),
            nn.Conv2d(8, 6, 1), nn.Flatten(), nn.Linear(6 * 16, 3),
        ), x,
    )  # fmt: skip
    prune.ln_structured(net[5], "weight", 3, 2, 1)
    small, _ = compared(net, x)
    assert (small[0].out_channels, small[1].num_features, small[3].groups, small[5].in_channels) == (5,) * 4
    with dl.no_grad():
        net[1].weight[2] = 0.0  # as network slimming does
        net[3].weight[6] = 0.0
    left = size(compared(net, x)[0])
    assert left <= size(small)


class Words(nn.Module):
    """A transformer over words, with a table of positions as a parameter of its own."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.embed, self.positions = nn.Embedding(20, 12), nn.Parameter(dl.randn(5, 12))
        layer = nn.TransformerEncoderLayer(12, 3, 16, batch_first=True, **options)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(12, 4)

    def forward(self, ids: Any) -> Any:
        return self.head(self.encoder(self.embed(ids) + self.positions)).mean(1)


@pytest.mark.parametrize(
    "options", [{}, {"norm_first": True, "activation": "gelu"}, {"bias": False}], ids=str
)
def test_heads_and_inner_features_of_transformers(options: dict[str, Any]) -> None:
    dl.manual_seed(5)
    net: Any = Words(**options).eval()
    for number, part in enumerate(net.encoder.layers):
        prune.ln_structured(part.linear1, "weight", 6, 2, 0)
        mask = np.ones((12, 12), np.float32)
        mask[:, 4 * number : 4 * number + 4] = 0
        prune.custom_from_mask(part.self_attn.out_proj, "weight", dl.tensor(mask))
    small, _ = compared(net, dl.randint(0, 20, (4, 5)))
    for part in small.encoder.layers:
        assert (part.linear1.out_features, part.linear2.in_features) == (10, 10)
        assert (part.self_attn.num_heads, part.self_attn.in_proj_weight.shape) == (2, (24, 12))
    assert small.head.in_features == 12  # the norms see all of them


def test_heads_of_other_features_and_with_keys_of_their_own() -> None:
    dl.manual_seed(6)

    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 4, kdim=5, vdim=3, add_bias_kv=True, add_zero_attn=True)

        def forward(self, query: Any, key: Any, value: Any) -> Any:
            return self.attention(query, key, value)[0]

    net: Any = Attends().eval()
    x = (dl.randn(3, 2, 8), dl.randn(4, 2, 5), dl.randn(4, 2, 3))
    with dl.no_grad():
        net.attention.out_proj.weight[:, 2:6] = 0.0
    small = prune.compact(net, x)
    assert small.attention.num_heads == 2
    np.testing.assert_allclose(small(*x).numpy(), net(*x).numpy(), rtol=0, atol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_networks_of_the_library(name: str) -> None:
    dl.manual_seed(7)
    x = dl.randn(2, 3, 32, 32)
    net = settled(getattr(dl.models, name)(num_classes=10), x)
    for part in net.modules():
        if isinstance(part, nn.Conv2d) and part.groups == 1:
            prune.ln_structured(part, "weight", 0.5, 2, 0)
    prune.extend_to_norms(net, x)
    _, share = compared(net, x)
    assert share < 0.7


def random_network(draw: np.random.Generator) -> nn.Module:
    """Blocks of convolutions that branch, are added and joined, with norms here and there."""

    class Block(nn.Module):
        def __init__(self, given: int, made: int) -> None:
            super().__init__()
            self.kind = draw.choice(["plain", "added", "joined", "depthwise"])
            self.first = nn.Conv2d(given, made, 3, padding=int(draw.integers(2)), bias=bool(draw.integers(2)))
            self.second = nn.Conv2d(given, made, 3, padding=self.first.padding)
            self.depthwise = nn.Conv2d(made, made, 3, padding=1, groups=made)
            self.norm = nn.BatchNorm2d(made) if draw.integers(2) else nn.Identity()
            self.act = [nn.ReLU(), nn.GELU(), nn.Sigmoid(), nn.PReLU(made), nn.Hardtanh()][draw.integers(5)]
            self.made = made * (2 if self.kind == "joined" else 1)

        def forward(self, x: Any) -> Any:
            y = self.norm(self.first(x))
            if self.kind == "added":
                y = y + self.second(x)
            if self.kind == "joined":
                y = dl.cat([self.second(x), y], 1)
                return y.relu()
            if self.kind == "depthwise":
                y = self.depthwise(y)
            return self.act(y)

    blocks, channels = [], 2
    for _ in range(draw.integers(1, 4)):
        blocks.append(Block(channels, int(draw.integers(2, 8))))
        channels = blocks[-1].made
    pool = nn.AdaptiveAvgPool2d(int(draw.integers(1, 3)))
    features = channels * pool.output_size**2 if isinstance(pool.output_size, int) else channels
    return nn.Sequential(*blocks, pool, nn.Flatten(), nn.Linear(features, 5), nn.ReLU(), nn.Linear(5, 3))


def test_random_networks_with_random_masks() -> None:
    smaller = 0
    for seed in range(400 if FULL else 40):
        draw = np.random.default_rng(seed)
        dl.manual_seed(seed)
        x = dl.randn(2, 2, 11, 11)
        net = settled(random_network(draw), x)
        for part in net.modules():
            if isinstance(part, (nn.Conv2d, nn.Linear)) and draw.integers(4):
                dim = int(draw.integers(2)) if part.weight.shape[1] > 1 else 0
                prune.random_structured(part, "weight", float(draw.uniform(0, 0.8)), dim)
        if draw.integers(2):
            prune.extend_to_norms(net, x)
        smaller += compared(net, x)[1] < 1
    assert smaller > seed / 2


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 3, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.lstm(x.unsqueeze(1))[0]


def quantised(layer: nn.Linear) -> Any:
    dl.quantization.quantize_(layer, dl.quantization.Int8WeightOnlyConfig())
    return layer


def test_what_cannot_go_stays() -> None:
    dl.manual_seed(8)
    shared = nn.Linear(4, 4)

    def between(layer: nn.Module) -> nn.Module:
        unflatten = nn.Unflatten(1, (4, 1))
        return nn.Sequential(nn.Linear(4, 4), unflatten, layer, nn.Flatten(), nn.Linear(6, 2))

    cases: dict[str, Callable[[], nn.Module]] = {
        "all rows": lambda: nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2)),
        "shared": lambda: nn.Sequential(nn.Linear(4, 4), shared, shared, nn.Linear(4, 2)),
        "groups": lambda: between(nn.Conv1d(4, 6, 1, groups=2)),
        "transposed": lambda: between(nn.ConvTranspose1d(4, 6, 1)),
        "recurrent": lambda: nn.Sequential(nn.Linear(4, 4), Recurrent()),
        "quantised": lambda: nn.Sequential(nn.Linear(4, 4), quantised(nn.Linear(4, 6)), nn.Linear(6, 2)),
        "layer norm": lambda: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 2)),
    }
    sizes = {}
    for name, make in cases.items():
        net: Any = make()
        prune.ln_structured(net[0], "weight", 1.0 if name == "all rows" else 2, 2, 0)
        sizes[name] = compared(net, dl.randn(3, 4))[0][0].out_features
    assert sizes == {**dict.fromkeys(cases, 4), "all rows": 1, "layer norm": 6}


class Skips(nn.Module):
    """A way around a layer, which leads the inputs to the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.b(self.a(x) + x)


def test_channels_that_nothing_uses_stay_where_the_inputs_are_added() -> None:
    dl.manual_seed(12)
    net = Skips()
    with dl.no_grad():
        net.b.weight[:, 2] = 0.0
    small, share = compared(net, dl.randn(3, 4))
    assert (small.a.out_features, share) == (4, 1)


class Sized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x: Any) -> Any:
        return self.b(self.a(x).reshape(-1, 6))


class Hides(nn.Module):
    """An op that makes numbers of nan, before channels are added that were pruned."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 6), nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x: Any) -> Any:
        y = self.b(x)
        return self.c(self.a(x) + dl.where(y > 0, y, 0.0))


def test_errors() -> None:
    dl.manual_seed(9)
    net = Sized()
    prune.ln_structured(net.a, "weight", 2, 2, 0)
    with pytest.raises(ArgumentError, match=r"\[compact\] .* Sized fails: .*have a size in it"):
        prune.compact(net, dl.randn(3, 4))
    assert net.a.weight.shape == (6, 4)
    hides = Hides()
    prune.ln_structured(hides.a, "weight", 2, 2, 0)
    with pytest.raises(ArgumentError, match=r"\[compact\] without its pruned channels Hides"):
        prune.compact(hides, dl.randn(3, 4))
    with pytest.raises(ArgumentError, match=r"\[semi_structured\] expected 0 <= n <= m .* got 5, 4 and 8"):
        prune.semi_structured(nn.Linear(8, 2), "weight", 5, 4)
    with pytest.raises(ArgumentError, match="groups of m, got 2, 3 and 8"):
        prune.semi_structured(nn.Linear(8, 2), "weight", 2, 3)
    with pytest.raises(ArgumentError, match=r"0 <= initial <= final <= 1, .* got 0.5, 0.2, 3 and 3.0"):
        prune.SparsityScheduler([], 0.2, 3, initial=0.5)


def test_two_of_four_are_the_largest(device: str) -> None:
    dl.manual_seed(10)
    layer: Any = nn.Conv2d(8, 3, 3).to(device)
    weight = layer.weight.detach().numpy().copy()
    prune.semi_structured(layer, "weight")
    kept = layer.weight.detach().numpy()
    groups, wanted = kept.reshape(3, 2, 4, 9), weight.reshape(3, 2, 4, 9)
    assert ((groups != 0).sum(2) == 2).all()
    np.testing.assert_array_equal(np.sort(np.abs(groups), 2)[:, :, 2:], np.sort(np.abs(wanted), 2)[:, :, 2:])
    prune.semi_structured(layer, "weight", 1)
    again = layer.weight.detach().numpy()
    assert ((again.reshape(3, 2, 4, 9) != 0).sum(2) == 1).all()


def test_a_schedule_ends_at_its_share_by_slices_and_goes_on() -> None:
    dl.manual_seed(11)
    layer = nn.Linear(5, 40)
    options: dict[str, Any] = {"method": prune.ln_structured, "n": 2, "dim": 0}
    schedule = prune.SparsityScheduler([(layer, "weight")], 0.75, 10, initial=0.1, **options)
    shares = [prune.sparsity(layer, "weight")]
    for _ in range(4):
        schedule.step()
        shares.append(prune.sparsity(layer, "weight"))
    going = prune.SparsityScheduler([(layer, "weight")], 0.75, 10, initial=0.1, **options)
    going.load_state_dict(schedule.state_dict())
    for _ in range(8):
        going.step()
        shares.append(prune.sparsity(layer, "weight"))
    assert shares[0] == pytest.approx(0.1)
    assert shares[-3:] == pytest.approx([0.75] * 3)
    assert np.all(np.diff(shares) >= 0)
    growth = np.diff(shares[:11])
    assert growth[:3].sum() > 2 * growth[5:8].sum()
