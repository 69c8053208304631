"""Models of scikit-learn, by skl2onnx, and their predictions: python from_scikit_learn.py FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from skl2onnx import to_onnx
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

ROWS = 100


def main() -> None:
    folder = Path(sys.argv[1])
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    models = {
        "logistic": LogisticRegression(max_iter=300),
        "classifier": MLPClassifier(hidden_layer_sizes=(32,), max_iter=100, random_state=0),
        "regressor": MLPRegressor(hidden_layer_sizes=(16,), max_iter=100, random_state=0),
        "pipeline": make_pipeline(StandardScaler(), PCA(10), Ridge()),
    }
    for name, model in models.items():
        model.fit(x, y)
        classifies = hasattr(model, "predict_proba")
        proto = to_onnx(model, x[:1], options={"zipmap": False} if classifies else None)
        (folder / f"{name}.onnx").write_bytes(proto.SerializeToString())
        results = [model.predict(x[:ROWS])] + ([model.predict_proba(x[:ROWS])] if classifies else [])
        np.savez(folder / f"{name}.npz", x=x[:ROWS], **{f"y{i}": one for i, one in enumerate(results)})


if __name__ == "__main__":
    main()
