"""Estimators that find their networks: scikit-learn's rules, what they find, keep and write."""

from __future__ import annotations

import functools
import pickle
import re
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import dl4all as dl
from dl4all.automl.networks import NetworkSpace
from dl4all.errors import ArgumentError, FileFormatError
from tests.automl.test_samples import table

pytestmark = pytest.mark.usefixtures("deadline")
AutoClassifier = functools.partial(dl.automl.AutoClassifier, seed=0, devices="cpu")
AutoRegressor = functools.partial(dl.automl.AutoRegressor, seed=0, devices="cpu")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """First networks that are trained in no time."""

    def first(space: NetworkSpace) -> list[dict[str, Any]]:
        steady = {
            "optimizer": "adamw",
            "steps": 100,
            "batch": 32,
            "mixup": 0.0,
            "schedule": "cosine",
            "weight_decay": 1e-3,
        }
        if len(space.shape) == 1:
            return [{**steady, "depth": 0, "lr": 3e-2}] * 4
        small = {"stages": 1, "width": 8, "kernel": 3, "head": "flat", "residual": False, "dropout": 0.0}
        kind = {"flip": False} if len(space.shape) == 3 else {"family": "convolutional"}
        return [{**steady, **small, **kind, "shift": 0, "activation": "relu", "lr": 1e-2}]

    monkeypatch.setattr(NetworkSpace, "first", first)


def mixed(rows: int = 160) -> tuple[pd.DataFrame, Any]:
    """A table of all kinds of columns, and classes that follow from two of them."""
    draw = np.random.default_rng(0)
    frame = table(rows)
    frame["city"] = draw.choice(["oslo", "rome", "lima"], rows)
    frame["since"] = pd.date_range("2020-01-01", periods=rows)
    frame.loc[::9, "x"] = np.nan
    frame.loc[1::7, "city"] = None
    return frame, np.where(frame.city == "oslo", "cold", np.where(frame.x > 0, "high", "low"))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("estimator", [AutoClassifier, AutoRegressor], ids=["classifier", "regressor"])
@pytest.mark.sampled(2)
def test_estimators_keep_the_rules_of_scikit_learn(estimator: Any) -> None:
    checks = check_estimator(estimator(trials=1, cv=2), on_skip=None, on_fail=None)
    assert len(checks) > 40
    assert {c["check_name"]: c["exception"] for c in checks if c["status"] not in ("passed", "skipped")} == {}
    assert [c["check_name"] for c in checks if c["status"] == "skipped"] == ["check_array_api_input"]


@pytest.mark.usefixtures("quick")
def test_estimators_work_where_others_do() -> None:
    x, y = load_iris(return_X_y=True)
    estimator = AutoClassifier(trials=1, cv=3)
    assert clone(estimator).get_params() == estimator.get_params()
    assert cross_val_score(estimator, x, y, cv=3).mean() > 0.8
    assert make_pipeline(StandardScaler(), estimator).fit(x, y).score(x, y) > 0.8


def test_a_table_of_all_kinds_of_columns() -> None:
    x, y = mixed()
    found = AutoClassifier(trials=5).fit(x, y)
    assert found.feature_names_in_.tolist() == list(x.columns)
    assert found.classes_.tolist() == ["cold", "high", "low"]
    board = found.leaderboard_
    assert board.loc["ensemble", "loss"] <= board.loc[board.index != "ensemble", "loss"].min() + 1e-9
    assert board.loc["ensemble", "score"] > 0.8
    assert board.loc[board.index != "ensemble", "weight"].sum() == pytest.approx(1)
    probabilities = found.predict_proba(x)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    assert (found.predict(x) == found.classes_[probabilities.argmax(1)]).all()
    members = {member.trial: member for member in found.members_}
    alone = sum(
        members[number].weight
        * np.mean(
            [
                found.targets_.predictions(dl.automl.outputs(net, members[number].features.transform(x)))
                for net in members[number].networks
            ],
            axis=0,
        )
        for number in members
    )
    np.testing.assert_allclose(alone, probabilities, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="feature names"):
        found.predict(x.rename(columns={"city": "town"}))
    with pytest.raises(ValueError, match="infinite"):
        found.predict(x.assign(x=np.inf))
    assert found.predict(x.iloc[:0].reindex([0, 1]).assign(x=0.0, since=x.since[0])).shape == (2,)


def test_rows_held_out_are_those_a_network_was_not_trained_on() -> None:
    x, y = load_diabetes(return_X_y=True)
    shuffled = np.random.default_rng(0).permutation(y)  # nothing can be learned of these
    found = AutoRegressor(trials=4).fit(x, shuffled)
    assert found.leaderboard_.loc["ensemble", "score"] < 0.1
    assert sorted(found.held_out_targets_) == pytest.approx(sorted(shuffled))


