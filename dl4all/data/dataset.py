"""Data sets of arrays, images and text, and functions that split and augment them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dl4all.data.transforms import load_image
from dl4all.errors import ArgumentError
from dl4all.tensor.arguments import ArrayLike
from dl4all.tensor.tensor import Tensor


class Dataset(Protocol):
    """The protocol of data sets: ``data[i]`` is an array, a number, or a tuple or dict of those.

    Example:
        >>> import dl4all as dl
        >>> class Squares(dl.data.Dataset):
        ...     def __len__(self):
        ...         return 3
        ...
        ...     def __getitem__(self, index):
        ...         return float(index) ** 2
        >>> [batch.tolist() for batch in dl.data.DataLoader(Squares(), 2)]
        [[0.0, 1.0], [4.0]]
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Any: ...


class TensorDataset:
    """Arrays of equal length; a sample is one entry of each.

    Args:
        arrays: NumPy arrays, lists, or tensors, which are copied to the host once.

    Raises:
        ArgumentError: there are no arrays, or their lengths differ.

    Example:
        >>> import dl4all as dl
        >>> data = dl.data.TensorDataset([[1.0, 2.0], [3.0, 4.0]], [0, 1])
        >>> inputs, target = data[1]
        >>> len(data), inputs.tolist(), int(target)
        (2, [3.0, 4.0], 1)
    """

    def __init__(self, *arrays: ArrayLike) -> None:
        self.arrays = tuple(_as_array(array) for array in arrays)
        lengths = [len(array) for array in self.arrays]
        if not lengths or len(set(lengths)) != 1:
            raise ArgumentError(f"[TensorDataset] expected arrays of one length, got lengths {lengths}")

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(array[index] for array in self.arrays)


class Subset:
    """Some samples of a data set, in the order of `indices`.

    Example:
        >>> import dl4all as dl
        >>> data = dl.data.TensorDataset(dl.arange(5))
        >>> part = dl.data.Subset(data, [4, 2])
        >>> len(part), int(part[0][0])
        (2, 4)
    """

    def __init__(self, dataset: Dataset, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, list(indices)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]


class ImageFolder:
    """Images in one folder for each class: ``root/cat/1.jpg``. A sample is (pixels, class index).

    Args:
        root: the folder; classes are its subfolders in alphabetical order.
        transform: a function that is applied to each image, an array (height, width, 3) of uint8.

    Raises:
        ArgumentError: there is no image.

    Example:
        >>> import dl4all as dl
        >>> import pathlib
        >>> from PIL import Image
        >>> for kind in ("cats", "dogs"):
        ...     pathlib.Path("pictures", kind).mkdir(parents=True)
        ...     Image.new("RGB", (8, 6), "red").save(f"pictures/{kind}/1.png")
        >>> folder = dl.data.ImageFolder("pictures")
        >>> folder.classes, len(folder)
        (['cats', 'dogs'], 2)
    """

    SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")

    def __init__(
        self, root: str | Path, transform: Callable[[npt.NDArray[np.uint8]], Any] | None = None
    ) -> None:
        self.transform = transform
        folders = sorted(path for path in Path(root).iterdir() if path.is_dir())
        self.classes = [folder.name for folder in folders]
        self.samples = [
            (file, index)
            for index, folder in enumerate(folders)
            for file in sorted(folder.rglob("*"))
            if file.suffix.lower() in self.SUFFIXES
        ]
        if not self.samples:
            raise ArgumentError(
                f"[ImageFolder] {root} has no subfolder with pictures ({', '.join(self.SUFFIXES)})"
            )

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        file, label = self.samples[index]
        image = np.asarray(load_image(file))
        return (image if self.transform is None else self.transform(image)), label


class TextBytes:
    """Windows of a text's bytes: a sample is (`length` bytes, the same window one byte later), int64.

    Raises:
        ArgumentError: the text is shorter than one sample.

    Example:
        >>> import dl4all as dl
        >>> text = dl.data.TextBytes("to be or not to be", length=4)
        >>> x, y = text[0]
        >>> len(text), bytes(x.tolist()), bytes(y.tolist())
        (4, b'to b', b'o be')
    """

    def __init__(self, text: str | bytes, length: int) -> None:
        raw = text.encode() if isinstance(text, str) else text
        self.tokens = np.frombuffer(raw, np.uint8).astype(np.int64)
        self.length = length
        if len(self) < 1:
            raise ArgumentError(f"[TextBytes] {len(raw)} bytes are fewer than one sample of {length} + 1")

    def __len__(self) -> int:
        return max(0, (len(self.tokens) - 1) // self.length)

    def __getitem__(self, index: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        start = index * self.length
        return self.tokens[start : start + self.length], self.tokens[start + 1 : start + 1 + self.length]


def random_split(dataset: Dataset, fractions: Sequence[float], seed: int = 0) -> list[Subset]:
    """Split a data set at random: ``random_split(data, (0.8, 0.2))``. The same seed gives the same parts.

    Args:
        dataset: the data set.
        fractions: the shares of the parts; they are scaled to a sum of 1.
        seed: the seed of the random order.

    Raises:
        ArgumentError: a fraction is not positive.

    Example:
        >>> import dl4all as dl
        >>> train, test = dl.data.random_split(dl.data.iris(), (0.8, 0.2))
        >>> len(train), len(test)
        (120, 30)
    """
    shares = np.asarray(fractions, np.float64)
    if shares.ndim != 1 or not (shares > 0).all():
        raise ArgumentError(f"[random_split] fractions must be positive, got {tuple(fractions)}")
    order = np.random.Generator(np.random.Philox(seed)).permutation(len(dataset))
    ends = np.rint(np.cumsum(shares / shares.sum()) * len(dataset)).astype(int)
    return [Subset(dataset, part.tolist()) for part in np.split(order, ends[:-1])]


def shifted(dataset: Dataset, pixels: int) -> TensorDataset:
    """Augment images with copies shifted up, down, left and right: five times as many samples.

    Args:
        dataset: samples (image, label); images have the shape (..., height, width).
        pixels: how far the copies are shifted; the new pixels at the edge are 0.

    Raises:
        ArgumentError: `pixels` is not positive, or as large as an image.

    Example:
        >>> import dl4all as dl
        >>> data = dl.data.shifted(dl.data.TensorDataset([[[1.0, 2.0], [3.0, 4.0]]], [7]), 1)
        >>> len(data), data[1]
        (5, (array([[3., 4.],
               [0., 0.]], dtype=float32), 7))
    """
    samples = [dataset[i] for i in range(len(dataset))]
    images, labels = (np.stack([np.asarray(sample[part]) for sample in samples]) for part in (0, 1))
    if images.ndim < 3 or not 0 < pixels < min(images.shape[-2:]):
        raise ArgumentError(f"[shifted] images of shape {images.shape[1:]} cannot move by {pixels} pixels")
    shifted_images = [images]
    for axis in (-2, -1):
        for step in (-pixels, pixels):
            rolled = np.roll(images, step, axis)
            edge = [slice(None)] * images.ndim
            edge[axis] = slice(step, None) if step < 0 else slice(None, step)
            rolled[tuple(edge)] = 0
            shifted_images.append(rolled)
    return TensorDataset(np.concatenate(shifted_images), np.concatenate([labels] * 5))


def _as_array(data: ArrayLike) -> npt.NDArray[Any]:
    """Data as an array; Python floats become float32."""
    if isinstance(data, Tensor):
        return data.detach().numpy()
    array = np.asarray(data)
    typed = isinstance(data, (np.ndarray, np.generic))
    return array.astype(np.float32) if array.dtype == np.float64 and not typed else array
