"""Data sets of images on the disk: a folder for each class, MNIST, Fashion-MNIST and CIFAR-10."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dl4all.data.dataset import Dataset
from dl4all.data.transforms.imagenet import load_image, pillow
from dl4all.errors import ArgumentError, FileFormatError

Transform = Callable[[Any], Any]


class ImageFolder(Dataset):
    """Images in one folder for each class: ``root/cat/1.jpg``. A sample is (image, class index).

    Args:
        root: the folder; classes are its subfolders in alphabetical order.
        transform: is applied to each image, a PIL image of mode RGB. Without one an image is an array
            (height, width, 3) of uint8.
        target_transform: is applied to each class index.
        loader: reads a file; by default :func:`load_image`.
        is_valid_file: says of a path whether it is an image; by default its suffix does.
        allow_empty: accept classes without an image.

    Raises:
        ArgumentError: there is no folder or no image, or a class has none.
        FileFormatError: from ``[i]``: the file is damaged.

    Example:
        >>> import pathlib, tempfile, PIL.Image
        >>> import dl4all as dl
        >>> root = pathlib.Path(tempfile.mkdtemp())
        >>> for name in ("cat", "dog"):
        ...     (root / name).mkdir()
        ...     PIL.Image.new("RGB", (5, 4)).save(root / name / "1.png")
        >>> data = dl.data.ImageFolder(root, transform=dl.data.transforms.ToTensor())
        >>> data.classes, data[1][0].shape, data[1][1]
        (['cat', 'dog'], (3, 4, 5), 1)
    """

    SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")

    def __init__(
        self,
        root: str | Path,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        loader: Callable[[str], Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        self.root, self.transform, self.target_transform = root, transform, target_transform
        self.loader = load_image if loader is None else loader
        if not Path(root).is_dir():
            raise ArgumentError(f"[ImageFolder] {root} is no folder")
        folders = sorted(path for path in Path(root).iterdir() if path.is_dir())
        self.classes = [folder.name for folder in folders]
        self.class_to_idx = {name: index for index, name in enumerate(self.classes)}
        is_image = self._has_suffix if is_valid_file is None else is_valid_file
        self.samples = [
            (str(file), index)
            for index, folder in enumerate(folders)
            for file in sorted(folder.rglob("*"))
            if file.is_file() and is_image(str(file))
        ]
        self.imgs = self.samples
        self.targets = [label for _, label in self.samples]
        suffixes, present = ", ".join(self.SUFFIXES), set(self.targets)
        if not self.samples:
            raise ArgumentError(f"[ImageFolder] {root} has no subfolder with pictures ({suffixes})")
        empty = [name for name, index in self.class_to_idx.items() if index not in present]
        if empty and not allow_empty:
            raise ArgumentError(
                f"[ImageFolder] {', '.join(empty)} are subfolders without pictures ({suffixes}); remove "
                "them, or pass allow_empty=True"
            )

    def _has_suffix(self, file: str) -> bool:
        return file.lower().endswith(self.SUFFIXES)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        file, label = self.samples[index]
        image = self.loader(file)
        return (
            np.asarray(image) if self.transform is None else self.transform(image),
            label if self.target_transform is None else self.target_transform(label),
        )


class _PictureSet(Dataset):
    """Images in one array and their labels, which :meth:`_read` reads. A sample is (image, label).

    Args:
        root: the folder, as torchvision has it.
        train: the images to learn from, else those to test with.
        transform: is applied to each image, a PIL image; without one an image is an array of uint8.
        target_transform: is applied to each label.
        download: files that are missing are not fetched; the error says where to get them.
    """

    classes: ClassVar[list[str]]
    SOURCE: ClassVar[str]

    def __init__(
        self,
        root: str | Path,
        train: bool = True,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        download: bool = False,
    ) -> None:
        self.root, self.train = root, train
        self.transform, self.target_transform = transform, target_transform
        self.class_to_idx = {name: index for index, name in enumerate(self.classes)}
        self.data, self.targets = self._read(Path(root), train)
        if len(self.data) != len(self.targets):
            raise FileFormatError(f"{root}: {len(self.data)} images and {len(self.targets)} labels")

    def _read(self, root: Path, train: bool) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """The images, as Pillow takes them, and the labels."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image, label = self.data[index], int(self.targets[index])
        return (
            image if self.transform is None else self.transform(pillow(type(self).__name__).fromarray(image)),
            label if self.target_transform is None else self.target_transform(label),
        )

    def _bytes(self, places: list[Path]) -> bytes:
        """The content of the first file that is there, unpacked.

        Raises:
            ArgumentError: none is.
            FileFormatError: it cannot be unpacked.
        """
        for place in places:
            if place.is_file():
                raw = place.read_bytes()
                if place.suffix != ".gz":
                    return raw
                try:
                    return gzip.decompress(raw)
                except (OSError, EOFError) as error:
                    raise FileFormatError(f"{place}: is damaged ({error}); fetch it again") from error
        raise ArgumentError(
            f"[{type(self).__name__}] {places[0]} is missing; dl4all fetches nothing: get the file from "
            f"{self.SOURCE} and put it there"
        )