@pytest.mark.usefixtures("quick")
def test_the_same_seed_finds_the_same() -> None:
    x, y = load_iris(return_X_y=True)
    first, again, other = (
        dl.automl.AutoClassifier(trials=3, cv=3, seed=seed, devices="cpu").fit(x, y) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first.predict_proba(x), again.predict_proba(x))
    assert first.best_params_ == again.best_params_
    assert np.abs(first.predict_proba(x) - other.predict_proba(x)).max() > 1e-4


@pytest.mark.usefixtures("quick")
def test_pictures_and_series() -> None:
    digits = load_digits()
    chosen = digits.target < 3
    pictures, labels = digits.images[chosen][:120, None], digits.target[chosen][:120]
    found = AutoClassifier(trials=1, cv=2).fit(pictures, labels)
    assert found.score(pictures, labels) > 0.9
    with pytest.raises(ValueError, match=r"shape \(1, 8, 8\), not \(1, 9, 8\)"):
        found.predict(np.zeros((2, 1, 9, 8)))
    t = np.arange(300) / 5
    series, following = dl.automl.windows(pd.DataFrame({"a": np.sin(t), "b": np.cos(t)}), "a", 12)
    regressor = AutoRegressor(trials=1, cv=KFold(3)).fit(series, following)
    assert regressor.score(series, following) > 0.9


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("devices", [["cpu", "vulkan:0"], "vulkan:0"])
def test_searches_on_other_devices(devices: Any) -> None:
    x, y = load_iris(return_X_y=True)
    found = dl.automl.AutoClassifier(trials=4, seed=0, cv=2, devices=devices).fit(x, y)
    assert found.score(x, y) > 0.9
    alone = devices if isinstance(devices, str) else dl.get_default_device()
    assert {str(p.device) for p in found.winner_.networks[0].parameters()} == {str(alone)}
    used = set(found.leaderboard_["device"].dropna())
    assert used <= set(devices if isinstance(devices, list) else [devices])
    assert len(used) == (2 if isinstance(devices, list) else 1)


def test_a_search_ends_when_its_time_is_over() -> None:
    x, y = load_iris(return_X_y=True)
    begun = time.monotonic()
    found = AutoClassifier(minutes=0.02).fit(x, y)
    assert time.monotonic() - begun < 60
    assert len(found.leaderboard_) >= 2


@pytest.mark.usefixtures("quick")
def test_tiny_and_uneven_tables() -> None:
    x = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0], [3.0, 1.0], [4.0, 1.0], [5.0, 1.0]])
    for y in ([0, 0, 0, 0, 0, 1], [0, 0, 1, 1, 2, 2], list("aabbbb")):
        found = AutoClassifier(trials=2).fit(x, y)
        assert found.predict(x).shape == (6,)
        assert found.predict_proba(x).shape == (6, len(set(y)))
    assert AutoRegressor(trials=2).fit(x[:2], [1.0, 2.0]).predict(x).shape == (6,)
    assert AutoRegressor(trials=2).fit(x, np.ones(6)).predict(x) == pytest.approx(np.ones(6), abs=0.05)


@pytest.mark.parametrize(
    ("settings", "y", "match"),
    [
        ({}, [1, 1, 1, 1], "at least two classes, got one class"),
        ({"minutes": 0}, [0, 1, 0, 1], "minutes must be above 0, got 0"),
        ({"trials": -1}, [0, 1, 0, 1], "trials must be above 0, got -1"),
        ({"cv": 1}, [0, 1, 0, 1], "at least 2 folds, got cv=1"),
        ({"resume": True}, [0, 1, 0, 1], "needs the folder="),
        ({}, [0, 1, 0], "inconsistent numbers of samples"),
        ({}, [0.5, 1.25, 0.1, 2.0], "targets are to be classes: Unknown label type"),
        ({}, [0.0, np.nan, 1.0, 1.0], "NaN"),
        ({}, None, "requires y"),
    ],
)
def test_fits_that_cannot_be(settings: dict[str, Any], y: Any, match: str) -> None:
    x = np.random.default_rng(0).normal(size=(4, 2))
    with pytest.raises(ValueError, match=match):
        AutoClassifier(**{"trials": 1, **settings}).fit(x, y)
    with pytest.raises(ArgumentError, match="finite numbers: could not convert"):
        AutoRegressor(trials=1).fit(x, list("abab"))
    with pytest.raises(ValueError, match="unique column names"):
        AutoRegressor(trials=1).fit(pd.DataFrame(x, columns=["a", "a"]), range(4))
    with pytest.raises(ArgumentError, match="no column has two different values"):
        AutoClassifier(trials=1).fit(np.ones((4, 2)), [0, 1, 0, 1])
    with pytest.raises(NotFittedError):
        AutoClassifier().predict(x)


