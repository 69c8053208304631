"""The name of a device: opened by it, compared, and entered by a ``with`` block."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from dl4all.errors import UnknownDeviceError

D = TypeVar("D", bound="NamedDevice")

ELSEWHERE = re.compile(r"(cuda|hip|mps|xpu|hpu|xla|meta|privateuseone)(:\d+)?")
"""Names of PyTorch's devices that scripts compare with, whether there are such devices or not."""


class Opener:
    """The function that opens a device by its name; the module that knows the opened devices sets it."""

    open: Callable[[Any], Any]
    is_named_cuda: Callable[[Any], bool]


opener = Opener()


class DeviceType(str):
    """The type of a device that is not the CPU: equal to ``"cuda"``, too, if scripts may be told so.

    >>> import dl4all as dl
    >>> dl.device("cpu").type == "cuda"
    False
    """

    __slots__ = ("_device",)
    _device: Any
    __hash__ = str.__hash__

    def __new__(cls, word: str, device: Any) -> DeviceType:
        made = super().__new__(cls, word)
        made._device = device
        return made

    def __eq__(self, other: object) -> bool:
        if str.__eq__(self, other) is True:
            return True
        named = not isinstance(other, DeviceType) and other == "cuda"
        return named and opener.is_named_cuda(self._device)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)


class CpuUse:
    """The ways in which this process uses the CPU beside other devices."""

    def __init__(self) -> None:
        self.is_named = False  # by dl.device("cpu")
        self.is_mixed = False  # with another device, which has been opened


cpu_use = CpuUse()


class NamedDevice:
    """The part of a device that ``torch.device`` has: a type, an index, and names that are equal to it."""

    name: str

    def __new__(cls: type[D], name: Any = "auto", index: int | None = None, *, type: str | None = None) -> D:
        spelled = name if type is None else type
        if index is not None:
            spelled = f"{spelled}:{int(index)}"
        if isinstance(spelled, str) and spelled.startswith("cpu"):
            cpu_use.is_named = True
        try:
            found: D = opener.open(spelled)
        except UnknownDeviceError:
            if isinstance(spelled, str) and ELSEWHERE.fullmatch(spelled):
                return AbsentDevice(spelled)  # type: ignore[return-value]
            raise
        return found

    def __repr__(self) -> str:
        return f"device({self.name!r})"

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, str):
            return self is other
        return self.name == other or (other.startswith("cuda") and type(self)(other) is self)

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copies have the name: whoever reads it opens the device of that name there."""
        return type(self), (self.name,)

    @property
    def type(self) -> str:
        """The backend: ``"cpu"``, ``"vulkan"``, ``"kompute"``, ...

        >>> import dl4all as dl
        >>> dl.device("cpu").type, dl.device("cpu").index
        ('cpu', None)
        """
        word = self.name.partition(":")[0].partition("#")[0]
        return word if word == "cpu" else DeviceType(word, self)

    @property
    def index(self) -> int | None:
        """The number among the devices of that type; None for the CPU."""
        digits = self.name.partition("#")[0].partition(":")[2]
        return int(digits) if digits else None

    def __enter__(self: D) -> D:
        """In a ``with`` block, ``device="auto"`` means this device in this thread."""
        entered.stack.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        entered.stack.pop()


class AbsentDevice(str):
    """The name of a device of PyTorch's that is not here: compared, not used.

    ``dl.device("cuda").type`` is what scripts compare with. Wherever a device is needed, this is a name of
    which there is none.

    >>> import dl4all as dl
    >>> dl.device("cpu").type == dl.device("cuda").type
    False
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        """Refuse an attribute that a device would have, but no name."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_open(self), name)

    @property
    def type(self) -> str:
        return self.partition(":")[0]

    @property
    def index(self) -> int | None:  # type: ignore[override]  # of str, which finds characters
        digits = self.partition(":")[2]
        return int(digits) if digits else None

    def __enter__(self) -> Any:
        return _open(self).__enter__()

    def __exit__(self, *error: object) -> None:
        raise AssertionError("nothing was entered")


def _open(name: str) -> Any:
    """
    Raises:
        UnknownDeviceError: there is no such device.
    """
    return opener.open(name)


class _Entered(threading.local):
    """The devices of the ``with`` blocks that a thread is in."""

    def __init__(self) -> None:
        self.stack: list[Any] = []


entered = _Entered()
