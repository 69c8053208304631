"""From LLVM IR to functions of the process, with the code kept on disk.

A file in the cache has the object code of one module. Its name, and its beginning, is a hash of the module's
text, LLVM's version and the processor's name and features: other code is never found, and damaged code is
made anew.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dl4all.errors import ShaderError
from dl4all.runtime import fork
from dl4all.runtime.cpu.llvm import target
from dl4all.runtime.cpu.llvm.target import Target
from dl4all.runtime.records import file_cache
from dl4all.runtime.records.compile_times import compiling

FOLDER = "cpu"
FORMAT = 2  # of the files
OPTIMIZATION = 2

log = logging.getLogger("dl4all")


class LlvmCompiler:
    """Compiles for one target. What it made stays in memory until the process ends."""

    def __init__(self, processor: Target) -> None:
        self.target = processor
        self._llvm = target.binding()
        self._machine = self._new_machine()
        version = ".".join(map(str, target.version()))
        self._key = f"{FORMAT} {version} {processor.name} {processor.features} {OPTIMIZATION}\n".encode()
        # One engine for all code: each would take ten times as long to load a module as that takes itself.
        self._engine = self._llvm.create_mcjit_compiler(self._llvm.parse_assembly(""), self._new_machine())
        fork.keep_for_ever(self._engine)  # threads may still compute when the interpreter ends
        self._functions: dict[bytes, dict[str, int]] = {}  # by digest of the module
        self.compiled = self.loaded = 0  # modules, made here and found on disk

    def functions(self, text: str, names: Sequence[str]) -> dict[str, int]:
        """The addresses of functions of a module.

        Raises:
            ShaderError: the text is no valid module.
        """
        digest = hashlib.sha256(self._key + text.encode())
        file, head = file_cache.folder() / FOLDER / f"{digest.hexdigest()}.o", digest.digest()
        with fork.excluded:
            if head in self._functions:
                return self._functions[head]
            # Modules have functions of one name, and an engine has each name once.
            symbols = {name: f"{name}_{digest.hexdigest()[:16]}" for name in names}
            content = file_cache.read(file)
            # LLVM ends the process over what is no object code: only what says that it is this module's
            # is tried.
            found = self._load(content[len(head) :], symbols) if content and content.startswith(head) else {}
            if found:
                self.loaded += 1
            else:
                for name, symbol in symbols.items():
                    text = re.sub(rf"@{name}\b", f"@{symbol}", text)
                with compiling("cpu"):
                    code = self._compile(text, names[0])
                self.compiled += 1
                file_cache.try_write(file, head + code)
                found = self._load(code, symbols)
            self._functions[head] = found
            return found

    def _compile(self, text: str, name: str) -> bytes:
        try:
            module = self._llvm.parse_assembly(text)
            module.verify()
        except RuntimeError as error:
            raise ShaderError(f"[{name}] LLVM refuses a kernel: {error}") from None
        module.triple = self._llvm.get_process_triple()
        module.data_layout = str(self._machine.target_data)
        options = self._llvm.create_pipeline_tuning_options(speed_level=OPTIMIZATION)
        options.loop_vectorization = options.slp_vectorization = True
        passes = self._llvm.create_pass_builder(self._machine, options)
        passes.getModulePassManager().run(module, passes)
        return bytes(self._machine.emit_object(module))

    def _load(self, code: bytes, symbols: Mapping[str, str]) -> dict[str, int]:
        """Link object code into the process; {} if it does not have the symbols of these functions."""
        try:
            self._engine.add_object_file(self._llvm.ObjectFileRef.from_data(code))
            self._engine.finalize_object()
        except RuntimeError as error:
            log.debug("cannot load the code of %s: %s", next(iter(symbols)), error)
            return {}
        found = {name: int(self._engine.get_function_address(symbol)) for name, symbol in symbols.items()}
        return found if all(found.values()) else {}

    def _new_machine(self) -> Any:
        """A target machine; an engine takes the one that it is given."""
        return self._llvm.Target.from_default_triple().create_target_machine(
            cpu=self.target.name, features=self.target.features, opt=OPTIMIZATION, jit=True
        )

    def define(self, name: str, address: int) -> None:
        """Let modules call a function of the process by this name."""
        self._llvm.add_symbol(name, address)


Function = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
"""A kernel's entry point, called with the slots' bytes; other threads of Python may run meanwhile."""

HeldFunction = ctypes.PYFUNCTYPE(None, ctypes.c_char_p)
"""The same for work of a few microseconds, during which no other thread of Python runs."""