class MNIST(_PictureSet):
    """70,000 handwritten digits, 28 x 28 pixels, from MNIST's own files. A sample is (image, label).

    Args:
        root: the folder; ``train-images-idx3-ubyte`` and the others, packed (``.gz``) or not, lie in it or in
            its subfolder ``MNIST/raw``, where torchvision puts them.
        train: the 60,000 images to learn from, else the 10,000 to test with.
        transform: is applied to each image, a PIL image of mode L; without one an image is an array (28, 28)
            of uint8.
        target_transform: is applied to each label.
        download: accepted; files that are missing are not fetched, and the error says where to get them.

    Raises:
        ArgumentError: a file is missing.
        FileFormatError: a file is damaged.

    Example:
        >>> data = MNIST("data", transform=dl.data.transforms.ToTensor())  # doctest: +SKIP
        >>> data[0][0].shape, data[0][1]  # doctest: +SKIP
        ((1, 28, 28), 5)
    """

    classes: ClassVar[list[str]] = [
        "0 - zero", "1 - one", "2 - two", "3 - three", "4 - four", "5 - five", "6 - six", "7 - seven",
        "8 - eight", "9 - nine",
    ]  # fmt: skip
    SOURCE = "https://ossci-datasets.s3.amazonaws.com/mnist/"

    def _read(self, root: Path, train: bool) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        part = "train" if train else "t10k"
        images = self._idx(root, f"{part}-images-idx3-ubyte", 3)
        return images, self._idx(root, f"{part}-labels-idx1-ubyte", 1).astype(np.int64)

    def _idx(self, root: Path, name: str, rank: int) -> npt.NDArray[np.uint8]:
        """The array of bytes in a file of MNIST's format: 0, 0, 8, rank, the sizes, the bytes."""
        folders = [root / type(self).__name__ / "raw", root]
        raw = self._bytes([folder / f"{name}{suffix}" for folder in folders for suffix in ("", ".gz")])
        start = 4 + 4 * rank
        sizes = np.frombuffer(raw[4:start], ">u4").astype(np.int64) if len(raw) >= start else np.zeros(0)
        if raw[:4] != bytes((0, 0, 8, rank)) or len(raw) != start + int(sizes.prod()):
            raise FileFormatError(f"{name}: is no file of MNIST's format, or damaged; fetch it again")
        return np.frombuffer(raw, np.uint8, offset=start).reshape(sizes.astype(int)).copy()


class FashionMNIST(MNIST):
    """70,000 pictures of clothes, 28 x 28 pixels, in MNIST's format. A sample is (image, label).

    Args:
        root: the folder; the files lie in it or in its subfolder ``FashionMNIST/raw``.
        train: the 60,000 images to learn from, else the 10,000 to test with.
        transform: is applied to each image, a PIL image of mode L.
        target_transform: is applied to each label.
        download: accepted; files that are missing are not fetched.

    Raises:
        ArgumentError: a file is missing.
        FileFormatError: a file is damaged.

    Example:
        >>> FashionMNIST.classes[:3]
        ['T-shirt/top', 'Trouser', 'Pullover']
    """

    classes: ClassVar[list[str]] = [
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
        "Ankle boot",
    ]  # fmt: skip
    SOURCE = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"


class CIFAR10(_PictureSet):
    """60,000 photographs of ten kinds, 32 x 32 pixels: CIFAR-10's binary version.

    The version for Python is made of pickles, which are programs; they are not read.

    Args:
        root: the folder; ``data_batch_1.bin`` and the others lie in it or in its subfolder
            ``cifar-10-batches-bin``.
        train: the 50,000 images to learn from, else the 10,000 to test with.
        transform: is applied to each image, a PIL image of mode RGB; without one an image is an array
            (32, 32, 3) of uint8.
        target_transform: is applied to each label.
        download: accepted; files that are missing are not fetched.

    Raises:
        ArgumentError: a file is missing.
        FileFormatError: a file is damaged.

    Example:
        >>> CIFAR10.classes[:3]
        ['airplane', 'automobile', 'bird']
    """

    classes: ClassVar[list[str]] = [
        "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
    ]  # fmt: skip
    SOURCE = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"

    def _read(self, root: Path, train: bool) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        names = [f"data_batch_{i}.bin" for i in range(1, 6)] if train else ["test_batch.bin"]
        parts = []
        for name in names:
            raw = self._bytes([root / "cifar-10-batches-bin" / name, root / name])
            if not raw or len(raw) % 3073:
                raise FileFormatError(f"{name}: has {len(raw)} bytes, no multiple of 3073; fetch it again")
            parts.append(np.frombuffer(raw, np.uint8).reshape(-1, 3073))
        rows = np.concatenate(parts)
        if rows[:, 0].max() > 9:
            raise FileFormatError(f"{names[0]}: has labels above 9; is it CIFAR-100?")
        images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return np.ascontiguousarray(images), rows[:, 0].astype(np.int64)
