"""Programs that once computed something else on the device than on the CPU, or failed there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from dl4all.pytorch.device.compiler import backend  # noqa: E402

F = torch.nn.functional

LAYERS: dict[str, Callable[[Any], Any]] = {
    "convolution": lambda x: F.conv2d(x, torch.full((3, 4, 1, 1), 0.5, device=x.device)),
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True),
    "cat": lambda x: torch.cat([x, -x], 1),
    "flip": lambda x: x.flip(-1),
}


@pytest.mark.parametrize("name", LAYERS)
def test_views_of_channels_last_in_graphs(name: str) -> None:
    """Dynamo turns reshape into a view where PyTorch's own results have their channels last."""

    def model(x: Any) -> Any:
        y = LAYERS[name](x)
        return y.permute(0, 2, 3, 1).reshape(-1, y.shape[1]) * 2, y.transpose(2, 3)

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    generator = torch.Generator().manual_seed(len(name))
    for _ in range(5):
        x = torch.randn(2, 4, 5, 7, generator=generator).contiguous(memory_format=torch.channels_last)
        here = x.to("dlall")
        assert here.stride() == x.stride()
        for own, other in zip(compiled(here), model(x), strict=True):
            torch.testing.assert_close(own.cpu(), other, rtol=1e-5, atol=1e-5)


def test_results_of_the_default_dtype(place: str) -> None:
    x = torch.arange(1, 6)
    calls: tuple[Callable[[Any], Any], ...] = (lambda i: i * 1.5, lambda i: i / 2, torch.sqrt, torch.sigmoid)
    try:
        for dtype in (torch.float32, torch.float64, torch.float16, torch.float32):
            torch.set_default_dtype(dtype)
            for _ in range(3):  # later calls follow launch plans
                for call in calls:
                    torch.testing.assert_close(call(x.to(place)).cpu(), call(x))
    finally:
        torch.set_default_dtype(torch.float32)


def test_index_add_to_no_elements(place: str) -> None:
    """PyTorch looks at no index then."""
    for device in ("cpu", place):
        x = torch.zeros(3, 0, 2, device=device)
        index, source = torch.tensor([0], device=device), torch.randn(3, 1, 2, device=device)
        assert x.index_add(1, index, source).shape == (3, 0, 2)
    torch.dlall.synchronize(place)
