"""What a summary says of a network."""

from __future__ import annotations

import pytest

import dl4all as dl
from dl4all.nn import Conv2d, Linear, Module


class Net(Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = Conv2d(2, 4, 3, padding=1)
        self.fc = Linear(4, 3)
        assert self.fc.bias is not None
        self.fc.bias.requires_grad_(False)

    def forward(self, x: dl.Tensor) -> dl.Tensor:
        y: dl.Tensor = self.fc(self.conv(x).mean((2, 3)))
        return y


def test_summary(device: str) -> None:
    net = Net().to(device)
    x = dl.randn(5, 2, 7, 6, device=device)
    found = dl.nn.summary(net, x)
    conv, fc = 2 * (5 * 4 * 7 * 6) * (2 * 9), 2 * 5 * 4 * 3
    assert [tuple(row) for row in found.rows] == [
        ("", "Net", "(5, 3)", 2 * 4 * 9 + 4 + 15, conv + fc),
        ("conv", "Conv2d", "(5, 4, 7, 6)", 2 * 4 * 9 + 4, conv),
        ("fc", "Linear", "(5, 3)", 15, fc),
    ]
    assert (found.parameters, found.trainable, found.flops) == (91, 88, conv + fc)
    assert net.summary(x) == found
    text = str(found)
    assert "91 parameters, 88 of them trained; 0.030 MFLOP" in text
    assert "Conv2d" in text
    assert net.training
    assert all(parameter.grad is None for parameter in net.parameters())


def test_summary_leaves_no_hooks_behind_when_the_network_fails() -> None:
    net = Net().to("cpu")
    with pytest.raises(dl.errors.ShapeError, match="in layer conv"):
        dl.nn.summary(net, dl.zeros(1, 3, 5, 5, device="cpu"))
    assert net.training
    assert net(dl.ones(1, 2, 5, 5, device="cpu")).shape == (1, 3)
