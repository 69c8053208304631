"""Image transforms on PIL images, tensors and arrays, and data sets of images on the disk."""

from __future__ import annotations

import colorsys
import gzip
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.data import transforms as T
from dl4all.errors import ArgumentError, DTypeError, FileFormatError, ShapeError

PIL = pytest.importorskip("PIL.Image")

Array = npt.NDArray[Any]


def pixels(height: int = 13, width: int = 17, channels: int = 3, seed: int = 3) -> Array:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)


def forms(array: Array) -> list[Any]:
    """An image (height, width, C) as each of the three kinds that transforms take."""
    planes = np.ascontiguousarray(array.transpose(2, 0, 1))
    return [PIL.fromarray(array), dl.tensor(planes, device="cpu"), planes]


def as_planes(image: Any) -> Array:
    """(C, height, width) of whatever kind."""
    if isinstance(image, dl.Tensor):
        return np.asarray(image.numpy())
    array = np.asarray(image)
    if isinstance(image, np.ndarray):
        return array
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def same_kind(found: Any, image: Any) -> bool:
    kinds = (dl.Tensor, np.ndarray)
    return [isinstance(found, kind) for kind in kinds] == [isinstance(image, kind) for kind in kinds]


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (T.CenterCrop((5, 8)), lambda x: x[:, 4:9, 4:12]),
        (T.CenterCrop(15), lambda x: np.pad(x, ((0, 0), (1, 1), (0, 0)))[:, :, 1:16]),
        (T.Pad((2, 1)), lambda x: np.pad(x, ((0, 0), (1, 1), (2, 2)))),
        (
            T.Pad([1, 2, 3, 4], padding_mode="reflect"),
            lambda x: np.pad(x, ((0, 0), (2, 4), (1, 3)), "reflect"),
        ),
        (T.Pad(1, padding_mode="edge"), lambda x: np.pad(x, ((0, 0), (1, 1), (1, 1)), "edge")),
        (T.RandomHorizontalFlip(1.0), lambda x: x[:, :, ::-1]),
        (T.RandomVerticalFlip(1.0), lambda x: x[:, ::-1]),
        (T.RandomHorizontalFlip(0.0), lambda x: x),
        (T.RandomRotation((90, 90), expand=True), lambda x: np.rot90(x, axes=(1, 2))),
        (T.RandomRotation((180, 180)), lambda x: x[:, ::-1, ::-1]),
        (T.Lambda(lambda image: image), lambda x: x),
    ],
    ids=lambda value: type(value).__name__,
)
def test_pixels_go_where_they_should(transform: Any, expected: Any) -> None:
    array = pixels()
    for image in forms(array):
        found = transform(image)
        assert same_kind(found, image)
        np.testing.assert_array_equal(as_planes(found), expected(array.transpose(2, 0, 1)))


def test_values_of_padding_for_each_channel() -> None:
    for image in forms(pixels()):
        found = as_planes(T.Pad(1, fill=(1, 2, 3))(image))
        assert found[:, 0, 5].tolist() == [1, 2, 3]
        assert found.dtype == np.uint8


@pytest.mark.parametrize(
    ("size", "options", "expected"),
    [
        (7, {}, (7, 9)), ((5, 19), {}, (5, 19)), ([6], {}, (6, 7)), (12, {"max_size": 14}, (11, 14)),
        (26, {"interpolation": "nearest"}, (26, 34)), (13, {}, (13, 17)),
        ((20, 9), {"interpolation": PIL.Resampling.BICUBIC}, (20, 9)),
    ],
)  # fmt: skip
def test_sizes(size: Any, options: dict[str, Any], expected: tuple[int, int]) -> None:
    """As Pillow resizes; a tensor channel by channel, floats without rounding."""
    array = pixels()
    picture, tensor, planes = forms(array)
    resize = T.Resize(size, **options)
    mode = PIL.Resampling[resize.interpolation.name]
    wanted = np.asarray(picture.resize(expected[::-1], mode)).transpose(2, 0, 1)
    for image in (picture, tensor, planes):
        np.testing.assert_array_equal(as_planes(resize(image)), wanted)
    floats = resize(planes.astype(np.float32) / 255)
    assert floats.dtype == np.float32
    np.testing.assert_allclose(floats * 255, wanted, atol=1.01 if mode != PIL.Resampling.NEAREST else 1e-4)
    tall = T.Resize(7)(np.ascontiguousarray(planes.swapaxes(1, 2)))
    assert tall.shape == (3, 9, 7)


