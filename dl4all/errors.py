"""Every error that dl4all raises on purpose.

    Dl4allError
    ├── ConfigError            dl4all.toml or an environment variable holds something unusable
    ├── DeviceError            a device cannot be used
    │   ├── UnknownDeviceError     no device has that name            (also a ValueError)
    │   ├── BackendMissingError    a library, driver or package is absent
    │   ├── DeviceLostError        the driver gave the device up
    │   ├── CancelledError         a task was cancelled before it ran
    │   ├── OutOfMemoryError       no device memory is left            (also a MemoryError)
    │   ├── FallbackError          an op would run on the CPU, which the policy forbids
    │   └── PipelineError          a driver does not build a kernel    (also a ShaderError)
    ├── ShaderError            GLSL does not compile, or SPIR-V does not match its declaration
    ├── ShapeError             shapes do not fit the op                (also a ValueError)
    ├── DTypeError             element types do not fit the op         (also a TypeError)
    ├── ArgumentError          any other argument an op cannot take    (also a ValueError)
    │   └── TooLargeError          a tensor or a number is larger than kernels of the device can take
    ├── GradientError          a gradient cannot be computed
    ├── TraceError             a model's work cannot be found out without computing
    ├── WeightsError           a state dict does not fit the module    (also a ValueError)
    └── FileFormatError        a file is unreadable, truncated or hostile (also a ValueError)

A message names the op or the file, what was expected, what came, and what to do:
``[matmul] inner sizes differ: (3, 4) @ (5, 6)``.
"""

from __future__ import annotations

__all__ = [
    "ArgumentError",
    "BackendMissingError",
    "CancelledError",
    "ConfigError",
    "DTypeError",
    "DeviceError",
    "DeviceLostError",
    "Dl4allError",
    "FallbackError",
    "FileFormatError",
    "GradientError",
    "OutOfMemoryError",
    "PipelineError",
    "ShaderError",
    "ShapeError",
    "TooLargeError",
    "TraceError",
    "UnknownDeviceError",
    "WeightsError",
]


class Dl4allError(Exception):
    """Base of all of them: ``except dl.Dl4allError`` catches what dl4all raises on purpose."""


class ConfigError(Dl4allError, ValueError):
    """A configuration file or environment variable holds something unusable."""


class DeviceError(Dl4allError, RuntimeError):
    """A device cannot be used."""


class UnknownDeviceError(DeviceError, ValueError):
    """No device has that name."""


class BackendMissingError(DeviceError):
    """A library, driver or package that a backend needs is absent."""


class DeviceLostError(DeviceError):
    """The driver gave the device up; what it held is gone, host copies are not."""


class CancelledError(DeviceError):
    """A task was cancelled before it ran."""


class OutOfMemoryError(DeviceError, MemoryError):
    """No device memory is left."""


class FallbackError(DeviceError):
    """An op would run on the CPU for want of a kernel, and ``dl.fallback.policy("error")`` forbids that."""


class ShaderError(Dl4allError, RuntimeError):
    """GLSL does not compile, or SPIR-V does not match its declaration."""


class PipelineError(DeviceError, ShaderError):
    """A driver does not build a kernel. Most ops are computed on the host then."""


class ShapeError(Dl4allError, ValueError):
    """Shapes do not fit the op."""


class DTypeError(Dl4allError, TypeError):
    """Element types do not fit the op."""


class ArgumentError(Dl4allError, ValueError):
    """An argument that the op cannot take."""


class TooLargeError(ArgumentError):
    """A tensor or a number larger than a device's kernels can take. The host computes most ops then."""


class GradientError(Dl4allError, RuntimeError):
    """A gradient cannot be computed."""


class TraceError(Dl4allError, RuntimeError):
    """A model's work cannot be found out without computing: what it does depends on numbers."""


class WeightsError(Dl4allError, ValueError):
    """A state dict does not fit the module it is loaded into."""


class FileFormatError(Dl4allError, ValueError):
    """A file is unreadable, truncated or hostile."""
