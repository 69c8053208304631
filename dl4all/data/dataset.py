"""Data sets: of arrays and text, of others one after the other or side by side, and their splits."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from types import GenericAlias
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dl4all.data.sampler import drawn_key, random_numbers
from dl4all.errors import ArgumentError
from dl4all.ops.random.generator import Generator
from dl4all.tensor.arguments import ArrayLike
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor


class Samples(Protocol):
    """The protocol of data sets: ``data[i]`` is an array, tensor, number, text, or tuple or dict of them."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Any: ...


class Dataset:
    """Base class of data sets, with ``+`` for two of them. Any object with ``len()`` and ``[i]`` is one, too.

    Example:
        >>> import dl4all as dl
        >>> class Squares(dl.data.Dataset):
        ...     def __len__(self):
        ...         return 3
        ...     def __getitem__(self, i):
        ...         return float(i), i * i
        >>> [y.tolist() for x, y in dl.data.DataLoader(Squares() + Squares(), 4, device="cpu")]
        [[0, 1, 4, 0], [1, 4]]
    """

    __class_getitem__: Any = classmethod(GenericAlias)

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} needs a method __getitem__(self, index)")

    def __add__(self, other: Samples) -> Any:
        return ConcatDataset([self, other])  # type: ignore[list-item]  # whose subclass has len()