def test_to_tensor_and_back() -> None:
    array = pixels()
    for image in (PIL.fromarray(array), array):
        found = T.ToTensor()(image)
        assert (found.dtype, found.device.name) == (dl.float32, "cpu")
        np.testing.assert_array_equal(found.numpy(), (array.transpose(2, 0, 1) / np.float32(255)))
    np.testing.assert_array_equal(np.asarray(T.ToPILImage()(found)), array)
    np.testing.assert_array_equal(T.PILToTensor()(PIL.fromarray(array)).numpy(), array.transpose(2, 0, 1))
    grey = pixels(channels=1)[:, :, 0]
    assert T.ToTensor()(PIL.fromarray(grey)).shape == (1, 13, 17)
    assert T.ToTensor()(PIL.fromarray(grey > 99)).numpy().tolist() == [(grey > 99).astype(float).tolist()]
    assert T.ToTensor()(PIL.fromarray(grey.astype(np.int32))).dtype == dl.int32
    assert T.ToTensor()(PIL.fromarray(grey.astype(np.float32))).numpy().max() > 1
    assert np.asarray(T.ToPILImage("L")(dl.tensor(grey, device="cpu"))).tolist() == grey.tolist()
    assert T.ToPILImage("RGB")(array).mode == "RGB"


def test_normalization() -> None:
    array = pixels().transpose(2, 0, 1).astype(np.float32) / 255
    mean, std = (0.1, 0.5, 0.7), (0.2, 1.5, 0.25)
    for image in (array, dl.tensor(array, device="cpu"), dl.tensor(array, device="cpu")[None]):
        found = T.Normalize(mean, std)(image)
        expected = (array - np.array(mean, np.float32)[:, None, None]) / np.array(std, np.float32)[
            :, None, None
        ]
        np.testing.assert_array_equal(as_planes(found).reshape(array.shape), expected)
    assert T.Normalize([0.5], [0.5])(array).shape == array.shape


def test_colours() -> None:
    array = pixels(5, 7)
    floats = array.transpose(2, 0, 1).astype(np.float64) / 255
    grey = np.tensordot([0.2989, 0.587, 0.114], floats, 1)
    cases = {
        "brightness": floats * 1.5,
        "contrast": 1.5 * floats - 0.5 * grey.mean(),
        "saturation": 1.5 * floats - 0.5 * grey,
    }
    for name, expected in cases.items():
        jitter = T.ColorJitter(**{name: (1.5, 1.5)})
        np.testing.assert_allclose(jitter(floats), expected.clip(0, 1), atol=1e-6)
        for image in forms(array):
            found = as_planes(jitter(image)) / 255  # Pillow's enhancers round the grey
            np.testing.assert_allclose(found, expected.clip(0, 1), atol=2.5 / 255)
    turned = np.empty_like(floats)
    for row, column in np.ndindex(5, 7):
        hue, saturation, value = colorsys.rgb_to_hsv(*floats[:, row, column])
        turned[:, row, column] = colorsys.hsv_to_rgb((hue + 0.25) % 1, saturation, value)
    np.testing.assert_allclose(T.ColorJitter(hue=(0.25, 0.25))(floats), turned, atol=1e-6)
    found = as_planes(T.ColorJitter(hue=(0.25, 0.25))(PIL.fromarray(array))) / 255
    # Pillow's hues are bytes: the turn and the hue are off by up to 1/255 of the circle, six times as much in
    # a colour, and saturation, value and the colour are rounded.
    np.testing.assert_allclose(found, turned, atol=(6 * 2 + 3) / 255)
    for image in forms(array):
        once, thrice = (as_planes(T.Grayscale(n)(image)) for n in (1, 3))
        np.testing.assert_allclose(once[0] / 255, grey, atol=1.01 / 255)
        np.testing.assert_array_equal(thrice, once.repeat(3, 0))
        assert as_planes(T.RandomGrayscale(1.0)(image)).shape == (3, 5, 7)
    one = pixels(5, 7, 1)[:, :, 0]
    assert np.asarray(T.ColorJitter(0.5, 0.5, 0.5, 0.5)(PIL.fromarray(one))).shape == (5, 7)
    assert T.ColorJitter(0.5, 0.5, 0.5, 0.5)(one[None]).shape == (1, 5, 7)


