"""Targets: what networks learn to predict, and what their outputs say."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.metrics import accuracy_score, r2_score
from sklearn.preprocessing import LabelEncoder, StandardScaler
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d

from dl4all.errors import ArgumentError

Array = npt.NDArray[Any]


class ClassTargets:
    """Labels of classes.

    Attributes:
        labels: of the classes, in the order of a network's outputs; from :meth:`fit`.

    Example:
        >>> import dl4all as dl
        >>> import numpy as np
        >>> targets = dl.automl.ClassTargets()
        >>> targets.fit(["no", "yes", "no"]).tolist()
        [0, 1, 0]
        >>> targets.decoded(targets.predictions(np.array([[-1.0, 2.0]]))).tolist()
        ['yes']
    """

    metric = "accuracy"

    def fit(self, y: Any) -> npt.NDArray[np.int64]:
        """The classes' numbers (N,) of labels (N,).

        Raises:
            ArgumentError: all are the same, or they are no labels.
            ValueError: they are missing, or of more axes.
        """
        found = column_or_1d(check_array(y, ensure_2d=False, dtype=None), warn=True)
        try:
            check_classification_targets(found)
        except ValueError as error:
            raise ArgumentError(f"[automl] targets are to be classes: {error}") from None
        self._encoder = LabelEncoder().fit(found)
        self.labels = self._encoder.classes_
        if len(self.labels) < 2:
            raise ArgumentError(
                f"[automl] expected at least two classes, got one class: all targets are {self.labels[0]!r}"
            )
        return np.asarray(self._encoder.transform(found), np.int64)

    def outputs(self, encoded: Array) -> int:
        """Outputs of a network."""
        return len(self.labels)

    def predictions(self, outputs: Array) -> Array:
        """Probabilities (N, classes) of a network's outputs."""
        powers = np.exp(outputs - outputs.max(1, keepdims=True))
        return np.asarray(powers / powers.sum(1, keepdims=True))

    def loss(self, predictions: Array, encoded: Array) -> float:
        """The mean cross-entropy."""
        return float(-np.log(predictions[np.arange(len(encoded)), encoded].clip(1e-7)).mean())

    def decoded(self, predictions: Array) -> Array:
        """Labels (N,) of probabilities, or of classes' numbers."""
        numbers = predictions if predictions.ndim == 1 else predictions.argmax(1)
        return np.asarray(self._encoder.inverse_transform(numbers))

    def score(self, y: Any, decoded: Array) -> float:
        """The part of labels that are right."""
        return float(accuracy_score(y, decoded))


class NumberTargets:
    """Numbers, one or several of each sample.

    Example:
        >>> import dl4all as dl
        >>> targets = dl.automl.NumberTargets()
        >>> targets.fit([1.0, 3.0]).tolist()
        [[-1.0], [1.0]]
        >>> targets.decoded(targets.fit([1.0, 3.0])).tolist()
        [1.0, 3.0]
    """

    metric = "R²"

    def fit(self, y: Any) -> npt.NDArray[np.float32]:
        """Numbers (N,) or (N, outputs), scaled to mean 0 and deviation 1, as (N, outputs).

        Raises:
            ArgumentError: they are no finite numbers, or of more axes.
        """
        try:
            found = check_array(y, ensure_2d=False, dtype=np.float64)
        except ValueError as error:
            raise ArgumentError(f"[automl] targets are to be finite numbers: {error}") from None
        if found.ndim > 2:
            raise ArgumentError(f"[automl] expected targets (N,) or (N, outputs), got shape {found.shape}")
        self._single = found.ndim == 1
        self._scaler = StandardScaler()
        return np.asarray(self._scaler.fit_transform(found.reshape(len(found), -1)), np.float32)

    def outputs(self, encoded: Array) -> int:
        """Outputs of a network."""
        return int(encoded.shape[1])

    def predictions(self, outputs: Array) -> Array:
        """Scaled numbers: a network's outputs as they are."""
        return outputs

    def loss(self, predictions: Array, encoded: Array) -> float:
        """The mean squared error, in units of the variance."""
        return float(np.square(predictions - encoded, dtype=np.float64).mean())

    def decoded(self, predictions: Array) -> Array:
        """Numbers, as the targets had them."""
        decoded = self._scaler.inverse_transform(predictions.astype(np.float64))
        return np.asarray(decoded[:, 0] if self._single else decoded)

    def score(self, y: Any, decoded: Array) -> float:
        """R², the part of the variance that is explained; nan of fewer than two samples."""
        return float(r2_score(y, decoded))
