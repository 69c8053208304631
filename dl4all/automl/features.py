"""Features: what networks are given of tables, pictures and series."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

from dl4all.errors import ArgumentError

SCALERS = ("standard", "robust", "quantile")
MOST_CATEGORIES = 64
"""Categories of a column; rarer ones are taken together."""
WORDS = 256
"""Places into which the words of a text column are hashed."""
LONGEST = 3.0
"""Deviations from the median that a robust scale comes near to, but not beyond."""


def table_features(frame: pd.DataFrame, scaler: str = "standard") -> Pipeline:
    """The transformer of a table's columns into float32 numbers, which is to be fitted.

    Numbers are scaled, and missing ones replaced by the median, with a column that says so; dates are numbers
    of their own and places in the year, the week and the day; words, and categories, are columns of zeros and
    ones; of texts the words are hashed and weighed by their rareness. Columns of one value are left out.

    Args:
        frame: the table.
        scaler: of numbers: ``"standard"`` (mean and deviation), ``"robust"`` (median and quartiles, far ones
            drawn near), or ``"quantile"`` (ranks, as a normal distribution).

    Raises:
        ArgumentError: no column has two values, or there is no such scaler.

    Source: D. Holzmüller et al., Better by Default, 2024 (the robust scale).

    Example:
        >>> import dl4all as dl
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"size": [1.0, None, 3.0], "kind": ["a", "b", "a"]})
        >>> dl.automl.table_features(frame).fit_transform(frame).shape
        (3, 4)
    """
    kinds = columns_of(frame)
    if not any(kinds.values()):
        raise ArgumentError("[automl] no column has two different values: there is nothing to learn from")
    categories = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=MOST_CATEGORIES, sparse_output=False
    )
    median, mean = SimpleImputer(strategy="median", add_indicator=True), SimpleImputer(strategy="mean")
    parts = {
        "numbers": [FunctionTransformer(_as_numbers), median, *_scalers(scaler, len(frame))],
        "dates": [FunctionTransformer(_of_dates), mean, StandardScaler()],
        "categories": [FunctionTransformer(_as_words), categories],
    }
    made = [(name, make_pipeline(*steps), kinds[name]) for name, steps in parts.items() if kinds[name]]
    for column in kinds["texts"]:
        words = HashingVectorizer(n_features=WORDS, alternate_sign=False, norm=None)
        made.append(
            (
                f"text {column}",
                make_pipeline(FunctionTransformer(_as_texts), words, TfidfTransformer()),
                column,
            )
        )
    columns = ColumnTransformer(made, sparse_threshold=0.0)
    return Pipeline([("columns", columns), ("as float32", FunctionTransformer(_as_float32))])


class ChannelScaler(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A scale of the channels of pictures (N, C, height, width) or series (N, C, steps): mean 0, deviation 1.

    Missing values are 0 afterwards.

    Example:
        >>> import dl4all as dl
        >>> import numpy as np
        >>> x = dl.automl.ChannelScaler().fit_transform(np.arange(6.0).reshape(1, 2, 3))
        >>> x.mean(2).tolist(), x.dtype
        ([[0.0, 0.0]], dtype('float32'))
    """

    def fit(self, x: npt.NDArray[Any], y: Any = None) -> ChannelScaler:
        """Take means and deviations."""
        axes = (0, *range(2, x.ndim))
        self.mean_ = np.nan_to_num(np.nanmean(x, axes, keepdims=True, dtype=np.float64))[0]
        self.scale_ = np.nan_to_num(np.nanstd(x, axes, keepdims=True, dtype=np.float64))[0]
        self.scale_[self.scale_ == 0] = 1.0
        return self

    def transform(self, x: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Scale samples."""
        scaled = (x - self.mean_.astype(np.float32)) / self.scale_.astype(np.float32)
        return np.asarray(np.nan_to_num(scaled), np.float32)


def features_of(samples: Any, scaler: str) -> Any:
    """The transformer of a table, or of pictures or series, which is to be fitted."""
    return table_features(samples, scaler) if isinstance(samples, pd.DataFrame) else ChannelScaler()


def columns_of(frame: pd.DataFrame) -> dict[str, list[Any]]:
    """The columns that are numbers, dates, categories and texts; those with one value are none of them."""
    kinds: dict[str, list[Any]] = {"numbers": [], "dates": [], "categories": [], "texts": []}
    for name in frame.columns:
        if frame[name].nunique(dropna=False) > 1:
            kinds[_kind(frame[name])].append(name)
    return kinds


def _kind(column: pd.Series) -> str:
    known = column.dropna()
    if pd.api.types.is_datetime64_any_dtype(column):
        return "dates"
    if pd.api.types.is_numeric_dtype(column):  # booleans are numbers
        return "numbers"
    if isinstance(column.dtype, pd.CategoricalDtype):
        return "categories"
    words = known.astype(str)
    if pd.to_numeric(words, errors="coerce").notna().all():
        return "numbers"
    if pd.to_datetime(words, errors="coerce", format="ISO8601", utc=True).notna().all():
        return "dates"
    several = words.str.split().str.len().mean() > 2
    return "texts" if several and words.nunique() > max(MOST_CATEGORIES, len(words) // 2) else "categories"


def _scalers(name: str, rows: int) -> list[Any]:
    """The steps of a scaler.

    Raises:
        ArgumentError: there is none of this name.
    """
    match name:
        case "standard":
            return [StandardScaler()]
        case "robust":
            return [RobustScaler(), FunctionTransformer(_drawn_near)]
        case "quantile":  # whose ends, and columns of two values, lie at 5 deviations
            ranks = QuantileTransformer(
                n_quantiles=min(rows, 1000), output_distribution="normal", random_state=0
            )
            return [ranks, FunctionTransformer(_drawn_near)]
    raise ArgumentError(f"[automl] scaler is one of {', '.join(SCALERS)}, got {name!r}")


# Functions of this module, not of others, so that a fitted transformer can be written to a file.


def _as_float32(x: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    return np.asarray(x, np.float32)


def _as_numbers(frame: pd.DataFrame) -> npt.NDArray[np.float64]:
    return np.asarray(frame.apply(pd.to_numeric, errors="coerce"), np.float64)


def _drawn_near(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    near: npt.NDArray[Any] = x / np.sqrt(1 + np.square(x / LONGEST))
    return near


def _as_words(frame: pd.DataFrame) -> npt.NDArray[np.object_]:
    return np.asarray(frame.astype(object).where(frame.notna(), "missing").astype(str), object)


def _as_texts(column: pd.Series) -> Sequence[str]:
    return list(column.fillna("").astype(str))


def _of_dates(frame: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Years since 1970, and sine and cosine of the place in the year, the week and the day."""
    parts = []
    for name in frame.columns:
        dates = pd.to_datetime(frame[name], errors="coerce", format="ISO8601", utc=True)
        days = (dates - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
        parts.append(days / 365.25)
        for period in (365.25, 7.0, 1.0):
            parts += [np.sin(2 * np.pi * days / period), np.cos(2 * np.pi * days / period)]
    return np.asarray(np.stack(parts, 1), np.float64)
