"""Estimators that find their network themselves, with scikit-learn's interface."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from tempfile import TemporaryDirectory
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt
import optuna
import pandas as pd
from optuna.storages import InMemoryStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from dl4all import nn
from dl4all.automl.cross_validation import CrossValidation, folds_of
from dl4all.automl.ensemble import greedy_selection
from dl4all.automl.targets import ClassTargets, NumberTargets
from dl4all.automl.training import outputs
from dl4all.errors import ArgumentError, FileFormatError
from dl4all.io.files import replaced
from dl4all.scheduler.device.current import device as open_device
from dl4all.scheduler.device.device import Device
from dl4all.search.storage import study_of
from dl4all.search.study import run

Array = npt.NDArray[Any]
DEFAULT_MINUTES = 10.0
ENDLESS = 1_000_000
"""Trials where only time ends a search."""
UNJUDGED = 8
"""Trials before the first that may be given up after a fold."""


@dataclass
class Member:
    """A part of an ensemble.

    Attributes:
        trial: its number.
        weight: of its predictions.
        features: transformer of the samples.
        networks: one for each fold, whose predictions are averaged.
    """

    trial: int
    weight: float
    features: Any
    networks: list[nn.Module]


@contextlib.contextmanager
def _argument_errors() -> Iterator[None]:
    """The block in which scikit-learn's errors about values become the library's."""
    try:
        yield
    except ArgumentError:
        raise
    except ValueError as error:
        raise ArgumentError(f"[automl] {error}") from error


class _AutoEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The search that both estimators make."""

    _classes: bool
    """Whether targets are classes."""

    def __init__(
        self,
        minutes: float | None = None,
        trials: int | None = None,
        *,
        seed: int | None = None,
        cv: Any = 5,
        devices: str | Sequence[str] = "auto",
        workers: int = 1,
        folder: str | Path | None = None,
        resume: bool = False,
        callback: Callable[[Study, FrozenTrial], None] | None = None,
    ) -> None:
        self.minutes, self.trials, self.seed, self.cv = minutes, trials, seed, cv
        self.devices, self.workers = devices, workers
        self.folder, self.resume, self.callback = folder, resume, callback

    def fit(self, X: Any, y: Any) -> Any:  # scikit-learn's names
        """Search, and make an ensemble of the best networks.

        Args:
            X: a table (a DataFrame, or an array (N, columns)), series (N, C, steps) or pictures (N, C,
                height, width).
            y: targets (N,); a regressor takes several (N, outputs), too.

        Returns:
            The estimator.

        Raises:
            ArgumentError: a setting is out of its range, samples and targets do not fit each other or are not
                finite, targets have one class, or no trial had a value.
        """
        until = self._checked_until()
        if y is None:
            raise ArgumentError("[automl] fit requires y to be passed, but the target y is None")
        samples = self._samples(X, reset=True)
        self.targets_: Any = ClassTargets() if self._classes else NumberTargets()
        with _argument_errors():
            encoded = self.targets_.fit(y)
            check_consistent_length(samples, encoded)
            if len(encoded) < 2:
                raise ArgumentError(f"[automl] expected at least 2 samples, got n_samples = {len(encoded)}")
            folds = folds_of(encoded, self._classes, self.cv, self.seed or 0)
        with self._work_folder(samples, encoded, folds) as folder, self._device():
            seed = self.seed or 0
            work = CrossValidation(samples, self.targets_, encoded, folds, folder, seed, until)
            study = run(
                work.space,
                work,
                trials=ENDLESS if self.trials is None else self.trials,
                direction="minimize",
                devices=self.devices,
                workers=self.workers,
                storage=folder / "trials.log",
                study_name="automl",
                pruner=optuna.pruners.MedianPruner(n_startup_trials=UNJUDGED),
                timeout=None if until == np.inf else max(1e-3, until - time.monotonic()),
                seed=self.seed,
                resume=self.resume,
                callback=self.callback,
                first=work.networks.first(),
            )
            self._take(study, work)
        return self

    def _checked_until(self) -> float:
        """When the search is to end, as `time.monotonic` tells it.

        Raises:
            ArgumentError: a setting is out of its range.
        """
        for name, value in (("minutes", self.minutes), ("trials", self.trials)):
            if value is not None and not value > 0:
                raise ArgumentError(f"[automl] {name} must be above 0, got {value}")
        if isinstance(self.cv, int) and self.cv < 2:
            raise ArgumentError(f"[automl] expected at least 2 folds, got cv={self.cv}")
        if self.resume and self.folder is None:
            raise ArgumentError("[automl] resume=True needs the folder= of the search that was interrupted")
        if self.minutes is None and self.trials is not None:
            return np.inf
        return time.monotonic() + 60 * (DEFAULT_MINUTES if self.minutes is None else self.minutes)

    def _device(self) -> Device:
        """The device of what is computed beside trials; to be entered."""
        given = self.devices
        return open_device(given if isinstance(given, str) and given != "all" else "auto")

    @contextlib.contextmanager
    def _work_folder(self, *of: Any) -> Iterator[Path]:
        """The folder of the trials of these samples and folds."""
        if self.folder is None:
            with TemporaryDirectory(prefix="dl4all-automl-") as name:
                yield Path(name)
            return
        folder = Path(self.folder) / "trials" / joblib.hash(of)
        folder.mkdir(parents=True, exist_ok=True)
        yield folder

    def _take(self, study: Study, work: CrossValidation) -> None:
        """Take the ensemble, the winner and the leaderboard from a search.

        Raises:
            ArgumentError: it found nothing.
        """
        finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if not finished:
            trials = study.get_trials(deepcopy=False)
            errors = [trial.user_attrs["error"] for trial in trials if "error" in trial.user_attrs]
            last = errors[-1].strip().splitlines()[-1] if errors else "there was no time for one"
            raise ArgumentError(f"[automl] no trial has a value: {last}")
        targets, held_out = self.targets_, work.y[work.held_out]
        predicted = [work.held_out_predictions(trial) for trial in finished]
        weights = greedy_selection(predicted, lambda mean: targets.loss(mean, held_out))
        mean = sum(weight * one for weight, one in zip(weights, predicted, strict=True))
        self.members_ = [
            Member(trial.number, float(weight), work.features(trial.params)[0], work.fold_networks(trial))
            for trial, weight in zip(finished, weights, strict=True)
            if weight
        ]
        best = study.best_trial
        network = work.trained(best.params, np.arange(len(work.y)))
        self.winner_ = Member(best.number, 1.0, work.features(best.params)[0], [network])
        self.best_params_ = dict(best.params)
        self.study_ = study_of(InMemoryStorage(), study.study_name, ["minimize"], None, False)
        self.study_.add_trials([t for t in study.get_trials(deepcopy=False) if t.state.is_finished()])
        self.held_out_targets_, self.held_out_predictions_ = targets.decoded(held_out), targets.decoded(mean)

        def row(predictions: Array, weight: float) -> dict[str, Any]:
            score = targets.score(self.held_out_targets_, targets.decoded(predictions))
            return {"loss": targets.loss(predictions, held_out), "score": score, "weight": weight}

        rows = {"ensemble": row(mean, 1.0)}
        for trial, weight, one in zip(finished, weights, predicted, strict=True):
            known = {name: trial.user_attrs.get(name) for name in ("seconds", "device", "parameters")}
            rows[f"trial {trial.number}"] = {**row(one, weight), **known, **trial.params}
        self.leaderboard_ = pd.DataFrame.from_dict(rows, "index").sort_values("loss", kind="stable")

    @_argument_errors()
    def _samples(self, x: Any, *, reset: bool) -> Any:
        """A table, or an array of more axes.

        Raises:
            ArgumentError: they are not finite numbers, or others than those of the fit.
        """
        if isinstance(x, pd.DataFrame):
            validate_data(self, x, skip_check_array=True, reset=reset)
            numbers = x.select_dtypes("number").to_numpy(np.float64, na_value=np.nan)
            if np.isinf(numbers).any():
                raise ArgumentError("[automl] the table has infinite numbers; write them as missing ones")
            samples: Any = x
        else:
            found = validate_data(
                self, x, reset=reset, dtype=None, allow_nd=True, ensure_all_finite="allow-nan"
            )
            if found.ndim > 4:
                raise ArgumentError(f"[automl] expected tables, series or pictures, got shape {found.shape}")
            samples = pd.DataFrame(found).infer_objects() if found.ndim == 2 else found
        shape = samples.shape[1:]
        if reset:
            self._shape = shape
        elif len(shape) > 1 and shape != self._shape:
            raise ArgumentError(f"[automl] the estimator knows samples of shape {self._shape}, not {shape}")
        return samples

    def _predictions(self, x: Any) -> Array:
        """Means of what the networks of the ensemble say: probabilities, or scaled numbers."""
        check_is_fitted(self)
        samples = self._samples(x, reset=False)
        total: Any = 0.0
        with self._device():
            for member in self.members_:
                features = member.features.transform(samples)
                for network in member.networks:
                    found = self.targets_.predictions(outputs(network, features))
                    total = total + found * (member.weight / len(member.networks))
        return np.asarray(total)

    def predict(self, X: Any) -> Array:
        """Classes, or numbers, of samples.

        Raises:
            NotFittedError: there was no fit.
            ArgumentError: samples are not those of the fit.
        """
        predictions = self._predictions(X)
        return np.asarray(self.targets_.decoded(predictions))

    def save(
        self, folder: str | Path, *, data: str | Path = "data.csv", reading: dict[str, Any] | None = None
    ) -> None:
        """Write the estimator, its report and its winner.

        ``estimator.joblib`` is for :func:`load`; ``report.html`` a page with plots; ``leaderboard.csv`` the
        trials; ``winner/`` the best network alone, trained on all samples: ``network.safetensors``, and
        ``train.py``, which trains it again.

        Args:
            folder: is made where it is not there.
            data: the file that ``train.py`` reads where it is given no other.
            reading: arguments with which :func:`read` reads it, such as ``{"target": "y"}``.

        Raises:
            NotFittedError: there was no fit.
        """
        from dl4all.automl.report import write_report
        from dl4all.automl.winner import write_winner

        check_is_fitted(self)
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with replaced(folder / "estimator.joblib") as draft:
            joblib.dump(self, draft)
        with replaced(folder / "leaderboard.csv") as draft:
            self.leaderboard_.to_csv(draft)
        write_report(self, folder / "report.html")
        write_winner(self, folder / "winner", data, reading or {"target": "y"})

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "callback": None}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.three_d_array = True
        tags.input_tags.string = tags.input_tags.categorical = True
        tags.non_deterministic = self.minutes is not None or self.trials is None
        return tags


