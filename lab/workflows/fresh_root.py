"""Fresh systems to run jobs in: a bare release of Debian or Ubuntu in a folder, laid anew for each job.

A base is made once by mmdebstrap and kept. A root is an overlay over it that is thrown away. Network,
certificates and the settings of apt and pip are the host's, as they are at the time; nothing of them is
written anywhere else. All of it needs Linux and root, and a mount namespace of its own, in which nothing
that is mounted outlives the process.
"""

from __future__ import annotations

import ast
import contextlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

USER, UID = "runner", 1001
RUNNER_PACKAGES = ("ca-certificates", "git", "shellcheck", "sudo")
"""What the jobs use of all that GitHub's machines have installed."""
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PYTHON_LIBRARIES = (
    "libbz2-1.0",
    "libffi8",
    "liblzma5",
    "libncursesw6",
    "libreadline8",
    "libsqlite3-0",
    "libssl3",
    "zlib1g",
)
"""What a Python of the host needs beside the C library."""


class RootError(Exception):
    """No such system can be made here."""


class Release(NamedTuple):
    """What mmdebstrap makes a base from."""

    codename: str
    mirror: str
    keyring: str
    components: str = "main"
    security: str = ""
    rolling: bool = False  # it is updated itself

    def sources(self) -> list[str]:
        """Lines of sources.list: the release, its updates and its security updates."""
        security = self.security or self.mirror
        suites = [(self.mirror, self.codename)]
        if not self.rolling:
            suites.append((self.mirror, f"{self.codename}-updates"))
            suites.append((security, f"{self.codename}-security"))
        return [f"deb {mirror} {suite} {self.components}" for mirror, suite in suites]


def _debian(codename: str) -> Release:
    return Release(
        codename, "http://deb.debian.org/debian", "/usr/share/keyrings/debian-archive-keyring.gpg",
        security="http://deb.debian.org/debian-security", rolling=codename == "sid",
    )  # fmt: skip


def _ubuntu(codename: str) -> Release:
    return Release(
        codename, "http://archive.ubuntu.com/ubuntu", "/usr/share/keyrings/ubuntu-archive-keyring.gpg",
        components="main universe",
    )  # fmt: skip


RELEASES = {
    "debian-12": _debian("bookworm"),
    "debian-13": _debian("trixie"),
    "debian-sid": _debian("sid"),
    "ubuntu-22.04": _ubuntu("jammy"),
    "ubuntu-24.04": _ubuntu("noble"),
}