def test_chance_is_seeded_and_fair() -> None:
    array = pixels(11, 9)

    def run(image: Any, seed: int) -> list[Any]:
        dl.manual_seed(seed)
        transforms = [
            T.RandomCrop(5, padding=2), T.RandomResizedCrop((4, 6)), T.RandomRotation(30),
            T.RandomHorizontalFlip(), T.ColorJitter(0.5, 0.5, 0.5, 0.2),
            T.RandomApply([T.Grayscale(3)]),
        ]  # fmt: skip
        return [as_planes(transform(image)).tolist() for transform in transforms for _ in range(3)]

    for image in forms(array):
        assert run(image, 1) == run(image, 1) != run(image, 2)
    dl.manual_seed(5)
    places = Counter(int(T.RandomCrop(1)(np.arange(6).reshape(1, 2, 3))[0, 0, 0]) for _ in range(3000))
    assert sorted(places) == list(range(6))
    assert all(abs(count - 500) < 110 for count in places.values())
    flips = sum(int(T.RandomHorizontalFlip(0.3)(np.array([[[0, 1]]]))[0, 0, 0]) for _ in range(3000))
    assert abs(flips - 900) < 120
    assert T.RandomCrop(15, pad_if_needed=True)(array.transpose(2, 0, 1)).shape == (3, 15, 15)


def test_parts_are_erased() -> None:
    dl.manual_seed(3)
    image = dl.ones(3, 20, 20, device="cpu")
    shares = []
    for _ in range(200):
        erased = T.RandomErasing(1.0, value=(2.0, 3.0, 4.0))(image).numpy()
        for channel, value in enumerate((2.0, 3.0, 4.0)):
            rows, columns = np.nonzero(erased[channel] == value)
            assert rows.size == (np.ptp(rows) + 1) * (np.ptp(columns) + 1)  # a rectangle
        shares.append(float((erased[0] == 2).mean()))
    assert 0.01 < min(shares) < 0.05
    assert 0.25 < max(shares) < 0.4
    assert image.sum().item() == 1200
    assert len(np.unique(T.RandomErasing(1.0, value="random")(image).numpy())) > 10
    assert T.RandomErasing(0.0)(image) is image


