"""Processes that begin with dl4all imported: forked from a server, of which a test process starts one.

Most tests that need a process of their own need its end, its memory or its environment, and not its first
second.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import traceback
import types
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
COMMAND = Path(sys.executable).with_name("dl4all")
LATE = (
    *("DL4ALL_", "XDG_", "VK_", "LP_", "MESA_", "HOME", "PYTEST_", "COLUMNS", "TERM", "TORCH_HOME", "PWD"),
    *("RANK", "WORLD_SIZE", "MASTER_", "LOCAL_", "PET_", "TORCHFT_"),
)
"""Variables that are read where they are needed. Others count while Python, the C library or NumPy starts."""
THREADS = "OMP_NUM_THREADS"
"""Counts while libraries are imported, so that there is a server for each value."""
START = dict(os.environ)
"""The variables of servers, whatever the first test that needs one has done to its own."""
LONGEST = 1 << 17  # bytes of a request
LIBRARY = "dl4all", "dl4all.cli", "dl4all.host_kernels"
PYTORCH = *LIBRARY, "dl4all.torch"
GLOO = *LIBRARY, "dl4all.distributed.process_group.gloo"
SERVER = *LIBRARY, "dl4all.serving.server"
SEARCH = *LIBRARY, "dl4all.search.study", "dl4all.search.worker_processes"


class ForkedProcess(subprocess.Popen[Any]):
    """A ``subprocess.Popen`` of ``dl4all`` or of this Python with ``-c``, ``-m`` or a script.

    It starts as any other where it is to have an option of the interpreter, or a variable that is read when a
    process starts.

    Args:
        preload: the modules that are imported already; with none it starts as any other, too.
    """

    def __init__(self, *args: Any, preload: tuple[str, ...] = LIBRARY, **options: Any) -> None:
        self._preload = preload
        self._status: socket.socket | None = None  # where the server sends the status
        super().__init__(*args, **options)

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, *rest: Any) -> None:
        _close_fds, pass_fds, cwd, env, _startup, _flags, shell, *handles = rest[:13]
        own_session = rest[-2]
        arguments = [args] if isinstance(args, str) else [os.fsdecode(word) for word in args]
        env = dict(os.environ if env is None else env)
        special = preexec_fn or pass_fds or shell or executable or own_session
        if special or not self._preload or not _is_late(arguments, env):
            super()._execute_child(args, executable, preexec_fn, *rest)  # type: ignore[misc]
            return
        # Each message is received alone, also where the process has ended before its number was read.
        self._status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = json.dumps([arguments, env, os.fspath(cwd or Path.cwd())]).encode()
        assert len(request) < LONGEST
        pipes = handles[0], handles[3], handles[5]  # the child's ends; -1 where it inherits
        streams = [number if pipe < 0 else pipe for number, pipe in enumerate(pipes)]
        with theirs:
            socket.send_fds(_server(self._preload, env.get(THREADS)), [request], [*streams, theirs.fileno()])
        self.pid = int(self._status.recv(16))
        self._child_created = True
        self._close_pipe_fds(*handles)  # type: ignore[attr-defined]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        return self._waitpid(self.pid, wait_flags)

    def _internal_poll(self, _deadstate: int | None = None) -> int | None:
        return super()._internal_poll(_deadstate, self._waitpid)  # type: ignore[misc,no-any-return]

    def _waitpid(self, pid: int, flags: int) -> tuple[int, int]:
        """As ``os.waitpid``, which knows nothing of the server's children."""
        if self._status is None:
            return os.waitpid(pid, flags)
        try:
            status = self._status.recv(16, socket.MSG_DONTWAIT if flags else 0)
        except BlockingIOError:
            return 0, 0
        self._status.close()
        return pid, int(status)


