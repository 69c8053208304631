"""``dl4all automl``: tables, series and pictures, and what can be wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from PIL import Image

import dl4all as dl
from dl4all.automl.networks import NetworkSpace
from dl4all.cli import cli
from dl4all.errors import ArgumentError


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """First networks that are trained in no time."""
    steady = {"steps": 100, "lr": 1e-2, "batch": 32}
    first: dict[int, dict[str, Any]] = {
        1: {"depth": 0},
        2: {"family": "convolutional", "stages": 1},
        3: {"stages": 1, "flip": False},
    }
    monkeypatch.setattr(NetworkSpace, "first", lambda s: [{**steady, **first[len(s.shape)]}])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(60, 2))
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "price": x @ [2.0, -3.0]})
    frame["kind"] = np.where(frame.price > 0, "dear", "cheap")
    frame.to_csv(tmp_path / "table.csv", index=False)
    frame.drop(columns=["kind"]).head(7).to_csv(tmp_path / "new.csv", index=False)
    return tmp_path / "table.csv"


def invoke(folder: Path, *arguments: Any) -> Result:
    steady = ["--trials", 1, "--device", "cpu", "--folder", folder]
    return CliRunner().invoke(
        cli, ["automl", *map(str, [*arguments, *steady])], catch_exceptions=False, env={"COLUMNS": "140"}
    )


def test_classes_of_a_table(table: Path, tmp_path: Path) -> None:
    folder = tmp_path / "found"
    done = invoke(folder, table, "--target", "kind", "--predict", tmp_path / "new.csv")
    assert done.exit_code == 0
    assert "score is accuracy" in done.stdout
    assert "trial 0: complete" in done.stderr
    for name in ("report.html", "leaderboard.csv", "estimator.joblib", "winner/train.py"):
        assert (folder / name).stat().st_size
    predicted = pd.read_csv(folder / "predictions.csv")
    assert list(predicted.columns) == ["kind", "probability of cheap", "probability of dear"]
    new = pd.read_csv(tmp_path / "new.csv")
    assert predicted["kind"].tolist() == dl.automl.load(folder).predict(new).tolist()
    assert (predicted["kind"] == np.where(new.price > 0, "dear", "cheap")).mean() > 0.8


def test_numbers_as_json(table: Path, tmp_path: Path) -> None:
    done = invoke(tmp_path / "found", table, "--target", "price", "--json")
    report = json.loads(done.stdout)
    assert report["metric"] == "R²"
    assert report["leaderboard"]["score"].keys() == {"ensemble", "trial 0"}
    assert done.stderr == ""
    with pytest.raises(ArgumentError, match="resume=True"):
        invoke(tmp_path / "found", table, "--target", "price")
    assert invoke(tmp_path / "found", table, "--target", "price", "--resume").exit_code == 0


def test_series_of_a_table(tmp_path: Path) -> None:
    t = np.arange(120) / 5
    pd.DataFrame({"load": np.sin(t), "heat": np.cos(t)}).to_csv(tmp_path / "load.csv", index=False)
    done = invoke(
        tmp_path / "found", tmp_path / "load.csv", "--target", "load", "--window", 10,
        "--predict", tmp_path / "load.csv",
    )  # fmt: skip
    assert done.exit_code == 0
    predicted = pd.read_csv(tmp_path / "found" / "predictions.csv")["load"]
    assert len(predicted) == 111, "the last one is of the row after the table"
    assert np.corrcoef(predicted[:-1], np.sin(t)[10:])[0, 1] > 0.5


def test_pictures_of_folders(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for kind, mean in (("dark", 60), ("light", 190)):
        (tmp_path / "pictures" / kind).mkdir(parents=True)
        for number in range(12):
            pixels = draw.normal(mean, 20, (6, 6)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / kind / f"{number}.png")
    done = invoke(
        tmp_path / "found", tmp_path / "pictures", "--size", 8, "--predict", tmp_path / "pictures" / "dark"
    )
    assert done.exit_code == 0
    predicted = pd.read_csv(tmp_path / "found" / "predictions.csv")
    assert len(predicted) == 12
    assert (predicted["class"] == "dark").mean() > 0.8


def test_what_is_to_be_predicted_must_be_said(table: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="--target"):
        invoke(tmp_path / "found", table)
    with pytest.raises(ArgumentError, match="no column 'cost'"):
        invoke(tmp_path / "found", table, "--target", "cost")
    pd.read_csv(table).assign(kind="dear").to_csv(table, index=False)
    with pytest.raises(ArgumentError, match="at least two classes"):
        invoke(tmp_path / "found", table, "--target", "kind")
    assert invoke(tmp_path / "found", tmp_path / "none.csv", "--target", "kind").exit_code == 2


def test_files_that_do_not_fit(table: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(table)
    frame.rename(columns={"a": "other"}).to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(ArgumentError, match="feature names"):
        invoke(tmp_path / "one", table, "--target", "price", "--predict", tmp_path / "other.csv")
    frame.assign(a=np.inf).to_csv(tmp_path / "infinite.csv", index=False)
    with pytest.raises(ArgumentError, match="infinite numbers"):
        invoke(tmp_path / "two", tmp_path / "infinite.csv", "--target", "price")
    with pytest.raises(ArgumentError, match="greater than the number of samples"):
        invoke(tmp_path / "three", table, "--target", "price", "--window", 57)
    with pytest.raises(ArgumentError, match="targets are to be classes"):
        invoke(tmp_path / "four", table, "--target", "price", "--task", "classification")