class AutoClassifier(ClassifierMixin, _AutoEstimator):  # type: ignore[misc]
    """A classifier that finds its networks itself.

    Preprocessing, architecture, augmentation, optimizer and schedule are searched together
    (:func:`dl4all.search.run`); each network is trained on all folds of the samples but one, for each fold,
    and judged by its cross-entropy on that one. The best make an ensemble.

    Args:
        minutes: that the search takes, with the last trials; 10 where `trials` is not given either.
        trials: networks that are tried; None tries as many as there is time for.
        seed: of all random numbers: with `trials`, and one worker, the same seed finds the same.
        cv: number of folds, or one of scikit-learn's splitters, such as ``KFold(5)`` for samples in the order
            of time. From 10,000 samples on, a number means one part that is held out, a fifth.
        devices: a device or several, or ``"all"`` for all of this machine, as :func:`dl4all.search.run`
            takes them.
        workers: processes for each device.
        folder: where trials are kept, so that nothing is lost with the process; None keeps them only
            meanwhile.
        resume: go on with the search of `folder`, with the same samples.
        callback: called after each trial with the study and the trial.

    Attributes:
        classes_: labels in the order of the probabilities.
        leaderboard_: the ensemble and each network: loss and score on the rows held out, weight,
            hyperparameters.
        members_: the ensemble. winner_: the best network, trained on all samples.
        best_params_: its hyperparameters.
        study_: Optuna's study.

    Example:
        >>> import dl4all as dl
        >>> from sklearn.datasets import load_iris
        >>> x, y = load_iris(return_X_y=True)
        >>> found = dl.automl.AutoClassifier(trials=2, seed=0, devices="cpu").fit(x, y)
        >>> found.score(x, y) > 0.9
        True
    """

    _classes = True

    @property
    def classes_(self) -> Array:
        """Labels of the classes, in the order of the probabilities."""
        check_is_fitted(self, "targets_")
        return np.asarray(self.targets_.labels)

    def predict_proba(self, X: Any) -> Array:
        """Probabilities (N, classes) of samples, in the order of ``classes_``.

        Raises:
            NotFittedError: there was no fit.
            ArgumentError: samples are not those of the fit.
        """
        return self._predictions(X)