@pytest.mark.usefixtures("quick")
def test_trials_that_fail_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the network melted")

    monkeypatch.setattr("dl4all.automl.cross_validation.train", fails)
    with pytest.raises(ArgumentError, match="no trial has a value: RuntimeError: the network melted"):
        AutoClassifier(trials=2).fit(*load_iris(return_X_y=True))


KILLED = """
import sys
import dl4all as dl
from sklearn.datasets import load_iris

def told(study, trial):
    print(trial.number, flush=True)

dl.automl.AutoClassifier(trials=500, seed=0, devices="cpu", folder=sys.argv[1], callback=told).fit(
    *load_iris(return_X_y=True)
)
"""


def test_a_search_that_was_killed_goes_on(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process:
        for line in process.stdout:
            if int(line) == 1:
                process.send_signal(signal.SIGKILL)
                break
    x, y = load_iris(return_X_y=True)
    with pytest.raises(ArgumentError, match="resume=True"):
        AutoClassifier(trials=4, folder=tmp_path).fit(x, y)
    found = AutoClassifier(trials=4, folder=tmp_path, resume=True).fit(x, y)
    assert {trial.number for trial in found.study_.trials} == set(range(len(found.study_.trials)))
    assert len(found.leaderboard_) >= 5, "four trials and the ensemble"
    assert found.score(x, y) > 0.9
    for other in (
        AutoClassifier(trials=1, folder=tmp_path, resume=True).fit(x[::-1], y[::-1]),
        AutoClassifier(trials=1, folder=tmp_path, resume=True, cv=2).fit(x, y),
    ):
        assert len(other.study_.trials) == 1, "other samples, or folds, are another search"


def test_everything_is_written_and_the_winner_can_be_trained_again(tmp_path: Path) -> None:
    x, y = mixed()
    hostile = x.rename(columns={"city": "<script>alert(1)</script>"})
    hostile.assign(kind=y).to_csv(tmp_path / "data.csv", index=False)
    read, targets = dl.automl.read(tmp_path / "data.csv", "kind")
    folder = tmp_path / "found"
    found = AutoClassifier(trials=4, cv=3).fit(read, targets)
    found.save(folder, data=tmp_path / "data.csv", reading={"target": "kind"})

    again = dl.automl.load(folder)
    np.testing.assert_array_equal(again.predict_proba(read), found.predict_proba(read))
    assert pickle.loads(pickle.dumps(found)).predict(read).tolist() == found.predict(read).tolist()
    pd.testing.assert_frame_equal(
        pd.read_csv(folder / "leaderboard.csv", index_col=0)[["loss", "score"]],
        found.leaderboard_[["loss", "score"]],
    )

    page = (folder / "report.html").read_text("utf-8")
    assert "<script" not in page
    assert page.count("<svg") == page.count("</svg>") == 3
    assert not re.findall(r'(?:src|href)="http', page), "the page loads nothing"
    assert f"{found.leaderboard_.loc['ensemble', 'score']:.4f} accuracy" in page

    winner = folder / "winner"
    written = dl.load(winner / "network.safetensors")
    assert {name: t.tolist() for name, t in written.items()} == {
        name: t.tolist() for name, t in found.winner_.networks[0].state_dict().items()
    }
    ran = subprocess.run(
        [sys.executable, winner / "train.py", tmp_path / "data.csv", tmp_path / "again"],
        capture_output=True, text=True, check=True, env={"DL4ALL_DEVICE": "cpu", "PATH": ""},
    )  # fmt: skip
    assert ran.stdout.startswith("accuracy ")
    trained = dl.load(tmp_path / "again" / "network.safetensors")
    for name, tensor in written.items():
        np.testing.assert_allclose(trained[name].numpy(), tensor.numpy(), rtol=1e-5, atol=1e-6)
    features, encoder = joblib.load(tmp_path / "again" / "features.joblib")
    network = runpy.run_path(str(winner / "train.py"))["network"]()
    network.load_state_dict(trained)
    said = encoder.decoded(encoder.predictions(dl.automl.outputs(network, features.transform(read))))
    assert (said == targets).mean() > 0.8


def test_files_that_are_no_estimator(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="is no estimator"):
        dl.automl.load(tmp_path)
    joblib.dump([1], tmp_path / "estimator.joblib")
    with pytest.raises(FileFormatError, match="has a list, no estimator"):
        dl.automl.load(tmp_path)
    (tmp_path / "estimator.joblib").write_bytes(b"nonsense")
    with pytest.raises(FileFormatError, match="is no estimator"):
        dl.automl.load(tmp_path)
    with pytest.raises(NotFittedError):
        AutoClassifier().save(tmp_path)
