"""Samples from files, and the numbers that networks are given of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import dl4all as dl
from dl4all.automl.features import WORDS, columns_of
from dl4all.errors import ArgumentError, FileFormatError

FRAME = pd.DataFrame(
    {
        "age": [31.5, np.nan, 47.0, 22.0, 65.0, 38.0],
        "text number": ["1", "20", "3.5", None, "-4", "1e2"],
        "member": [True, False, False, True, True, False],
        "city": ["oslo", "rome", None, "lima", "oslo", "rome"],
        "since": ["2020-01-01", "2021-06-30T12:00", None, "2020-01-08", "1969-07-20", "2024-02-29"],
        "seen": pd.to_datetime(["2020-01-01"] * 3 + ["2020-07-01"] * 3),
        "grade": pd.Categorical(["a", "b", "a", "c", "b", "a"]),
        "constant": [7] * 6,
        "nothing": [None] * 6,
    }
)


def table(rows: int, seed: int = 0) -> pd.DataFrame:
    """A table with notes of seven words."""
    draw = np.random.default_rng(seed)
    words = [f"word{number}" for number in range(30)]
    notes = [" ".join(draw.choice(words, 7)) for _ in range(rows)]
    return pd.DataFrame({"x": draw.normal(size=rows), "note": notes, "code": [f"c{n}" for n in range(rows)]})


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_tables_come_as_they_were_written(tmp_path: Path, suffix: str) -> None:
    frame = table(20)
    frame["target"] = np.arange(20.0)
    frame.loc[3, "target"] = np.nan
    path = tmp_path / f"table{suffix}"
    frame.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    x, y = dl.automl.read(path, "target")
    assert list(x.columns) == ["x", "note", "code"]
    assert y is not None
    np.testing.assert_array_equal(y, [n for n in range(20) if n != 3])  # a row without a target says nothing
    whole, none = dl.automl.read(str(path))
    assert none is None
    assert len(whole) == 20


def test_arrays(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(5, 2, 7)), np.arange(5)
    np.savez(tmp_path / "arrays.npz", signals=x, kind=y)
    found = dl.automl.read(tmp_path / "arrays.npz", "kind")
    np.testing.assert_array_equal(found.x, x)
    assert found.y is not None
    np.testing.assert_array_equal(found.y, y)
    for target, match in ((None, "an array of samples"), ("other", "that is called 'other'")):
        with pytest.raises(ArgumentError, match=match):
            dl.automl.read(tmp_path / "arrays.npz", target)


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("RGB", 3), ("RGBA", 3)])
def test_pictures_of_folders(tmp_path: Path, mode: str, channels: int) -> None:
    draw = np.random.default_rng(0)
    for kind, side in (("cat", 9), ("dog", 11), ("emu", 11)):
        (tmp_path / kind).mkdir()
        pixels = draw.integers(0, 256, (side, side, len(mode)), np.uint8)
        Image.fromarray(pixels.squeeze(), mode).save(tmp_path / kind / "1.png")
    x, y = dl.automl.read(tmp_path)
    assert y is not None
    assert (x.shape, x.dtype, y.tolist()) == ((3, channels, 11, 11), np.uint8, ["cat", "dog", "emu"])
    whole = np.asarray(Image.open(tmp_path / "dog" / "1.png").convert(mode.rstrip("A")))
    np.testing.assert_array_equal(x[1], whole.reshape(11, 11, channels).transpose(2, 0, 1))
    flat = dl.automl.read(tmp_path / "cat", size=6)
    assert flat.x.shape == (1, channels, 6, 6)
    assert flat.y is None
    (tmp_path / "cat" / "2.png").write_bytes(b"no picture")
    with pytest.raises(FileFormatError, match=r"2.png cannot be read"):
        dl.automl.read(tmp_path)


def test_windows_of_a_table() -> None:
    frame = pd.DataFrame({"day": list("abcdef"), "load": np.arange(6.0), "open": [True, False] * 3})
    frame.loc[4, "load"] = np.nan
    x, y = dl.automl.windows(frame, "load", 3)
    assert y is not None
    assert (x.shape, y.tolist()) == ((2, 2, 3), [3.0, 5.0])  # what follows [1, 2, 3] is not known
    np.testing.assert_array_equal(x[1], np.array([[2, 3, np.nan], [1, 0, 1]]))
    every, none = dl.automl.windows(frame, None, 3)
    assert none is None
    np.testing.assert_array_equal(every[-1], np.array([[3, np.nan, 5], [0, 1, 0]]))
    np.testing.assert_array_equal(every[[0, 2]], x)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (("none.csv", "y"), ArgumentError, "there is no file"),
        (("table.txt", "y"), FileFormatError, "ends in none of"),
        (("empty.csv", "y"), FileFormatError, "cannot be read"),
        (("head.csv", "y"), FileFormatError, "no rows"),
        (("broken.npz", "y"), FileFormatError, "cannot be read"),
        (("table.csv", "z"), ArgumentError, "no column 'z'; it has 'x', 'word', 'y'"),
        (("table.csv", "y", 2), ArgumentError, "1 to 1 rows, got 2"),
        (("table.csv", "word", 1), ArgumentError, "a column of numbers, 'word' is none"),
        ((".", None, 3), ArgumentError, "window= is for tables"),
        ((".", None), ArgumentError, "no pictures"),
    ],
)
def test_files_that_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[Any, ...], error: Any, match: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (
        ("table.txt", "x"),
        ("empty.csv", ""),
        ("head.csv", "x,y\n"),
        ("broken.npz", "PK"),
        ("table.csv", "x,word,y\n1,a,2\n3,b,4\n"),
    ):
        Path(name).write_text(text)
    path, target, *window = arguments
    with pytest.raises(error, match=match):
        dl.automl.read(path, target, window=window[0] if window else None)


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (["a", "b"], True), ([True, False], True), ([0, 1, 1, 0], True), ([1.0, 2.0, 1.0, 2.0], True),
        ([0.5, 1.0, 0.5, 1.0], False), (np.arange(100), False), (np.arange(100) % 20, True),
        (np.arange(100) % 21, False), ([0, 1, 2], False),
    ],
)  # fmt: skip
def test_targets_are_classes_or_numbers(y: Any, classes: bool) -> None:
    assert dl.automl.is_classification(np.array(y)) is classes


def test_columns_are_of_their_kind() -> None:
    assert columns_of(FRAME) == {
        "numbers": ["age", "text number", "member"],
        "dates": ["since", "seen"],
        "categories": ["city", "grade"],
        "texts": [],
    }
    assert columns_of(table(200)) == {
        "numbers": ["x"],
        "dates": [],
        "categories": ["code"],
        "texts": ["note"],
    }


@pytest.mark.parametrize("scaler", ["standard", "robust", "quantile"])
def test_features_of_a_table(scaler: str) -> None:
    features = dl.automl.table_features(FRAME, scaler)
    x = features.fit_transform(FRAME)
    # three numbers and two signs that one is missing, seven of each date, four cities and three grades
    assert (x.shape, x.dtype) == ((6, 5 + 14 + 7), np.float32)
    assert np.isfinite(x).all()
    assert np.abs(x).max() < 5
    order = FRAME["age"].rank()
    assert (pd.Series(x[:, 0])[order.notna()].rank() == order.dropna()).all()
    np.testing.assert_array_equal(np.unique(x[:, 3]).size, 2)  # where an age is missing
    np.testing.assert_array_equal(x[:, 19:].sum(1), 2)
    other = FRAME.assign(city="paris", age=1e9, seen=pd.NaT, grade=None, since="soon")
    strange = features.transform(other)
    assert np.isfinite(strange).all()
    np.testing.assert_array_equal(strange[:, 19:23], 0)  # a city that was never seen
    np.testing.assert_array_equal(features.transform(FRAME.iloc[2:3]), x[2:3])


def test_words_are_hashed() -> None:
    frame = table(200)
    features = dl.automl.table_features(frame)
    x = features.fit_transform(frame)
    assert x.shape == (200, 1 + 64 + WORDS)  # rare codes share a place
    notes = features.transform(frame.assign(note="word1 word2"))[:, -WORDS:]
    assert (notes == notes[0]).all()
    assert (notes[0] > 0).sum() == 2


def test_scales_of_channels() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal([[3.0], [-1.0], [7.0]], [[2.0], [5.0], [0.0]], (50, 3, 20))
    x[4, 1, :5] = np.nan
    scaler = dl.automl.ChannelScaler().fit(x)
    found = scaler.transform(x)
    np.testing.assert_allclose(found.mean((0, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(found[:, :2].std((0, 2)), 1, atol=0.01)
    np.testing.assert_array_equal(found[:, 2], 0)
    np.testing.assert_array_equal(found[4, 1, :5], 0)
    pictures = draw.integers(0, 256, (5, 1, 3, 4)).astype(np.uint8)
    np.testing.assert_allclose(
        dl.automl.ChannelScaler().fit_transform(pictures), (pictures - pictures.mean()) / pictures.std(),
        rtol=1e-4, atol=1e-5,
    )  # fmt: skip


def test_features_of_nothing() -> None:
    with pytest.raises(ArgumentError, match="no column has two different values"):
        dl.automl.table_features(FRAME[["constant", "nothing"]])
    with pytest.raises(ArgumentError, match="one of standard, robust, quantile, got 'log'"):
        dl.automl.table_features(FRAME, "log")


def test_targets_and_back() -> None:
    classes = dl.automl.ClassTargets()
    assert classes.fit(np.array(["b", "c", "a", "b"])).tolist() == [1, 2, 0, 1]
    logits = np.random.default_rng(0).normal(size=(4, 3)) * 40
    probabilities = classes.predictions(logits)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert classes.decoded(probabilities).tolist() == [list("abc")[n] for n in logits.argmax(1)]
    assert classes.decoded(np.array([2, 0])).tolist() == ["c", "a"]
    expected = -np.log(np.maximum(probabilities[np.arange(4), [0, 1, 2, 1]], 1e-7)).mean()
    assert classes.loss(probabilities, np.array([0, 1, 2, 1])) == pytest.approx(expected)
    assert classes.score(["a", "b"], np.array(["a", "c"])) == 0.5
    y = np.random.default_rng(1).normal(5, 3, (7, 2))
    numbers = dl.automl.NumberTargets()
    scaled = numbers.fit(y)
    np.testing.assert_allclose(scaled.std(0), 1, rtol=1e-5)
    np.testing.assert_allclose(numbers.decoded(scaled), y, rtol=1e-5)
    assert numbers.loss(scaled + 2, scaled) == pytest.approx(4, rel=1e-5)
    assert numbers.outputs(scaled) == 2
