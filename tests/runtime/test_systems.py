"""The library where the system is taken for Windows or macOS, and drivers as macOS has them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dl4all.runtime.records import file_cache
from tests.conftest import REPOSITORY, need, run_python
from tests.runtime.test_machines import FOLDERS
from tests.support.pretended_system import SYSTEMS

TRAINS = """
import sys
from pathlib import Path
import dl4all as dl
from click.testing import CliRunner
from dl4all.cli import cli

names = [name for info in dl.devices() for name in info.names if name.startswith(("cpu", "vulkan"))]
for device in names:
    dl.manual_seed(0)
    net = dl.nn.Sequential(dl.nn.Linear(4, 8), dl.nn.ReLU(), dl.nn.Linear(8, 2))
    trainer = dl.Trainer(
        net, dl.nn.CrossEntropyLoss(), dl.optim.AdamW(net.parameters(), lr=0.05), device=device,
        progress=False, folder=Path("runs") / device.replace(":", "-"), compile=True,
    )
    x = dl.rand(32, 4, device="cpu")
    data = dl.data.TensorDataset(x, (x.sum(1) > 2).long())
    history = trainer.fit(dl.data.DataLoader(data, 8, num_workers=2, device=device), epochs=4)
    assert history["loss"][-1] < history["loss"][0]
    dl.save(net.state_dict(), "weights.pth")
    net.load_state_dict(dl.load("weights.pth"))
for command in (["devices"], ["doctor"], ["--version"], ["bench", "--help"]):
    ran = CliRunner().invoke(cli, command)
    assert ran.exception is None and ran.output, (command, ran.exception)
print(sys.platform, *names)
"""
IMPORTS = """
import importlib
from pathlib import Path
import dl4all as dl

folder = Path(dl.__file__).parent
paths = [path.relative_to(folder).with_suffix("").parts for path in folder.rglob("*.py")]
names = sorted(".".join(("dl4all", *(part for part in parts if part != "__init__"))) for parts in paths)
for name in names:
    if name.endswith("__main__") or ".pytorch.device" in name:
        continue
    try:
        importlib.import_module(name)
    except Exception as error:
        print(name, f"{type(error).__name__}: {error}".splitlines()[0], sep=": ")
print("done", len(names) > 700)
"""
BUILT_FOR_LINUX = (
    "ctypes' has no attribute 'WinDLL'",  # PyTorch's wheel of Linux looks for DLLs
    "libtorch_global_deps.dylib",
    "SIGBREAK",  # uvicorn
    "_winapi",  # joblib
    "cannot load MPI library",
)


def run(system: str, code: str, folder: Path) -> str:
    """The output of a process that has not imported the library before it took its system for another."""
    settings = {
        "PYTHONPATH": str(REPOSITORY),
        "DL4ALL_CACHE_DIR": str(file_cache.folder()),
        "DL4ALL_DEVICE": "",
    }
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.pretended_system", system, code], cwd=folder,
        env={**os.environ, **settings}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


@pytest.mark.parametrize("system", SYSTEMS)
def test_it_trains_saves_and_tells_what_is_there(system: str, tmp_path: Path) -> None:
    output = run(system, TRAINS, tmp_path)
    assert output.split()[0] == system
    assert "cpu" in output.split()


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_module_is_imported(system: str, tmp_path: Path) -> None:
    lines = run(system, IMPORTS, tmp_path).splitlines()
    assert lines[-1] == "done True"
    assert [line for line in lines[:-1] if not any(part in line for part in BUILT_FOR_LINUX)] == []


HIDDEN = """
from dl4all.runtime.vulkan import instance
instance.PORTABILITY = "VK_EXT_of_no_loader"
"""
LISTS = """
import dl4all as dl
print([info.hardware for info in dl.devices() if info.type != "cpu"])
"""
COMPUTES = f"""{LISTS}
print((dl.tensor([1.0, 2.0], device="vulkan:0") * 3).tolist())
"""


@pytest.mark.vulkan
def test_drivers_that_leave_parts_of_vulkan_out_are_found(tmp_path: Path) -> None:
    """As MoltenVK, which its loader shows to those alone that ask for such drivers."""
    need("vulkan:0")
    own = os.environ.get("VK_DRIVER_FILES") or os.environ.get("VK_ICD_FILENAMES")
    files = own.split(os.pathsep) if own else [str(f) for d in FOLDERS for f in Path(d).glob("*.json")]
    made = []
    for number, file in enumerate(files):
        manifest = json.loads(Path(file).read_text())
        library = Path(manifest["ICD"]["library_path"])
        if not library.is_absolute() and len(library.parts) > 1:
            manifest["ICD"]["library_path"] = str(Path(file).parent / library)
        manifest["ICD"]["is_portability_driver"] = True
        made.append(tmp_path / f"{number}.json")
        made[-1].write_text(json.dumps(manifest))
    drivers = dict.fromkeys(("VK_DRIVER_FILES", "VK_ICD_FILENAMES"), os.pathsep.join(map(str, made)))
    hidden = run_python(HIDDEN + LISTS, **drivers)
    if hidden.stdout != "[]\n":
        pytest.skip("this loader shows all drivers to everyone")
    found = run_python(COMPUTES, **drivers)
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines()[0] != "[]"
    assert found.stdout.splitlines()[1] == "[3.0, 6.0]"
