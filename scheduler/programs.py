"""Launches, and the table of programs that a device has compiled for them."""

from __future__ import annotations

from dataclasses import dataclass

from dl4all.errors import ShaderError
from dl4all.runtime import spirv
from dl4all.runtime.protocols import Backend, Grid, Program


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


class Programs:
    """Compiled programs by shader and constants, each made at its first launch."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._compiled: dict[tuple[spirv.Shader, tuple[int, ...]], Program] = {}

    def find(self, launch: Launch, bindings: int) -> Program:
        """The program of a launch that binds that number of buffers.

        Raises:
            ShaderError: the shader's interface is not what the launch says.
        """
        key = (launch.shader, launch.constants)
        program = self._compiled.get(key)
        if program is None:
            module = spirv.load(launch.shader)
            program = self._compiled[key] = self._backend.program(module, launch.constants)
        interface = program.module.interface
        if interface.push_bytes != len(launch.push) or len(interface.bindings) != bindings:
            raise ShaderError(
                f"[{launch.shader.path}] expects {len(interface.bindings)} buffers and "
                f"{interface.push_bytes} bytes of push constants, got {bindings} and {len(launch.push)}"
            )
        return program
