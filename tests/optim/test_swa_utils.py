"""Averages of networks, compared with PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError
from tests.support.operands import generator

torch = pytest.importorskip("torch", reason="averages are compared with PyTorch's")


def networks(device: str) -> tuple[Any, Any]:
    made = []
    for library in (dl, torch):
        nn = library.nn
        made.append(nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 3)))
    made[0].load_state_dict({k: dl.tensor(v.numpy()) for k, v in made[1].state_dict().items()})
    return made[0].to(device), made[1]


def change(pair: tuple[Any, Any], step: int) -> None:
    """Give both networks the same new parameters and buffers."""
    rng = generator("averages", step)
    state = {
        key: np.asarray(step) if value.dtype == torch.int64 else rng.random(value.shape, np.float32)
        for key, value in pair[1].state_dict().items()
    }
    pair[0].load_state_dict({key: dl.tensor(value) for key, value in state.items()})
    pair[1].load_state_dict({key: torch.tensor(value) for key, value in state.items()})


FUNCTIONS: dict[str, Any] = {
    "default": lambda library: {},
    "buffers": lambda library: {"use_buffers": True},
    "ema": lambda library: {"multi_avg_fn": library.get_ema_multi_avg_fn(0.8), "use_buffers": True},
    "one by one": lambda library: {"avg_fn": library.get_ema_avg_fn(0.8)},
    "swa": lambda library: {"multi_avg_fn": library.get_swa_multi_avg_fn()},
    "own": lambda library: {"avg_fn": lambda mean, p, count: (mean * count + p) / (count + 1)},
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_averages_equal_pytorch(name: str, device: str) -> None:
    pair = networks(device)
    averages = [
        library.AveragedModel(net, **FUNCTIONS[name](library))
        for library, net in zip((dl.optim.swa_utils, torch.optim.swa_utils), pair, strict=True)
    ]
    for step in range(4):
        change(pair, step)
        for average, net in zip(averages, pair, strict=True):
            average.update_parameters(net)
    found, expected = (average.state_dict() for average in averages)
    assert list(found) == list(expected)
    for key, value in expected.items():
        np.testing.assert_allclose(found[key].numpy(), value.numpy(), rtol=1e-5, atol=1e-6, err_msg=key)


def test_batch_normalization(device: str) -> None:
    mine, theirs = networks(device)
    rng = generator("batches")
    data = [rng.standard_normal((11, 5)).astype(np.float32) for _ in range(3)]
    mine.eval()
    dl.optim.swa_utils.update_bn([(dl.tensor(x), 0) for x in data], mine, device=device)
    torch.optim.swa_utils.update_bn([torch.tensor(x) for x in data], theirs)
    for key in ("1.running_mean", "1.running_var", "1.num_batches_tracked"):
        expected = theirs.state_dict()[key].numpy()
        np.testing.assert_allclose(mine.state_dict()[key].numpy(), expected, rtol=1e-4, atol=1e-6)
    assert (mine[1].momentum, mine.training) == (0.1, False)


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
@pytest.mark.parametrize(("epochs", "shape"), [(10, "cos"), (7, "linear"), (0, "cos")])
def test_rates_equal_pytorch(epochs: int, shape: str) -> None:
    rates = list[list[float]]()
    for library, zeros in ((dl.optim, dl.zeros(1)), (torch.optim, torch.zeros(1))):
        optimizer = library.SGD([zeros], lr=0.4)
        scheduler = library.swa_utils.SWALR(optimizer, 0.05, epochs, shape)
        rates.append([])
        for _ in range(15):
            rates[-1].append(scheduler.get_last_lr()[0])
            scheduler.step()
    np.testing.assert_allclose(rates[0], rates[1], rtol=1e-9)


def test_refusals() -> None:
    swa: Any = dl.optim.swa_utils
    with pytest.raises(ArgumentError, match="avg_fn or multi_avg_fn"):
        swa.AveragedModel(
            dl.nn.Linear(2, 1), avg_fn=swa.get_swa_avg_fn(), multi_avg_fn=swa.get_swa_multi_avg_fn()
        )
    with pytest.raises(ArgumentError, match="decay from 0 to 1"):
        swa.get_ema_multi_avg_fn(1.5)
    with pytest.raises(ArgumentError, match="'cos' or 'linear'"):
        swa.SWALR(dl.optim.SGD([dl.zeros(1)]), 0.1, anneal_strategy="flat")