class AutoRegressor(RegressorMixin, _AutoEstimator):  # type: ignore[misc]
    """An estimator of numbers that finds its networks itself; arguments are those of :class:`AutoClassifier`.

    Networks are judged by their squared error on the rows held out, in units of the target's variance.

    Attributes:
        leaderboard_: the ensemble and each network: loss and score (R²) on the rows held out, weight,
            hyperparameters.
        members_: the ensemble. winner_: the best network, trained on all samples.
        best_params_: its hyperparameters.
        study_: Optuna's study.

    Example:
        >>> import dl4all as dl
        >>> import numpy as np
        >>> x = np.random.default_rng(0).normal(size=(200, 3))
        >>> found = dl.automl.AutoRegressor(trials=2, seed=0, devices="cpu").fit(x, x[:, 0] - 2 * x[:, 1])
        >>> found.score(x, x[:, 0] - 2 * x[:, 1]) > 0.9
        True
    """

    _classes = False

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def load(folder: str | Path) -> AutoClassifier | AutoRegressor:
    """The estimator that was saved in a folder. It is a pickle: load only what you trust.

    Raises:
        FileFormatError: there is none.

    Example:
        >>> import dl4all as dl
        >>> from sklearn.datasets import load_iris
        >>> x, y = load_iris(return_X_y=True)
        >>> dl.automl.AutoClassifier(trials=1, seed=0, devices="cpu").fit(x, y).save("iris")
        >>> dl.automl.load("iris").predict(x).shape
        (150,)
    """
    file = Path(folder) / "estimator.joblib"
    try:
        found = joblib.load(file)
    except (OSError, EOFError, ValueError, KeyError, UnpicklingError) as error:
        raise FileFormatError(f"[automl] {file} is no estimator: {error}") from error
    if not isinstance(found, (AutoClassifier, AutoRegressor)):
        raise FileFormatError(f"[automl] {file} has a {type(found).__name__}, no estimator")
    return found