def base(name: str, folder: Path, *, runner: bool) -> Path:
    """The folder of a base, made unless it is there.

    Args:
        name: A key of ``RELEASES``.
        folder: Where bases are kept.
        runner: With what a job expects of GitHub's machines: a user who may use sudo, git, shellcheck.

    Raises:
        RootError: it cannot be made here, and why: the archive cannot be reached, or a program is missing.
    """
    made = folder / (f"{name}-runner" if runner else name)
    if made.exists():
        return made
    release = RELEASES[name]
    for program in ("mmdebstrap", "unshare", "chroot"):
        if not shutil.which(program):
            raise RootError(f"{program} is missing (apt install mmdebstrap util-linux coreutils)")
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = made.with_name(f"{made.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    include = [f"--include={','.join(RUNNER_PACKAGES)}"] if runner else []
    keyring = [f"--keyring={release.keyring}"] if Path(release.keyring).exists() else []
    options = [f"--aptopt={line}" for line in apt_settings()]
    command = ["mmdebstrap", "--mode=root", "--variant=minbase", *include, *keyring, *options,
               release.codename, str(unfinished), *release.sources()]  # fmt: skip
    print(f"Making the base {made.name} with mmdebstrap", flush=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(unfinished, ignore_errors=True)
        lines = [line for line in done.stderr.splitlines() if line.startswith(("E:", "W: Failed"))]
        raise RootError(
            f"{name} cannot be made here from {release.mirror}: "
            f"{'; '.join(lines[:3]) or done.stderr[-400:]}. "
            "A job can run on a stand-in instead: --base debian-13"
        )
    if runner:
        _add_runner(unfinished)
    unfinished.rename(made)
    return made


def _add_runner(root: Path) -> None:
    subprocess.run(
        ["chroot", root, "useradd", "--uid", str(UID), "--create-home", "--shell", "/bin/bash", USER],
        check=True,
    )
    sudoers = root / "etc" / "sudoers.d" / USER
    sudoers.write_text(f"{USER} ALL=(ALL) NOPASSWD:ALL\n")
    sudoers.chmod(0o440)


# ---- the host's settings -------------------------------------------------------------------------------


def apt_settings() -> list[str]:
    """The host's settings for fetching packages: proxies, and whether dates are checked."""
    if not shutil.which("apt-config"):
        return []
    wanted = ("Acquire::http", "Acquire::https", "Acquire::Check-", "Acquire::Retries")
    dump = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True, check=True)
    return [line for line in dump.stdout.splitlines() if line.startswith(wanted)]


def pip_settings() -> dict[str, str]:
    """The host's settings for finding packages, from files and the environment; certificates left out."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return parse_pip_settings(listed)


def parse_pip_settings(listed: str) -> dict[str, str]:
    """What ``pip config list`` prints as values by name; those of the environment go first."""
    wanted = (
        "index-url",
        "extra-index-url",
        "find-links",
        "trusted-host",
        "proxy",
        "default-timeout",
        "timeout",
    )
    found: dict[str, str] = {}
    for line in sorted(listed.splitlines(), reverse=True):  # ":env:." comes last
        key, _, value = line.partition("=")
        name = key.rpartition(".")[2]
        if name in wanted:
            found["timeout" if name == "default-timeout" else name] = ast.literal_eval(value)
    return found


def local_folders(settings: dict[str, str]) -> list[Path]:
    """Folders of packages that pip's settings name; an index may link to what lies beside it."""
    found = []
    for name, value in settings.items():
        for word in value.split():
            path = Path(word.removeprefix("file://"))
            if path.is_absolute() and path.is_dir():
                found.append(path.parent if name.endswith("index-url") else path)
    return sorted(set(found))


# ---- a root --------------------------------------------------------------------------------------------


class Root:
    """A fresh system that is mounted. Commands run in it as root, or as the runner's user."""

    def __init__(self, folder: Path, *, runner: bool) -> None:
        self.path = folder
        self.runner = runner
        self.home = f"/home/{USER}" if runner else "/root"

    def command(
        self, command: Sequence[str], env: dict[str, str], folder: str, *, as_root: bool
    ) -> list[str]:
        """The words that run a command in it with this environment and no other."""
        user = [] if as_root else [f"--userspec={UID}:{UID}"]
        settings = [f"{key}={value}" for key, value in env.items()]
        return ["chroot", *user, str(self.path), "env", "-i", "-C", folder, *settings, *command]

    def install(self, *packages: str) -> None:
        """Install packages with apt, as root."""
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}
        for words in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
            command = self.command(["apt-get", "-qq", *words], env, "/", as_root=True)
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RootError(f"apt-get {' '.join(words)}: {done.stderr[-400:]}")

    def mount(self, source: Path, at: str, *options: str) -> None:
        """Show a folder or file of the host in it, at the same or another path."""
        target = self.path / at.lstrip("/")
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        subprocess.run(["mount", "--rbind", source, target], check=True)
        if options:
            subprocess.run(["mount", "-o", f"remount,bind,{','.join(options)}", target], check=True)

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        file = self.path / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def add_python(self, version: str) -> str:
        """Install a Python apart from the system's, and return its path.

        The release's own in a virtual environment, where it has this version; otherwise the host's, over
        which an overlay is laid, so that what is installed there stays in this root.

        Raises:
            RootError: neither the release nor the host has it.
        """
        self.install("python3-venv")
        own = self.path / "usr" / "bin" / f"python{version}"
        if own.exists():
            place = f"/opt/python-{version}"
            command = [f"/usr/bin/python{version}", "-m", "venv", place]
            subprocess.run(["chroot", str(self.path), *command], check=True)
            prefix = Path(place)
        else:
            self.install(*PYTHON_LIBRARIES)
            prefix = host_python(version)
            self._overlay(prefix, self.path / str(prefix).lstrip("/"))
            for parent in prefix.parents[:-1]:  # such as /root
                (self.path / str(parent).lstrip("/")).chmod(0o755)
        if self.runner:
            subprocess.run(
                ["chown", "-R", f"{UID}:{UID}", str(self.path / str(prefix).lstrip("/"))], check=True
            )
        return str(prefix / "bin" / "python")

    def _overlay(self, lower: Path, target: Path) -> None:
        """`target` shows `lower`, and keeps changes to itself."""
        upper, work = (self.path.with_name(f"{target.name}-{part}") for part in ("upper", "work"))
        overlay(lower, upper, work, target)


