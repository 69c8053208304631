"""A trained network whose weights are part of the package."""

from __future__ import annotations

import hashlib
from pathlib import Path

from safetensors.numpy import load

from dl4all.errors import FileFormatError
from dl4all.models.resnet import ResNet, resnet18

FILE = Path(__file__).with_name("weights") / "resnet18_digits.safetensors"
SHA256 = "3534fee59cf40c8c2b3df18345a32c5339a305cf2d9816afbc6eb20dc6853aa1"


def resnet18_digits() -> ResNet:
    """A trained ResNet-18 with 16 base channels that classifies handwritten digits, in inference mode.

    ``examples/resnet_digits.py`` trained it on four fifths of ``dl.data.digits(32)``; the test set is
    ``dl.data.random_split(dl.data.digits(32), (0.8, 0.2))[1]``. The file has float16 weights; the network
    computes in float32.

    Shape:
        (N, 1, 32, 32), from 0 to 1, to logits (N, 10).

    Raises:
        FileFormatError: the file is missing, or belongs to another version.

    Example:
        >>> import dl4all as dl
        >>> digits = dl.data.digits(32)[:3][0]
        >>> with dl.no_grad():
        ...     dl.models.resnet18_digits()(dl.from_numpy(digits)).argmax(1).tolist()
        [0, 1, 2]
    """
    try:
        content = FILE.read_bytes()
    except OSError as error:
        raise FileFormatError(f"{FILE}: cannot be read: {error.strerror}; install dl4all again") from None
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256:
        raise FileFormatError(
            f"{FILE}: damaged or of another version: its sha256 is {digest}, expected {SHA256}; install "
            "dl4all again"
        )
    network = resnet18(num_classes=10, in_channels=1, base_channels=16)
    network.load_state_dict(load(content))
    return network.eval()