def test_a_pipeline_is_shown() -> None:
    pipeline = T.Compose([T.Resize(7), T.RandomHorizontalFlip(0.25)])
    assert "RandomHorizontalFlip(p=0.25)" in repr(pipeline)
    assert T.Transform.__call__ is not T.Resize.__call__


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: T.Resize(0), ArgumentError, "size must be at least 1"),
        (lambda: T.Resize(3, "cubic"), ArgumentError, "interpolation must be one of nearest, bilinear"),
        (lambda: T.Resize(3, antialias=False), ArgumentError, "antialias must be True"),
        (lambda: T.Resize((3, 4), max_size=5), ArgumentError, "max_size 5 needs a size that is one"),
        (lambda: T.Resize(3)("x"), ArgumentError, "expected a PIL image, or a tensor.*got str"),
        (lambda: T.Resize(3)(np.ones(3)), ArgumentError, r"got ndarray of shape \(3,\)"),
        (lambda: T.Pad((1, 2, 3)), ArgumentError, "padding must be 1, 2 or 4 numbers"),
        (lambda: T.Pad(1, padding_mode="wrap"), ArgumentError, "padding_mode must be one of"),
        (lambda: T.RandomCrop(5)(np.ones((1, 4, 9))), ArgumentError, "4 x 9 pixels is smaller than 5 x 5"),
        (lambda: T.RandomHorizontalFlip(1.5), ArgumentError, "p must be from 0 to 1"),
        (lambda: T.RandomResizedCrop(3, scale=(0.5, 0.2)), ArgumentError, "scale must be"),
        (lambda: T.RandomRotation(-3), ArgumentError, "degrees must be a number of at least 0"),
        (lambda: T.RandomRotation(3, "box"), ArgumentError, "interpolation must be nearest"),
        (lambda: T.ColorJitter(hue=0.7), ArgumentError, "hue must be from 0 to 0.5"),
        (lambda: T.ColorJitter(brightness=-1), ArgumentError, "brightness must be a number of at least 0"),
        (lambda: T.ColorJitter(hue=0.2)(np.ones((2, 3, 3))), ArgumentError, "expected 3 channels"),
        (lambda: T.Grayscale(2), ArgumentError, "must be 1 or 3"),
        (lambda: T.RandomErasing()(PIL.new("L", (3, 3))), ArgumentError, r"put ToTensor\(\) before it"),
        (lambda: T.RandomErasing(1, value=(1, 2))(np.ones((3, 9, 9))), ArgumentError, "2 numbers for 3"),
        (lambda: T.RandomErasing(value="noise"), ArgumentError, "value must be numbers or 'random'"),
        (lambda: T.ToTensor()(dl.ones(3, 3, 3)), ArgumentError, "got Tensor"),
        (lambda: T.PILToTensor()(np.ones((3, 3))), ArgumentError, "expected a PIL image"),
        (lambda: T.ToPILImage()(np.ones((3, 3, 5))), ArgumentError, "1 to 4 channels, got 5"),
        (lambda: T.Normalize((0.5,), (0.0,)), ArgumentError, "a standard deviation is 0"),
        (lambda: T.Normalize((0.5,), (0.5,))(PIL.new("L", (3, 3))), DTypeError, "got Image; put ToTensor"),
        (lambda: T.Normalize((0.5,), (0.5,))(np.ones((1, 2, 2), np.uint8)), DTypeError, "got uint8"),
        (lambda: T.Normalize((0.5,) * 2, (0.5,) * 2)(np.ones((3, 2, 2))), ShapeError, "2 means and 2 dev"),
        (lambda: T.Lambda(3), ArgumentError, "lambd must be a function"),  # type: ignore[arg-type]
    ],
)
def test_mistakes(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


# Data sets of images


def folder(root: Path) -> Path:
    for number, name in enumerate(("dog", "cat")):
        (root / name / "deep").mkdir(parents=True)
        for i, place in enumerate(("a.png", "deep/b.JPG")):
            PIL.fromarray(pixels(6 + i, 5, seed=number)).save(root / name / place)
    (root / "cat" / "notes.txt").write_text("no picture")
    return root


def test_a_folder_of_pictures_in_batches(tmp_path: Path) -> None:
    """With the classes, the older functions, and functions of an array."""
    root = folder(tmp_path)
    data = dl.data.ImageFolder(root)
    assert data.classes == ["cat", "dog"]
    assert data.class_to_idx == {"cat": 0, "dog": 1}
    assert data.targets == [0, 0, 1, 1]
    assert Path(data.samples[1][0]).name == "b.JPG"
    assert data[0][0].shape == (6, 5, 3)
    prepare = T.Compose([T.RandomResizedCrop(4), T.ToTensor(), T.Normalize([0.5] * 3, [0.5] * 3)])
    loader = dl.data.DataLoader(dl.data.ImageFolder(root, prepare), 4, num_workers=2, device="cpu")
    ((x, y),) = loader
    assert (x.shape, x.dtype, y.tolist()) == ((4, 3, 4, 4), dl.float32, [0, 0, 1, 1])
    older = dl.data.ImageFolder(root, dl.data.imagenet_eval, target_transform=lambda label: label + 5)
    assert older[3][0].shape == (3, 224, 224)
    assert older[3][1] == 6
    only = dl.data.ImageFolder(root, is_valid_file=lambda file: file.endswith("a.png"))
    assert len(only) == 2
    (root / "bird").mkdir()
    with pytest.raises(ArgumentError, match=r"bird are subfolders without pictures.*allow_empty"):
        dl.data.ImageFolder(root)
    assert len(dl.data.ImageFolder(root, allow_empty=True).classes) == 3
    with pytest.raises(ArgumentError, match="is no folder"):
        dl.data.ImageFolder(tmp_path / "none")


def write_idx(file: Path, array: Array, packed: bool) -> None:
    head = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes()
    raw = head + array.tobytes()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.with_name(f"{file.name}.gz" if packed else file.name).write_bytes(
        gzip.compress(raw) if packed else raw
    )


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("kind", [dl.data.MNIST, dl.data.FashionMNIST])
def test_files_of_mnist(tmp_path: Path, kind: Any, packed: bool) -> None:
    images, labels = pixels(7, 28, 28), np.arange(7, dtype=np.uint8)
    raw = tmp_path / kind.__name__ / "raw"
    with pytest.raises(
        ArgumentError, match=r"train-images-idx3-ubyte is missing; dl4all fetches nothing: get"
    ):
        kind(tmp_path, download=True)
    for part in ("train", "t10k"):
        write_idx(raw / f"{part}-images-idx3-ubyte", images if part == "train" else images[::-1], packed)
        write_idx(raw / f"{part}-labels-idx1-ubyte", labels, packed)
    data = kind(tmp_path, train=True, transform=T.ToTensor(), target_transform=str)
    assert (len(data), data[3][1]) == (7, "3")
    np.testing.assert_array_equal(data[3][0].numpy()[0], images[3] / np.float32(255))
    plain = kind(str(tmp_path), train=False)
    np.testing.assert_array_equal(plain[0][0], images[6])
    write_idx(raw / "t10k-labels-idx1-ubyte", labels[:3], packed)
    with pytest.raises(FileFormatError, match="7 images and 3 labels"):
        kind(tmp_path, train=False)
    file = next(iter(raw.glob("train-images*")))
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(FileFormatError, match="damaged"):
        kind(tmp_path)


def test_files_of_cifar(tmp_path: Path) -> None:
    images, labels = pixels(15, 32, 96), np.arange(15, dtype=np.uint8) % 10
    rows = np.concatenate([labels[:, None], images.reshape(15, 3072)], 1)
    root = tmp_path / "cifar-10-batches-bin"
    root.mkdir()
    for i in range(5):
        (root / f"data_batch_{i + 1}.bin").write_bytes(rows[3 * i : 3 * i + 3].tobytes())
    with pytest.raises(ArgumentError, match=r"test_batch\.bin is missing.*cifar-10-binary\.tar\.gz"):
        dl.data.CIFAR10(tmp_path, train=False)
    data = dl.data.CIFAR10(tmp_path, transform=T.PILToTensor())
    assert len(data) == 15
    for i in range(15):
        np.testing.assert_array_equal(data[i][0].numpy(), images.reshape(15, 3, 32, 32)[i])
        assert data[i][1] == labels[i]
    assert data.class_to_idx["truck"] == 9
    (root / "test_batch.bin").write_bytes(b"123")
    with pytest.raises(FileFormatError, match="no multiple of 3073"):
        dl.data.CIFAR10(tmp_path, train=False)