def host_python(version: str) -> Path:
    """The folder of a relocatable Python of the host: of pyenv, uv, or whichever is on PATH outside /usr.

    Raises:
        RootError: there is none.
    """
    home = Path.home()
    pyenv = Path(os.environ.get("PYENV_ROOT", home / ".pyenv")) / "versions"
    uv = Path(os.environ.get("XDG_DATA_HOME", home / ".local" / "share")) / "uv" / "python"
    found = [*pyenv.glob(f"{version}.*"), *uv.glob(f"cpython-{version}.*")]
    for prefix in sorted(found):
        if (prefix / "bin" / "python3").exists():
            return prefix
    raise RootError(f"Python {version}: the release has another one, and the host has none from pyenv or uv")


def overlay(lower: Path, upper: Path, work: Path, target: Path) -> None:
    for folder in (upper, work, target):
        folder.mkdir(parents=True, exist_ok=True)
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, target], check=True)


def share_packages(source: Path, target: Path) -> None:
    """Copy the packages that `target` does not have."""
    source.mkdir(parents=True, exist_ok=True)
    target.mkdir(parents=True, exist_ok=True)
    for file in source.glob("*.deb"):
        there = target / file.name
        if not there.exists():  # under another name first: another run may look at the same time
            unfinished = Path(tempfile.mkdtemp(dir=target)) / file.name
            shutil.copyfile(file, unfinished)
            unfinished.replace(there)
            unfinished.parent.rmdir()


@contextlib.contextmanager
def fresh_root(base_folder: Path, work: Path, cache: Path, *, runner: bool) -> Iterator[Root]:
    """A root over a base, with the host's network and settings. What was changed in it is deleted afterwards.

    Args:
        base_folder: The base, which is not changed.
        work: Where changes go, an empty folder; it is deleted.
        cache: Downloads of apt and pip, which are shared with later roots.
        runner: Commands run as a user with sudo.
    """
    root = Root(work / "root", runner=runner)
    overlay(base_folder, work / "upper", work / "overlay", root.path)
    try:
        for name in ("dev", "sys"):
            subprocess.run(["mount", "--rbind", f"/{name}", root.path / name], check=True)
        subprocess.run(["mount", "-t", "proc", "proc", root.path / "proc"], check=True)
        for name in ("hosts", "resolv.conf"):
            shutil.copyfile(Path("/etc") / name, root.path / "etc" / name, follow_symlinks=True)
        root.write("/etc/hostname", f"{platform.node()}\n")
        root.write("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", 0o755)  # no services
        root.write("/etc/apt/apt.conf.d/90host", "".join(f"{line}\n" for line in apt_settings()))
        settings = pip_settings()
        if CERTIFICATES.exists():  # apart from the package's, which would be written anew
            root.write("/etc/host-certificates.crt", CERTIFICATES.read_text())
            settings["cert"] = "/etc/host-certificates.crt"
        lines = [f"{name} = {' '.join(value.split())}\n" for name, value in settings.items()]
        root.write("/etc/pip.conf", "[global]\n" + "".join(lines))
        for folder in local_folders(settings):
            root.mount(folder, str(folder), "ro")
        # apt locks its folder, so each root has its own; the packages are shared between those of a base
        archives, shared = root.path / "var/cache/apt/archives", cache / "apt" / base_folder.name
        share_packages(shared, archives)
        pip = cache / "pip"
        pip.mkdir(parents=True, exist_ok=True)
        # by root and by the runner's user: pip takes no cache that it may not write to
        subprocess.run(["chmod", "-R", "a+rwX", pip], check=True)
        root.mount(pip, f"{root.home}/.cache/pip")
        if runner:
            subprocess.run(["chown", f"{UID}:{UID}", root.path / f"home/{USER}/.cache"], check=True)
        yield root
        share_packages(archives, shared)
    finally:
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for place in reversed([place for place in mounts if Path(place).is_relative_to(root.path)]):
            subprocess.run(["umount", "--lazy", place], check=False)
        if any(root.path.iterdir()):
            raise RootError(f"{root.path} is still mounted; nothing was deleted")
        shutil.rmtree(work)
