"""The operators of ``ai.onnx.ml`` that scikit-learn's linear models, networks and scalers are made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.functions import names as functions
from dl4all.onnx.call import Call, is_array
from dl4all.onnx.registry import operator

DOMAIN = "ai.onnx.ml"

TRANSFORMS: dict[str, Any] = {
    "SOFTMAX": lambda x: functions.softmax(x, dim=-1),
    "LOGISTIC": functions.sigmoid,
    "SOFTMAX_ZERO": lambda x: functions.softmax(x, dim=-1) * (x != 0).to(x.dtype),
}
"""Functions of scores, by the words of ``post_transform``."""


def _scores(call: Call, x: Any, rows: int | None) -> Any:
    """Products of inputs with rows of coefficients, and intercepts."""
    x = call.tensor(x)
    x = x if x.dtype == np.float32 else x.float()
    x = x.reshape(1, -1) if x.ndim == 1 else x
    coefficients = np.array(call.get("coefficients"), np.float32)
    matrix = coefficients.reshape(rows or -1, x.shape[1])
    y = functions.matmul(x, call.tensor(np.ascontiguousarray(matrix.T)))
    offsets = call.get("intercepts")
    return y + call.tensor(np.array(offsets, np.float32)) if offsets else y


def _transformed(call: Call, scores: Any) -> Any:
    kind = call.choice("post_transform", "NONE", tuple(TRANSFORMS))
    return scores if kind == "NONE" else TRANSFORMS[kind](scores)


@operator("LinearRegressor", domain=DOMAIN)
def linear_regressor(call: Call, x: Any) -> Any:
    return _transformed(call, _scores(call, x, call.get("targets", 1)))


@operator("LinearClassifier", domain=DOMAIN)
def linear_classifier(call: Call, x: Any) -> Any:
    """The label of the highest score, and the scores; one score of two classes is that of the second."""
    labels = call.get("classlabels_ints")
    if not labels:
        raise call.refuse("labels of text")
    scores = _scores(call, x, None)
    if scores.shape[1] == 1 and len(labels) == 2:
        scores = functions.cat([-scores, scores], 1)
    chosen = functions.argmax(scores, dim=1)
    names = call.tensor(np.array(labels, np.int64))
    return functions.index_select(names, 0, chosen), _transformed(call, scores)


@operator("Scaler", domain=DOMAIN)
def scaler(call: Call, x: Any) -> Any:
    offset, scale = (call.tensor(np.array(call.get(n), np.float32)) for n in ("offset", "scale"))
    return (call.tensor(x).float() - offset) * scale


@operator("Normalizer", domain=DOMAIN)
def normalizer(call: Call, x: Any) -> Any:
    """Rows over their largest element, or the sum or the norm of their elements."""
    x, kind = call.tensor(x).float(), call.choice("norm", "MAX", ("L1", "L2"))
    if kind == "MAX":
        size = functions.amax(x, 1, keepdim=True)
    elif kind == "L1":
        size = functions.abs(x).sum(1, keepdim=True)
    else:
        size = functions.sqrt((x * x).sum(1, keepdim=True))
    return functions.where(size == 0, x, x / size)


@operator("ArrayFeatureExtractor", domain=DOMAIN)
def array_feature_extractor(call: Call, x: Any, indices: Any) -> Any:
    """Columns by their indices."""
    x = call.tensor(x)
    wanted = call.tensor(indices.reshape(-1) if is_array(indices) else indices.long().reshape(-1))
    columns = functions.index_select(x, x.ndim - 1, wanted)
    return columns.reshape(1, -1) if x.ndim == 1 else columns


@operator("Binarizer", domain=DOMAIN)
def binarizer(call: Call, x: Any) -> Any:
    x = call.tensor(x)
    return (x > call.get("threshold", 0.0)).to(x.dtype)
