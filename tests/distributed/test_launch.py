"""``dl4all launch``: hosts, logs, devices, and what it refuses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from click.testing import CliRunner

from dl4all.cli.processes import worker
from dl4all.cli.processes.launch import launch
from dl4all.errors import ArgumentError
from tests.distributed.processes import LIMIT, ROOT, free_port, run_commands

SCRIPT = """
import sys
import dl4all as dl
dl.distributed.init_process_group(timeout=60)
x = dl.ones(1, device="cpu")
dl.distributed.all_reduce(x)
print("rank", dl.distributed.get_rank(), "sum", x.item(), dl.distributed.get_node_local_rank(), sys.argv[1:])
"""


def test_two_hosts_and_logs(tmp_path: Path) -> None:
    """Two launches on loopback stand for those of two hosts."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "dl4all", "launch", "--nnodes", "2", "-n", "1"]
    command += ["--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = [
        subprocess.Popen(
            [*command, "--node-rank", str(host), "--log-dir", tmp_path / f"{host}", script, "--own", "1"],
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )
        for host in (0, 1)
    ]
    try:
        for host, process in enumerate(running):
            output, _ = process.communicate(timeout=LIMIT)
            assert process.returncode == 0
            line = f"rank {host} sum 2.0 0 ['--own', '1']"
            assert line in output
            assert line in "".join(path.read_text() for path in (tmp_path / f"{host}").rglob("stdout.log"))
    finally:
        for process in running:
            process.kill()
            process.wait()


def test_a_train_job_of_kubernetes(tmp_path: Path) -> None:
    """The command of the manifest, with the variables that Kubeflow's trainer sets on each host."""
    (job,) = yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "train-job.yaml").read_text())
    assert (job["kind"], job["spec"]["runtimeRef"]["name"]) == ("TrainJob", "torch-distributed")
    launcher, path = job["spec"]["trainer"]["command"]
    script = tmp_path / Path(path).name
    script.write_text(SCRIPT)
    hosts, port = 2, free_port()
    running = [
        subprocess.Popen(
            [Path(sys.executable).with_name(launcher), script],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PET_NNODES": str(hosts),
                "PET_NPROC_PER_NODE": "1",
                "PET_NODE_RANK": str(host),
                "PET_MASTER_ADDR": "127.0.0.1",
                "PET_MASTER_PORT": str(port),
            },
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )
        for host in range(hosts)
    ]
    try:
        for host, process in enumerate(running):
            output, _ = process.communicate(timeout=LIMIT)
            assert process.returncode == 0
            assert f"rank {host} sum 2.0 0 []" in output
    finally:
        for process in running:
            process.kill()
            process.wait()


def test_a_group_that_pytorch_has_made(tmp_path: Path) -> None:
    """As Ray makes one: it is taken, and stays."""
    script = tmp_path / "script.py"
    script.write_text(
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        f"{SCRIPT}"
        "try:\n"
        "    dl.distributed.destroy_process_group()\n"
        "    dl.distributed.init_process_group(rank=7, world_size=9)\n"
        "except dl.errors.DistError as error:\n"
        "    print('refused', error)\n"
        "dist.barrier()\n"
        "dist.destroy_process_group()\n"
    )
    for rank, ended in enumerate(run_commands(2, [sys.executable, str(script)], tmp_path)):
        assert ended.status == 0, ended.output
        assert f"rank {rank} sum 2.0" in ended.output
        assert f"this is rank {rank} of 2, and not 7 of 9" in ended.output


@pytest.mark.full
@pytest.mark.slow
def test_ray_train(tmp_path: Path) -> None:
    """In an environment of its own, beside this one's packages: Ray wants another NumPy."""
    venv.create(tmp_path / "ray", with_pip=True)
    python = tmp_path / "ray" / "bin" / "python"
    packages = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    Path(packages.stdout.strip(), "beside.pth").write_text(sysconfig.get_path("purelib"))
    install: list[str | Path] = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--ignore-installed",
        "numpy>=2,<2.4",
        "ray[train]",
    ]
    subprocess.run(install, check=True, timeout=600)
    ended = subprocess.run(
        [python, ROOT / "deploy" / "ray_train.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "DL4ALL_DEVICE": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    for rank in (0, 1):
        assert re.search(rf"rank {rank} of 2: accuracy 0\.[89]", said), said


@pytest.mark.parametrize("variable", ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"])
def test_each_process_has_a_gpu_while_there_are_some(
    variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kinds = ["software", "integrated", "discrete", "discrete", "cpu"]
    machine = [
        SimpleNamespace(type=kind, names=(f"vulkan:{n}",), compiles_only=n == 3)
        for n, kind in enumerate(kinds)
    ]
    chosen: list[str] = []

    def run_script(script: str, args: tuple[str, ...]) -> int:
        chosen.append(os.environ["DL4ALL_DEVICE"])
        return 0

    monkeypatch.setattr(worker, "devices", lambda: machine)
    monkeypatch.setattr(worker, "run_script", run_script)
    monkeypatch.setattr(sys, "argv", ["worker", "script.py"])
    monkeypatch.chdir(tmp_path)
    for rank in range(3):
        monkeypatch.setenv("DL4ALL_DEVICE", "")
        monkeypatch.setenv(variable, str(rank))
        assert worker.main() == 0
    assert chosen == ["vulkan:1", "vulkan:2", "cpu"]
    monkeypatch.setenv("DL4ALL_DEVICE", "kompute:0")
    worker.main()
    assert chosen[-1] == "kompute:0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nnodes", "2"], "every host needs --node-rank, from 0 to 1"),
        (["--nnodes", "2", "--node-rank", "2", "--rdzv-endpoint", "a:1"], "from 0 to 1"),
        (["--rdzv-endpoint", "nowhere"], "expected --rdzv-endpoint HOST:PORT, got 'nowhere'"),
        (["--hosts", "a,b"], "run this command on each host"),
        (["--backend", "mpi", "--max-restarts", "1"], "does not restart"),
    ],
)
def test_bad_launches(arguments: list[str], message: str) -> None:
    found = CliRunner().invoke(launch, [*arguments, __file__])
    assert isinstance(found.exception, ArgumentError)
    assert message in str(found.exception)
