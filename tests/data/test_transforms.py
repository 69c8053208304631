"""Preprocessing against torchvision's formulas, written out again here, on real photographs."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dl4all import data
from dl4all.errors import ArgumentError, BackendMissingError, DTypeError, FileFormatError, ShapeError

Image = pytest.importorskip("PIL.Image")
ImageOps = pytest.importorskip("PIL.ImageOps")
sklearn_datasets = pytest.importorskip("sklearn.datasets")

PHOTOS = Path(sklearn_datasets.__file__).with_name("images")


def photo(name: str = "china.jpg") -> Any:
    return Image.open(PHOTOS / name).convert("RGB")


SHAPES = {
    "landscape": (640, 427),
    "portrait": (427, 640),
    "square": (400, 400),
    "exact": (256, 256),
    "small": (37, 23),
    "tiny": (3, 2),
    "line": (500, 1),
    "odd": (511, 301),
    "a little wider": (257, 256),
}


def shaped(shape: tuple[int, int]) -> Any:
    return photo("flower.jpg").resize(shape, Image.Resampling.BOX)


def pixels(image: Any) -> np.ndarray[Any, Any]:
    return np.array(image)


def reference(image: Any, resize_to: int, crop: int) -> np.ndarray[Any, Any]:
    """torchvision's ImageClassification preset, in NumPy after Pillow's resize."""
    width, height = image.size
    if width <= height:
        new = (resize_to, int(resize_to * height / width))
    else:
        new = (int(resize_to * width / height), resize_to)
    bytes_ = pixels(image.resize(new, Image.Resampling.BILINEAR))
    pad = [((max(crop - n, 0)) // 2, (max(crop - n, 0) + 1) // 2) for n in bytes_.shape[:2]]
    bytes_ = np.pad(bytes_, [*pad, (0, 0)])
    top = int(round((bytes_.shape[0] - crop) / 2.0))  # noqa: RUF046  (as torchvision writes it)
    left = int(round((bytes_.shape[1] - crop) / 2.0))  # noqa: RUF046
    values = bytes_[top : top + crop, left : left + crop].astype(np.float32).transpose(2, 0, 1) / np.float32(
        255
    )
    mean = np.array([0.485, 0.456, 0.406], np.float32).reshape(3, 1, 1)
    std = np.array([0.229, 0.224, 0.225], np.float32).reshape(3, 1, 1)
    normal: np.ndarray[Any, Any] = (values - mean) / std
    return normal


# ---- the whole, and its steps -----------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(("resize_to", "crop"), [(256, 224), (232, 224), (224, 224), (100, 224), (60, 61)])
def test_imagenet_eval(shape: tuple[int, int], resize_to: int, crop: int) -> None:
    image = shaped(shape)
    before = pixels(image)
    array = data.imagenet_eval(image, resize_to=resize_to, crop=crop)
    assert array.dtype == np.float32
    assert array.shape == (3, crop, crop)
    assert array.flags.c_contiguous
    np.testing.assert_array_equal(array, reference(image, resize_to, crop))
    np.testing.assert_array_equal(pixels(image), before)


def test_imagenet_eval_of_a_photograph() -> None:
    array = data.imagenet_eval(data.load_image(PHOTOS / "china.jpg"))
    assert array.shape == (3, 224, 224)
    np.testing.assert_array_equal(array, reference(photo(), 256, 224))
    assert array.std() > 0.5


def test_resize_truncates_the_long_side() -> None:
    assert data.resize(shaped((640, 427)), 256).size == (383, 256)  # 383.70
    assert data.resize(shaped((427, 640)), 256).size == (256, 383)
    assert data.resize(shaped((999, 500)), 224).size == (447, 224)  # 447.55
    assert data.resize(shaped((5, 400)), 7).size == (7, 560)


def test_resize_antialiases() -> None:
    """Shrinking averages: close to the area means of the photograph, unlike a plain bilinear lookup."""
    image = photo().crop((0, 0, 640, 424))
    small = pixels(data.resize(image, 53)).astype(float)
    means = pixels(image).reshape(53, 8, 80, 8, 3).mean((1, 3))
    lookup = pixels(image)[4::8, 4::8].astype(float)
    assert small.shape == means.shape == lookup.shape
    assert abs(small - means).mean() < abs(lookup - means).mean() / 2


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "CMYK"])
@pytest.mark.parametrize(
    "shape", [(300, 300), (301, 300), (300, 303), (10, 301), (223, 10), (10, 7), (224, 224)]
)
def test_center_crop(mode: str, shape: tuple[int, int]) -> None:
    image = shaped(shape).convert(mode)
    width, height = shape
    low_x, low_y = max(224 - width, 0), max(224 - height, 0)
    border = (low_x // 2, low_y // 2, (low_x + 1) // 2, (low_y + 1) // 2)
    padded = pixels(ImageOps.expand(image, border=border, fill=0))
    top, left = round((padded.shape[0] - 224) / 2), round((padded.shape[1] - 224) / 2)
    cropped = data.center_crop(image, 224)
    assert cropped.mode == mode
    np.testing.assert_array_equal(pixels(cropped), padded[top : top + 224, left : left + 224])


@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("L", 1), ("RGBA", 4), ("CMYK", 4)])
def test_to_array(mode: str, channels: int) -> None:
    image = photo().convert(mode)
    array = data.to_array(image)
    assert array.dtype == np.float32
    assert array.shape == (channels, 427, 640)
    assert array.flags.c_contiguous
    assert array.flags.writeable
    for x, y in [(0, 0), (639, 0), (100, 300), (639, 426)]:
        want = np.atleast_1d(image.getpixel((x, y))).astype(np.float32) / np.float32(255)
        np.testing.assert_array_equal(array[:, y, x], want)


def test_normalize() -> None:
    array = data.to_array(photo())
    normal = data.normalize(array, data.IMAGENET_MEAN, data.IMAGENET_STD)
    assert normal.dtype == np.float32
    exact = (array.astype(float) - np.reshape(data.IMAGENET_MEAN, (3, 1, 1))) / np.reshape(
        data.IMAGENET_STD, (3, 1, 1)
    )
    np.testing.assert_allclose(normal, exact, atol=1e-6)
    batch = np.stack([array, array[:, ::-1]])
    np.testing.assert_array_equal(data.normalize(batch, data.IMAGENET_MEAN, data.IMAGENET_STD)[0], normal)


def test_agrees_with_torch() -> None:
    """ToTensor and Normalize are torch arithmetic in torchvision; the same to the last bit."""
    torch = pytest.importorskip("torch")
    image = photo()
    tensor = torch.from_numpy(pixels(image)).permute(2, 0, 1).contiguous().to(torch.float32).div(255)
    np.testing.assert_array_equal(data.to_array(image), tensor.numpy())
    mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (data.IMAGENET_MEAN, data.IMAGENET_STD))
    normal = data.normalize(data.to_array(image), data.IMAGENET_MEAN, data.IMAGENET_STD)
    np.testing.assert_array_equal(normal, tensor.sub_(mean).div_(std).numpy())


# ---- files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [("RGB", "png"), ("L", "png"), ("L", "jpg"), ("P", "png"), ("P", "gif"), ("RGBA", "png"), ("LA", "png"),
     ("1", "png"), ("CMYK", "jpg"), ("CMYK", "tif"), ("RGB", "webp"), ("RGB", "bmp")],
)  # fmt: skip
def test_load_image_converts_as_torchvision(tmp_path: Path, mode: str, suffix: str) -> None:
    image = photo().resize((90, 60))
    if mode == "RGBA":
        image.putalpha(image.convert("L"))
    path = tmp_path / f"photo.{suffix}"
    image.convert(mode).save(path)
    loaded = data.load_image(str(path))
    assert loaded.mode == "RGB"
    with Image.open(path) as file:
        assert file.mode == mode
        np.testing.assert_array_equal(pixels(loaded), pixels(file.convert("RGB")))
    assert data.imagenet_eval(loaded).shape == (3, 224, 224)


def test_load_image_leaves_the_exif_orientation(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    photo().save(tmp_path / "turned.jpg", exif=exif)
    assert data.load_image(tmp_path / "turned.jpg").size == (640, 427)


def refusal(path: Path) -> str:
    with pytest.raises(FileFormatError) as caught:
        data.load_image(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def test_files_that_are_no_picture(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "absent.jpg")
    assert "directory" in refusal(tmp_path)
    for content in (b"", b"hello", bytes(1000), b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"):
        (tmp_path / "a.jpg").write_bytes(content)
        assert "picture" in refusal(tmp_path / "a.jpg")


def test_decompression_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photo().save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 640 * 427 // 3)
    assert "too large" in refusal(tmp_path / "a.png")


@pytest.mark.filterwarnings("ignore")  # Pillow's own, about odd metadata
def test_truncated_and_flipped_pictures(tmp_path: Path) -> None:
    seeded = np.random.default_rng(11)
    for suffix in ("png", "jpeg", "gif", "webp", "tiff", "bmp"):
        buffer = io.BytesIO()
        photo().resize((48, 32)).save(buffer, suffix)
        whole = buffer.getvalue()
        path = tmp_path / f"a.{suffix}"
        for length in seeded.integers(0, len(whole) * 3 // 4, 30):
            path.write_bytes(whole[:length])
            refusal(path)
        for _ in range(150):
            content = bytearray(whole)
            for _ in range(3):
                content[seeded.integers(min(len(content), 400))] = seeded.integers(256)
            path.write_bytes(content)
            try:
                assert data.load_image(path).mode == "RGB"
            except FileFormatError:
                continue


# ---- arguments, and Pillow's absence ----------------------------------------------------------------


def test_bad_arguments() -> None:
    image = photo()
    with pytest.raises(ArgumentError, match=r"\[resize\] size must be positive, got 0"):
        data.resize(image, 0)
    with pytest.raises(ArgumentError, match=r"\[center_crop\] size must be positive, got -3"):
        data.center_crop(image, -3)
    with pytest.raises(ArgumentError, match=r"\[resize\] the image is empty"):
        data.resize(Image.new("RGB", (0, 5)), 10)
    with pytest.raises(ArgumentError, match=r"\[resize\] 200000 x 1 pixels .* pixels; crop"):
        data.imagenet_eval(Image.new("RGB", (200_000, 1)), resize_to=256)
    for mode in ("P", "1", "I", "F", "LA", "I;16"):
        with pytest.raises(ArgumentError, match=rf"\[to_array\] .* got {mode}; "):
            data.to_array(Image.new(mode, (2, 2)))
    array = data.to_array(image)
    with pytest.raises(DTypeError, match=r"\[normalize\] expected float32, got float64"):
        data.normalize(array.astype(float), [0] * 3, [1] * 3)
    for values, mean, std in [(array[0], [0] * 3, [1] * 3), (array, [0], [1] * 3), (array, [0] * 3, [1] * 2)]:
        with pytest.raises(ShapeError, match=r"\[normalize\] expected \(\.\.\., C, height, width\)"):
            data.normalize(values, mean, std)
    with pytest.raises(ArgumentError, match="is 0"):
        data.normalize(array, [0] * 3, [1, 0, 1])


def test_pillow_is_needed_only_when_called(monkeypatch: pytest.MonkeyPatch) -> None:
    image = photo()
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    for call in (
        lambda: data.load_image("a.png"),
        lambda: data.resize(image, 10),
        lambda: data.imagenet_eval(image),
    ):
        with pytest.raises(BackendMissingError, match="pip install pillow"):
            call()
    code = "import sys; import dl4all.data; print('PIL' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_exports() -> None:
    assert sorted(data.__all__) == sorted(set(data.__all__))
    assert all(hasattr(data, name) for name in data.__all__)
    assert all(getattr(data, name).__doc__ for name in data.__all__ if callable(getattr(data, name)))
