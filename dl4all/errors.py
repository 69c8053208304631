"""Every error that dl4all raises on purpose.

    Dl4allError
    ├── ConfigError            dl4all.toml or an environment variable holds something unusable
    ├── DeviceError            a device cannot be used
    │   ├── UnknownDeviceError     no device has that name            (also a ValueError)
    │   ├── BackendMissingError    a library, driver or package is absent
    │   ├── DeviceLostError        the driver gave the device up
    │   ├── ForkError              a forked process uses a device of its parent
    │   ├── CancelledError         a task was cancelled before it ran
    │   ├── OutOfMemoryError       no device or host memory is left    (also a MemoryError)
    │   ├── FallbackError          an op would run on the CPU, which the policy forbids
    │   └── PipelineError          a driver does not build a kernel    (also a ShaderError)
    ├── ShaderError            GLSL does not compile, or SPIR-V does not match its declaration
    ├── ShapeError             shapes do not fit the op                (also a ValueError)
    ├── DTypeError             element types do not fit the op         (also a TypeError)
    ├── ArgumentError          any other argument an op cannot take    (also a ValueError)
    │   ├── TooLargeError          a tensor or a number is larger than kernels of the device can take
    │   └── ResumeError            a checkpoint is of another run than the one that goes on from it
    ├── GradientError          a gradient cannot be computed
    ├── TraceError             a model's work cannot be found out without computing
    ├── GraphError             a graph or its text is not sound         (also a ValueError)
    ├── ModuleError            a module cannot take a member           (also a TypeError, an AttributeError)
    ├── WeightsError           a state dict does not fit the module    (also a ValueError)
    ├── DataError              a data set or a worker of a loader broke off
    │   └── DataTimeoutError       a batch did not come in time        (also a TimeoutError)
    ├── FolderInUseError       another run writes to a folder
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
    "DataError",
    "DataTimeoutError",
    "DeviceError",
    "DeviceLostError",
    "Dl4allError",
    "FallbackError",
    "FileFormatError",
    "FolderInUseError",
    "ForkError",
    "GradientError",
    "GraphError",
    "ModuleError",
    "OutOfMemoryError",
    "PipelineError",
    "ResumeError",
    "ShaderError",
    "ShapeError",
    "TooLargeError",
    "TraceError",
    "UnknownDeviceError",
    "WeightsError",
]


class Dl4allError(Exception):
    """Base of all of them: ``except dl.Dl4allError`` catches what dl4all raises on purpose.

    ``deferred`` is true of one that a kernel found: whoever waited next raises it, and its message names the
    op and the line that it is about.
    """

    deferred = False


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


class ForkError(DeviceError):
    """A forked process uses a device of its parent, which drivers do not allow: start it by "spawn"."""


class CancelledError(DeviceError):
    """A task was cancelled before it ran."""


class OutOfMemoryError(DeviceError, MemoryError):
    """No memory of a device, or of the host for a file, is left."""


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


class ResumeError(ArgumentError):
    """A checkpoint is of another run than the one that is to go on from it; nothing was changed."""


class DataError(Dl4allError, RuntimeError):
    """A data set, a collate function or a worker of a DataLoader broke off without an error of its own."""


class DataTimeoutError(DataError, TimeoutError):
    """A batch did not come within the time that ``DataLoader(timeout=...)`` gives it."""


class FolderInUseError(Dl4allError, RuntimeError):
    """Another run, of this process or of another one, writes to a folder."""


class GradientError(Dl4allError, RuntimeError):
    """A gradient cannot be computed."""


class TraceError(Dl4allError, RuntimeError):
    """A model's work cannot be found out without computing: what it does depends on numbers."""


class GraphError(Dl4allError, ValueError):
    """A graph contradicts itself, or its text cannot be read."""


class ModuleError(Dl4allError, TypeError, AttributeError):
    """A module cannot take what is assigned to it, or has not been initialized."""


class WeightsError(Dl4allError, ValueError):
    """A state dict does not fit the module it is loaded into."""


class FileFormatError(Dl4allError, ValueError):
    """A file is unreadable, truncated or hostile."""