class IterableDataset(Dataset):
    """Base class of data that can only be iterated over, such as a stream.

    A loader makes batches of the samples in the order in which they come. With `num_workers` each worker
    iterates for itself; see :func:`get_worker_info` for how they share the samples.

    Example:
        >>> import dl4all as dl
        >>> class Lines(dl.data.IterableDataset):
        ...     def __iter__(self):
        ...         yield from ([1.0, 2.0], [3.0, 4.0], [5.0, 6.0])
        >>> [x[0].tolist() for x in dl.data.DataLoader(Lines(), 2, device="cpu")]
        [[1.0, 3.0], [5.0]]
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} needs a method __iter__(self) that gives samples")

    def __add__(self, other: Any) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset):
    """Arrays of equal length; a sample is one entry of each: of a tensor a tensor, of anything else an array.

    Args:
        arrays: tensors, NumPy arrays or lists. Tensors of other devices are copied to the host once, from
            where a loader takes its batches.

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
        self._given = tuple(
            given if isinstance(given, Tensor) else array
            for given, array in zip(arrays, self.arrays, strict=True)
        )
        lengths = [len(array) for array in self.arrays]
        if not lengths or len(set(lengths)) != 1:
            raise ArgumentError(f"[TensorDataset] expected arrays of one length, got lengths {lengths}")

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(array[index] for array in self._given)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors; what was given otherwise, as tensors on the CPU that share its memory."""
        return tuple(given if isinstance(given, Tensor) else from_numpy(given) for given in self._given)


class Subset(Dataset):
    """Some samples of a data set, in the order of `indices`.

    Example:
        >>> import dl4all as dl
        >>> list(dl.data.DataLoader(dl.data.Subset(["a", "b", "c"], [2, 0]), 2))
        [['c', 'a']]
    """

    def __init__(self, dataset: Samples, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, list(indices)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]


class TextBytes(Dataset):
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


def random_split(
    dataset: Samples,
    lengths: Sequence[float],
    seed: int | Generator | None = 0,
    generator: Generator | None = None,
) -> list[Subset]:
    """Split a data set at random: ``random_split(data, (0.8, 0.2))``.

    Args:
        dataset: the data set.
        lengths: how many samples each part has, ints whose sum is the data set's length; or shares, which are
            scaled to a sum of 1, and of which the first parts get the samples that are left by rounding down.
        seed: the seed of the random order: the same seed gives the same parts. A generator may stand here,
            too, as in PyTorch; None draws the order from the default generator.
        generator: draws the random order, in place of the seed.

    Raises:
        ArgumentError: a share is not positive.

    Example:
        >>> import dl4all as dl
        >>> [len(part) for part in dl.data.random_split(range(10), [7, 3], generator=dl.Generator(42))]
        [7, 3]
        >>> [len(part) for part in dl.data.random_split(range(10), [0.5, 0.25, 0.25])]
        [6, 2, 2]
    """
    count = len(dataset)
    source = seed if isinstance(seed, Generator) else generator
    if source is not None or seed is None:
        numbers = random_numbers(drawn_key(source))
    else:
        numbers = np.random.Generator(np.random.Philox(seed))  # type: ignore[arg-type]  # an int
    if all(isinstance(n, (int, np.integer)) and n >= 0 for n in lengths) and sum(lengths) == count:
        sizes = np.asarray(lengths, np.int64)
    else:
        shares = np.asarray(lengths, np.float64)
        if shares.ndim != 1 or not (shares > 0).all():
            raise ArgumentError(
                f"[random_split] fractions must be positive, or lengths with the sum {count}; got "
                f"{tuple(lengths)}"
            )
        sizes = np.floor(shares / shares.sum() * count).astype(np.int64)
        sizes[: count - sizes.sum()] += 1
    order = numbers.permutation(count)
    return [Subset(dataset, part.tolist()) for part in np.split(order, np.cumsum(sizes)[:-1])]


def shifted(dataset: Samples, pixels: int) -> TensorDataset:
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


class ConcatDataset(Dataset):
    """Data sets one after the other.

    Args:
        datasets: data sets with ``len()`` and ``[i]``.

    Raises:
        ArgumentError: there is none, or one can only be iterated over.

    Example:
        >>> import dl4all as dl
        >>> data = dl.data.ConcatDataset([["a", "b"], ["c"]])
        >>> len(data), data[2], data[-3], data.cumulative_sizes
        (3, 'c', 'a', [2, 3])
    """

    def __init__(self, datasets: Iterable[Samples]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ArgumentError("[ConcatDataset] expected at least one data set, got none")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise ArgumentError("[ConcatDataset] an IterableDataset has no [i]; use ChainDataset")
        self.cumulative_sizes = list(itertools.accumulate(map(len, self.datasets)))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        number = bisect.bisect_right(self.cumulative_sizes, place)
        return self.datasets[number][place - (self.cumulative_sizes[number - 1] if number else 0)]


class ChainDataset(IterableDataset):
    """Data sets that can only be iterated over, one after the other.

    Args:
        datasets: iterables of samples.

    Example:
        >>> import dl4all as dl
        >>> list(dl.data.ChainDataset([range(2), range(3)]))
        [0, 1, 0, 1, 2]
    """

    def __init__(self, datasets: Iterable[Iterable[Any]]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(self.datasets)

    def __len__(self) -> int:
        sized: Any = self.datasets
        return sum(map(len, sized))  # a TypeError where one has no length


class StackDataset(Dataset):
    """Data sets of equal length side by side: a sample is a tuple of theirs, or a dict.

    Args:
        args: data sets, for tuples.
        kwargs: data sets by name, for dicts.

    Raises:
        ArgumentError: there is none, there are some by name and some not, or their lengths differ.

    Example:
        >>> import dl4all as dl
        >>> dl.data.StackDataset(image=[1.0, 2.0], text=["a", "b"])[1]
        {'image': 2.0, 'text': 'b'}
    """

    def __init__(self, *args: Samples, **kwargs: Samples) -> None:
        if bool(args) == bool(kwargs):
            raise ArgumentError(
                f"[StackDataset] expected data sets, either all by name or none, got {len(args)} without a "
                f"name and {len(kwargs)} by name"
            )
        self.datasets: tuple[Samples, ...] | dict[str, Samples] = args or kwargs
        lengths = [len(dataset) for dataset in args or kwargs.values()]
        if len(set(lengths)) != 1:
            raise ArgumentError(f"[StackDataset] expected data sets of one length, got lengths {lengths}")
        self._length = lengths[0]

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple([dataset[index] for dataset in self.datasets])
