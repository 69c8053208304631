"""A process that takes its system for another: python -m tests.support.pretended_system win32 CODE.

On Windows there are no modules ``fcntl`` and ``resource``, no ``os.fork`` and no SIGKILL; nor are there files
in /proc on macOS. Packages of others, which are built for this system, are imported before that and go on as
they are. Beside the names nothing is as there: no DLLs, paths with drives, locks of ranges, or registry.
"""

from __future__ import annotations

import asyncio
import builtins
import concurrent.futures
import ctypes.util
import importlib.metadata
import io
import os
import pathlib
import platform
import shutil
import signal
import sqlite3
import subprocess
import sys
import types
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Any

SYSTEMS = {"win32": "Windows", "darwin": "Darwin"}
NOT_ON_WINDOWS = {
    "modules": ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "posix"),
    "os": ("fork", "getuid", "geteuid", "sched_getaffinity", "register_at_fork", "killpg", "setsid", "mkfifo",
           "statvfs", "getloadavg", "fchmod", "pread", "pwrite", "O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC"),
    "signal": ("SIGKILL", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGHUP", "SIGQUIT", "setitimer", "SIGSTOP"),
}  # fmt: skip
NOT_ON_MACOS = {"modules": (), "os": ("sched_getaffinity", "posix_fadvise", "O_DIRECT"), "signal": ()}
OTHERS = (
    "numpy", "ml_dtypes", "psutil", "click.testing", "rich.table", "rich.progress", "cffi", "vulkan",
    "safetensors.numpy", "platformdirs.unix", "opt_einsum", "llvmlite.binding", "PIL.Image", "joblib",
    "optuna.storages", "cloudpickle", "sklearn.base", "pandas", "uvicorn", "grpc.aio", "matplotlib.pyplot",
    "wrapt", "urllib.request",
)  # fmt: skip
"""Packages that look at the system when they are imported."""
LIBRARY = ("dl4all", "runtime", "scheduler", "allocator", "host_kernels")
ROOT = str(pathlib.Path(__file__).parents[2])

imported = (asyncio, concurrent.futures, ctypes.util, importlib.metadata, sqlite3, subprocess)


class Missing:
    """A finder of modules that another system does not have."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def pretend(system: str) -> None:
    """Take this process's system for another from now on."""
    for name in OTHERS:
        if find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)
    lacks = NOT_ON_WINDOWS if system == "win32" else NOT_ON_MACOS
    for name in lacks["modules"]:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Missing(lacks["modules"]))
    for module in (os, signal):
        for name in lacks[module.__name__]:
            if hasattr(module, name):
                delattr(module, name)
    if system == "win32":
        locking = types.ModuleType("msvcrt")
        vars(locking).update(LK_NBLCK=2, LK_UNLCK=0, locking=lambda descriptor, mode, count: None)
        sys.modules["msvcrt"] = locking
    hide_linux_files()
    folders = [pathlib.Path(folder) for folder in os.environ["PATH"].split(os.pathsep)]
    programs = {
        path.name: str(path) for folder in reversed(folders) if folder.is_dir() for path in folder.iterdir()
    }
    shutil.which = lambda name, *_, **__: programs.get(str(name))  # type: ignore[assignment]
    sys.platform = system
    platform.system = lambda: SYSTEMS[system]


def hide_linux_files() -> None:
    """Let the library find no files of Linux's, which others' packages go on with."""
    opened, read, exists = io.open, pathlib.Path.read_text, pathlib.Path.exists

    def is_hidden(path: Any) -> bool:
        if not isinstance(path, (str, pathlib.Path)) or not str(path).startswith(("/proc", "/sys")):
            return False
        frame: Any = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.endswith(("pathlib.py", "io.py")):
            frame = frame.f_back
        name = os.path.relpath(frame.f_code.co_filename, ROOT)
        return name.startswith(LIBRARY)

    def open_shown(file: Any, *args: Any, **options: Any) -> Any:
        if is_hidden(file):
            raise FileNotFoundError(2, "No such file or directory", str(file))
        return opened(file, *args, **options)

    def read_shown(self: pathlib.Path, *args: Any, **options: Any) -> str:
        if is_hidden(self):
            raise FileNotFoundError(2, "No such file or directory", str(self))
        return read(self, *args, **options)

    builtins.open = io.open = open_shown
    pathlib.Path.read_text = read_shown  # type: ignore[method-assign]
    pathlib.Path.exists = lambda self, **o: not is_hidden(self) and exists(self, **o)  # type: ignore[method-assign]


if __name__ == "__main__":
    pretend(sys.argv[1])
    exec(compile(sys.argv[2], "<code>", "exec"), {"__name__": "__main__"})
