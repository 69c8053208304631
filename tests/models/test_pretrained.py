"""The trained network that comes along: it is the file's own, and it reads digits that it has not seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import FileFormatError
from dl4all.models import pretrained


def test_it_reads_what_it_has_not_seen(device: str) -> None:
    pytest.importorskip("sklearn")
    _, held_out = dl.data.random_split(dl.data.digits(32), (0.8, 0.2))
    images, labels = next(iter(dl.data.DataLoader(held_out, 359, device=device)))
    net = dl.models.resnet18_digits().to(device)
    with dl.no_grad():
        right = net(images).argmax(1).numpy() == labels.numpy()
    assert right.shape == (359,)
    assert right.mean() >= 0.98


def test_the_file_is_small_and_in_half_precision() -> None:
    weights = dl.io.load_weights(pretrained.FILE)
    assert pretrained.FILE.stat().st_size < 3e6
    assert {str(array.dtype) for array in weights.values()} == {"float16", "int64"}
    net = dl.models.resnet18_digits()
    assert not net.training
    for name, tensor in net.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), weights[name].astype(tensor.dtype))


def test_another_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytearray(pretrained.FILE.read_bytes())
    content[-1] ^= 1
    changed = tmp_path / "weights.safetensors"
    changed.write_bytes(content)
    monkeypatch.setattr(pretrained, "FILE", changed)
    with pytest.raises(
        FileFormatError, match=r"weights.safetensors: damaged .* expected [0-9a-f]{64}; install"
    ):
        dl.models.resnet18_digits()
    monkeypatch.setattr(pretrained, "FILE", tmp_path / "none")
    with pytest.raises(FileFormatError, match=r"none: cannot be read: No such file .*; install dl4all again"):
        dl.models.resnet18_digits()
