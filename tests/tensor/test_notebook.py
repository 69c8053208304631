"""Tensors and networks as notebooks show them."""

from __future__ import annotations

import base64
import io
import sys

import numpy as np
import pytest

import dl4all as dl

Image = pytest.importorskip("PIL.Image")
RNG = np.random.default_rng(3)


def pictures(shown: str) -> list[np.ndarray]:  # type: ignore[type-arg]
    sources = [part.partition('"')[0] for part in shown.split("base64,")[1:]]
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(source)))) for source in sources]


@pytest.mark.parametrize("shape", [(3, 9, 11), (1, 8, 13), (2, 3, 8, 8), (2, 1, 10, 8)])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_pictures_are_shown(shape: tuple[int, ...], dtype: str, device: str) -> None:
    pixels = RNG.integers(0, 256, shape).astype(np.uint8)
    x = dl.tensor(pixels if dtype == "uint8" else pixels.astype(np.float32) / 255, device=device)
    found = pictures(x._repr_html_())
    expected = np.moveaxis(pixels.reshape(-1, *shape[-3:]), 1, -1)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.reshape(other.shape), other)


@pytest.mark.parametrize(
    "x", [dl.ones(3, device="cpu"), dl.ones(3, 8, 8, device="cpu") * 2, dl.ones(2, 8, 8, device="cpu"),
          dl.ones(3, 2, 8, device="cpu"), dl.ones(3, 8, 8, dtype="int64", device="cpu")]
)  # fmt: skip
def test_other_tensors_are_text(x: dl.Tensor) -> None:
    assert pictures(x._repr_html_()) == []
    assert x._repr_html_().startswith("<pre>tensor(")


def test_without_pillow_there_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert dl.rand(3, 8, 8)._repr_html_().startswith("<pre>")


def test_modules_are_a_tree() -> None:
    class Odd(dl.nn.Module):
        def extra_repr(self) -> str:
            return "a<b"

    shown = dl.nn.Sequential(dl.nn.Sequential(dl.nn.ReLU()), Odd())._repr_html_()
    assert shown.count("<details") == 2
    assert shown.count("<li>") == 3
    assert "Odd(a&lt;b)" in shown
