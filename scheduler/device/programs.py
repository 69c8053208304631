"""Launches, and the table of programs that a device has compiled for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dl4all.errors import PipelineError, ShaderError, TooLargeError
from dl4all.runtime import spirv
from dl4all.runtime.bounded_dict import BoundedDict
from dl4all.runtime.protocols import Backend, Grid, Program
from dl4all.runtime.records.compile_times import compiling
from dl4all.runtime.requirements import check_bindings
from dl4all.runtime.spirv import SpirvModule
from dl4all.scheduler.device.plan_table import PlanTable


@dataclass(frozen=True)
class Launch:
    """One dispatch: which shader, over how many workgroups, with which constants.

    ``push`` fills the push constants; ``constants`` are the values of spec ids 0, 1, 2, ...
    ``flops`` helps to predict how long it takes, where that is not the time to read and write its operands.
    """

    shader: spirv.Shader
    groups: Grid
    push: bytes = b""
    constants: tuple[int, ...] = ()
    flops: int = 0


Key = tuple[spirv.Shader, tuple[int, ...]]

MOST = 2048
"""Programs that a device keeps. There are some 900 shaders, but constants can be the sizes of a window, which
users choose."""


class Programs:
    """Compiled programs by shader and constants, each made at its first launch.

    What the driver did not build is remembered, and not tried again. When there are ``most``, the older half
    is freed, and built again if it is needed: for each that is built again, at least one was new.
    """

    def __init__(
        self, backend: Backend, most: int = MOST, before_compiling: Callable[[], object] | None = None
    ) -> None:
        """
        Args:
            backend: builds programs.
            most: how many are kept.
            before_compiling: called before a shader is loaded that may have to be compiled, so that a device
                begins meanwhile with what it was asked for.
        """
        self._backend = backend
        self._before_compiling = before_compiling
        self.plans = PlanTable()  # they hold programs
        self._most = most
        self._compiled: dict[Key, Program] = {}
        self._refused = BoundedDict[Key, str](most)  # what the driver said

    def find(self, launch: Launch, bindings: int) -> Program:
        """The program of a launch that binds that number of buffers.

        Raises:
            ShaderError: the shader's interface is not what the launch says.
            PipelineError: the driver does not build it, now or earlier.
            TooLargeError: a constant has more than 32 bits.
        """
        key = (launch.shader, launch.constants)
        program = self._compiled.get(key)
        if program is None:
            if key in self._refused:
                raise PipelineError(self._refused[key])
            if self._before_compiling is not None:
                self._before_compiling()
            with compiling(self._backend.info.names[0]):
                module = spirv.load(launch.shader)
            if not all(0 <= constant < 2**32 for constant in launch.constants):
                raise TooLargeError(
                    f"[{launch.shader.path}] a constant of {launch.constants} has more than 32 bits; use "
                    "smaller numbers, or the CPU"
                )
            check_bindings(module)  # a mistake in the shader or the launch is no fault of the driver
            _check_interface(launch, module, bindings)
            self._make_room()
            with compiling(self._backend.info.names[0]):
                program = self._compiled[key] = self._build(launch, module)
        else:
            _check_interface(launch, program.module, bindings)
        return program

    def _make_room(self) -> None:
        """Free the older half if there are too many."""
        if len(self._compiled) >= self._most:
            self.plans.clear()
            self._backend.stream.synchronize()  # nothing else runs programs
            for key in list(self._compiled)[: -(-self._most // 2)]:
                self._compiled.pop(key).free()

    def _build(self, launch: Launch, module: SpirvModule) -> Program:
        """
        Raises:
            PipelineError: the driver does not build it.
        """
        try:
            return self._backend.program(module, launch.constants)
        except ShaderError as error:
            self.refuse(launch, error)
            raise PipelineError(self._refused[launch.shader, launch.constants]) from error

    def refuse(self, launch: Launch, error: ShaderError) -> None:
        """Raise a PipelineError from now on where this program is looked for."""
        self.plans.clear()
        path, name = launch.shader.path, self._backend.info.hardware
        self._compiled.pop((launch.shader, launch.constants), None)
        self._refused[launch.shader, launch.constants] = (
            f"{error} ({path} has no pipeline on {name}; update the driver or use another device)"
        )


def _check_interface(launch: Launch, module: SpirvModule, bindings: int) -> None:
    """
    Raises:
        ShaderError: the shader's interface is not what the launch says.
    """
    interface = module.interface
    if interface.push_bytes != len(launch.push) or len(interface.bindings) != bindings:
        raise ShaderError(
            f"[{launch.shader.path}] expects {len(interface.bindings)} buffers and "
            f"{interface.push_bytes} bytes of push constants, got {bindings} and {len(launch.push)}"
        )