def run_forked(
    *args: Any, preload: tuple[str, ...] = LIBRARY, timeout: float = 300, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """As ``subprocess.run`` with text that is captured."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with ForkedProcess(*args, preload=preload, **(pipes | options)) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def _is_late(arguments: list[str], env: Mapping[str, str]) -> bool:
    """Whether a process with these arguments and variables may be forked."""
    served = {"PYTHONPATH": env.get("PYTHONPATH", ""), THREADS: env.get(THREADS)}  # the one as `sys.path`
    differing = {name for name, _ in {**env, **served}.items() ^ {**os.environ, **served}.items()}
    return (
        arguments[0] in (sys.executable, str(COMMAND))
        and (arguments[0] == str(COMMAND) or arguments[1][:1] != "-" or arguments[1] in ("-c", "-m", "-W"))
        and all(name.startswith(LATE) for name in differing)
    )


@functools.cache
def _server(preload: tuple[str, ...], threads: str | None) -> socket.socket:
    """The way to the server of this process, which ends with it."""
    env = {name: value for name, value in START.items() if name != THREADS}
    env |= {} if threads is None else {THREADS: threads}
    own, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", "tests.support.forked_process", str(theirs.fileno()), *preload]
        server = subprocess.Popen(command, cwd=REPOSITORY, env=env, pass_fds=[theirs.fileno()])

    def end() -> None:
        own.close()
        server.wait()

    atexit.register(end)
    return own


# In the server


def serve(requests: socket.socket) -> list[Any]:
    """Fork a process for each request until nobody asks any more.

    Returns:
        in a forked process: what it is to do.
    """
    children: dict[int, socket.socket] = {}
    ended, wake = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with selectors.DefaultSelector() as selector:
        selector.register(ended, selectors.EVENT_READ)
        selector.register(requests, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if ended in ready:
                ended.recv(4096)
                while children and (found := os.waitpid(-1, os.WNOHANG))[0]:
                    # A test that has given up does not listen any more.
                    with children.pop(found[0]) as status, contextlib.suppress(BrokenPipeError):
                        status.send(str(found[1]).encode())
            if requests in ready:
                request, handles, _, _ = socket.recv_fds(requests, LONGEST, 4)
                if not request:
                    os._exit(0)
                status = socket.socket(fileno=handles.pop())
                if pid := os.fork():
                    children[pid] = status
                    for handle in handles:
                        os.close(handle)
                    with contextlib.suppress(BrokenPipeError):
                        status.send(str(pid).encode())
                    continue
                break
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for kept in (ended, wake, requests, status, *children.values()):
        kept.close()
    for number, handle in enumerate(handles):
        os.dup2(handle, number)
        os.close(handle)
    return list(json.loads(request))


def become(arguments: list[str], env: dict[str, str], cwd: str) -> None:
    """Do what a Python with these arguments does."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[1:1] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    if arguments[0] == sys.executable:
        del arguments[0]
    if arguments[0] == "-W":
        warnings.simplefilter(arguments[1])  # type: ignore[arg-type]
        del arguments[:2]
    sys.excepthook = _print_exception
    if arguments[0] == "-m":
        sys.path[0], sys.argv = cwd, arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    if arguments[0] == "-c":
        sys.path[0], sys.argv = "", ["-c", *arguments[2:]]
        source, name = arguments[1], "<string>"
    else:
        name = arguments[0]
        sys.path[0], sys.argv = str(Path(name).resolve().parent), arguments
        source, main.__file__ = Path(name).read_text("utf-8"), name
    exec(compile(source, name, "exec", dont_inherit=True), vars(main))


def _print_exception(
    kind: type[BaseException], error: BaseException, trace: types.TracebackType | None
) -> None:
    """Print an exception without the frames of this file."""
    own = __file__, runpy.__file__, "<frozen runpy>"
    while trace is not None and trace.tb_frame.f_code.co_filename in own:
        trace = trace.tb_next
    traceback.print_exception(kind, error, trace)


if __name__ == "__main__":
    requests, *modules = sys.argv[1:]
    for module in modules:
        importlib.import_module(module)
    gc.freeze()  # the end of a process need not look through what it has not made
    become(*serve(socket.socket(fileno=int(requests))))
