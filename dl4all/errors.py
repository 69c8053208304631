"""Every error that dl4all raises on purpose.

    Dl4allError                (a RuntimeError)
    ├── ConfigError            dl4all.toml or an environment variable holds something unusable
    ├── DeviceError            a device cannot be used
    │   ├── UnknownDeviceError     no device has that name            (also a ValueError)
    │   ├── BackendMissingError    a library, driver or package is absent
    │   ├── DeviceLostError        the driver gave the device up
    │   ├── ForkError              a forked process uses a device of its parent
    │   ├── CancelledError         a task was cancelled before it ran
    │   ├── QueueFullError         an inference queue has no room
    │   ├── InferenceTimeoutError  no device began with a request in time (also a TimeoutError)
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
    ├── OperatorError          a model file has operators that are not here (also a NotImplementedError)
    ├── ModuleError            a module cannot take a member           (also a TypeError, an AttributeError)
    ├── WeightsError           a state dict does not fit the module    (also a ValueError)
    ├── DataError              a data set or a worker of a loader broke off
    │   └── DataTimeoutError       a batch did not come in time        (also a TimeoutError)
    ├── FolderInUseError       another run writes to a folder
    ├── DistError              processes that train together do not do the same
    │   └── DistNetworkError       one of them does not answer
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
    "DistError",
    "DistNetworkError",
    "Dl4allError",
    "FallbackError",
    "FileFormatError",
    "FolderInUseError",
    "ForkError",
    "GradientError",
    "GraphError",
    "InferenceTimeoutError",
    "ModuleError",
    "OperatorError",
    "OutOfMemoryError",
    "PipelineError",
    "QueueFullError",
    "ResumeError",
    "ShaderError",
    "ShapeError",
    "TooLargeError",
    "TraceError",
    "UnknownDeviceError",
    "WeightsError",
]


class Dl4allError(RuntimeError):
    """Base of all of them: ``except dl.Dl4allError`` catches what dl4all raises on purpose.

    It is a RuntimeError, which scripts for PyTorch expect where an op refuses its operands.

    ``deferred`` is true of one that a kernel found: whoever waited next raises it, and its message names the
    op and the line that it is about.

    Example:
        >>> import dl4all as dl
        >>> try:
        ...     dl.ones(3, 4) @ dl.ones(5, 6)
        ... except dl.Dl4allError as error:
        ...     print(error)
        [matmul] inner sizes differ: (3, 4) @ (5, 6)
    """

    deferred = False


class ConfigError(Dl4allError, ValueError):
    """A configuration file or environment variable holds something unusable.

    Example:
        >>> import dl4all as dl
        >>> import pathlib
        >>> size = pathlib.Path("run.toml").write_text("epoch = 3")
        >>> try:
        ...     dl.training.read_config("run.toml")
        ... except dl.errors.ConfigError as error:
        ...     print("epoch" in str(error))
        True
    """


class DeviceError(Dl4allError, RuntimeError):
    """A device cannot be used.

    Example:
        >>> import dl4all as dl
        >>> try:
        ...     dl.ones(2, device="gpu9")
        ... except dl.errors.DeviceError as error:
        ...     print(type(error).__name__)
        UnknownDeviceError
    """


class UnknownDeviceError(DeviceError, ValueError):
    """No device has that name.

    Example:
        >>> import dl4all as dl
        >>> try:
        ...     dl.ones(2, device="gpu9")
        ... except dl.errors.UnknownDeviceError as error:
        ...     print(str(error).split(";")[0])
        unknown device 'gpu9'
    """


class BackendMissingError(DeviceError):
    """A library, driver or package that a backend needs is absent.

    Example:
        >>> import dl4all as dl
        >>> try:
        ...     net = dl.nn.Linear(2, 2).to("vulkan:0")
        ... except (dl.errors.BackendMissingError, dl.errors.UnknownDeviceError):  # there is no driver
        ...     net = dl.nn.Linear(2, 2).to("cpu")
    """


class DeviceLostError(DeviceError):
    """The driver gave the device up; what it held is gone, host copies are not.

    Example:
        >>> import dl4all as dl
        >>> def train(device):
        ...     raise dl.errors.DeviceLostError("[vulkan:0] the driver gave the device up")
        >>> try:
        ...     train("vulkan:0")
        ... except dl.errors.DeviceLostError:  # tensors there are gone: begin again from a checkpoint
        ...     print("resume on the CPU")
        resume on the CPU
    """


class ForkError(DeviceError):
    """A forked process uses a device of its parent, which drivers do not allow: start it by "spawn".

    Example:
        >>> import dl4all as dl
        >>> import multiprocessing
        >>> multiprocessing.get_context("spawn").get_start_method()  # children so started may use devices
        'spawn'
    """


class CancelledError(DeviceError):
    """A task was cancelled before it ran.

    Example:
        >>> import dl4all as dl
        >>> issubclass(dl.errors.CancelledError, dl.errors.DeviceError)
        True
    """


class QueueFullError(DeviceError):
    """An inference queue has no room for another request: send fewer, wait longer, or add devices.

    Example:
        >>> import dl4all as dl
        >>> group = dl.DeviceGroup(["cpu"])
        >>> with dl.InferenceQueue(dl.nn.ReLU(), group, max_batch=8, max_wait=0.1, limit=1) as queue:
        ...     first = queue.submit([1.0])
        ...     try:
        ...         queue.submit([2.0], timeout=0)
        ...     except dl.errors.QueueFullError:
        ...         print("later")
        later
    """


class InferenceTimeoutError(DeviceError, TimeoutError):
    """No device began with a request before it expired; nothing of it was computed.

    Example:
        >>> import dl4all as dl
        >>> issubclass(dl.errors.InferenceTimeoutError, TimeoutError)
        True
    """


class OutOfMemoryError(DeviceError, MemoryError):
    """No memory of a device, or of the host for a file, is left.

    Example:
        >>> import dl4all as dl
        >>> dl.memory.limit("cpu", dl.memory.stats("cpu").reserved + 2**20)
        >>> try:
        ...     dl.ones(2**22, device="cpu")
        ... except dl.errors.OutOfMemoryError as error:
        ...     print(isinstance(error, MemoryError))
        tensor([1., 1., 1., ..., 1., 1., 1.])
        >>> dl.memory.limit("cpu", None)
    """


class FallbackError(DeviceError):
    """An op would run on the CPU for want of a kernel, and ``dl.fallback.policy("error")`` forbids that.

    Example:
        >>> import dl4all as dl
        >>> with dl.fallback.policy("error"):  # an op that a device has no kernel for raises it here
        ...     total = dl.ones(2, device="cpu").sum().item()
        >>> total
        2.0
    """


class ShaderError(Dl4allError, RuntimeError):
    """GLSL does not compile, or SPIR-V does not match its declaration.

    Example:
        >>> import dl4all as dl
        >>> issubclass(dl.errors.ShaderError, RuntimeError)
        True
    """


class PipelineError(DeviceError, ShaderError):
    """A driver does not build a kernel. Most ops are computed on the host then.

    Example:
        >>> import dl4all as dl
        >>> issubclass(dl.errors.PipelineError, (dl.errors.ShaderError, dl.errors.DeviceError))
        True
    """


class ShapeError(Dl4allError, ValueError):
    """Shapes do not fit the op.

    Example:
        >>> import dl4all as dl
        >>> dl.ones(3, 4) @ dl.ones(5, 6)
        Traceback (most recent call last):
            ...
        dl4all.errors.ShapeError: [matmul] inner sizes differ: (3, 4) @ (5, 6)
    """


class DTypeError(Dl4allError, TypeError):
    """Element types do not fit the op.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.softmax(dl.ones(2, 3, dtype=dl.int64), -1)
        Traceback (most recent call last):
            ...
        dl4all.errors.DTypeError: [softmax] expected floats of one dtype, got int64; convert with .to(dtype)
    """


class ArgumentError(Dl4allError, ValueError):
    """An argument that the op cannot take.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.Conv2d(0, 3, 3)
        Traceback (most recent call last):
            ...
        dl4all.errors.ArgumentError: [Conv2d] 0 input and 3 output channels do not split into 1 groups
    """


class TooLargeError(ArgumentError):
    """A tensor or a number larger than a device's kernels can take. The host computes most ops then.

    Example:
        >>> import dl4all as dl
        >>> issubclass(dl.errors.TooLargeError, dl.errors.ArgumentError)
        True
    """


class ResumeError(ArgumentError):
    """A checkpoint is of another run than the one that is to go on from it; nothing was changed.

    Example:
        >>> import dl4all as dl
        >>> x, y = dl.rand(8, 2), dl.rand(8, 1)
        >>> def trainer_of(optimizer):
        ...     net = dl.nn.Linear(2, 1)
        ...     steps = optimizer(net.parameters(), lr=0.1)
        ...     return dl.Trainer(net, dl.nn.MSELoss(), steps, device="cpu", folder="run", progress=False)
        >>> batches = dl.data.DataLoader(dl.data.TensorDataset(x, y), 4, device="cpu")
        >>> history = trainer_of(dl.optim.SGD).fit(batches, epochs=1)
        >>> try:
        ...     trainer_of(dl.optim.AdamW).fit(batches, epochs=2, resume=True)
        ... except dl.errors.ResumeError as error:
        ...     print("optimizer" in str(error))
        True
    """


class DataError(Dl4allError, RuntimeError):
    """A data set, a collate function or a worker of a DataLoader broke off without an error of its own.

    Example:
        >>> import dl4all as dl
        >>> def one_pass():
        ...     raise StopIteration
        >>> class Broken:
        ...     def __len__(self):
        ...         return 2
        ...
        ...     def __getitem__(self, index):
        ...         return one_pass()
        >>> try:
        ...     batches = list(dl.data.DataLoader(Broken(), 2))
        ... except dl.errors.DataError as error:
        ...     print("StopIteration" in str(error))
        True
    """


class DataTimeoutError(DataError, TimeoutError):
    """A batch did not come within the time that ``DataLoader(timeout=...)`` gives it.

    Example:
        >>> import dl4all as dl
        >>> import time
        >>> class Slow:
        ...     def __len__(self):
        ...         return 2
        ...
        ...     def __getitem__(self, index):
        ...         time.sleep(0.3)
        ...         return float(index)
        >>> try:
        ...     batches = list(dl.data.DataLoader(Slow(), 2, num_workers=1, timeout=0.05))
        ... except dl.errors.DataTimeoutError as error:
        ...     print(isinstance(error, TimeoutError))
        True
    """


class FolderInUseError(Dl4allError, RuntimeError):
    """Another run, of this process or of another one, writes to a folder.

    Example:
        >>> import dl4all as dl
        >>> with dl.io.lock_folder("run"):
        ...     try:
        ...         with dl.io.lock_folder("run"):
        ...             pass
        ...     except dl.errors.FolderInUseError:
        ...         print("another run writes there")
        another run writes there
    """


class DistError(Dl4allError, RuntimeError):
    """Processes of a group cannot do together what they were asked to, such as different collectives.

    Example:
        >>> import dl4all as dl
        >>> try:
        ...     dl.distributed.get_process_group_ranks()
        ... except dl.errors.DistError as error:
        ...     print("init_process_group" in str(error))
        True
    """


class DistNetworkError(DistError):
    """A process of a group has ended, cannot be reached, or did not answer in time. It is no device's
    failure.

    Example:
        >>> import dl4all as dl
        >>> issubclass(dl.errors.DistNetworkError, dl.errors.DistError)
        True
    """


class GradientError(Dl4allError, RuntimeError):
    """A gradient cannot be computed.

    Example:
        >>> import dl4all as dl
        >>> try:
        ...     dl.ones(2).sum().backward()
        ... except dl.errors.GradientError as error:
        ...     print(str(error).partition(":")[0])
        [backward] the tensor does not require gradients
    """


class TraceError(Dl4allError, RuntimeError):
    """A model's work cannot be found out without computing: what it does depends on numbers.

    Example:
        >>> import dl4all as dl
        >>> issubclass(dl.errors.TraceError, dl.Dl4allError)
        True
    """


class GraphError(Dl4allError, ValueError):
    """A graph contradicts itself, or its text cannot be read.

    Example:
        >>> import dl4all as dl
        >>> issubclass(dl.errors.GraphError, ValueError)
        True
    """


class OperatorError(Dl4allError, NotImplementedError):
    """A model file has operators, or forms of them, that are not here.

    Example:
        >>> import dl4all as dl
        >>> issubclass(dl.errors.OperatorError, NotImplementedError)
        True
    """


class ModuleError(Dl4allError, TypeError, AttributeError):
    """A module cannot take what is assigned to it, or has not been initialized.

    Example:
        >>> import dl4all as dl
        >>> net = dl.nn.Linear(2, 3)
        >>> try:
        ...     net.weight = dl.ones(3, 2)
        ... except dl.errors.ModuleError as error:
        ...     print(str(error).partition(":")[0])
        [Linear] cannot assign Tensor as parameter 'weight'
    """


class WeightsError(Dl4allError, ValueError):
    """A state dict does not fit the module it is loaded into.

    Example:
        >>> import dl4all as dl
        >>> try:
        ...     dl.nn.Linear(2, 3).load_state_dict({})
        ... except dl.errors.WeightsError as error:
        ...     print("weight" in str(error))
        True
    """


class FileFormatError(Dl4allError, ValueError):
    """A file is unreadable, truncated or hostile.

    Example:
        >>> import dl4all as dl
        >>> import pathlib
        >>> size = pathlib.Path("broken.safetensors").write_bytes(b"not weights at all")
        >>> try:
        ...     dl.io.load_weights("broken.safetensors")
        ... except dl.errors.FileFormatError as error:
        ...     print("broken.safetensors" in str(error))
        True
    """
