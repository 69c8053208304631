"""The benchmark that runs PyTorch's scripts with the import replaced and compares the losses."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="scripts are run with PyTorch too")

from lab.scripts.cases import CASES, Case
from lab.scripts.comparison import Comparison, compare, differences
from lab.scripts.page import Row, page
from lab.scripts.repositories import Repository, imports_torch, on_device, other_changes, with_dl4all
from lab.scripts.results import with_new_rows
from lab.scripts.run import measured
from lab.scripts.runs import Run

NETWORK = """
import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F  # an alias
from torch.utils.data import DataLoader, TensorDataset
from layers import Noisy
from torchvision import datasets, transforms

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
args = parser.parse_args()
torch.manual_seed(3)
images = datasets.MNIST("data", transform=transforms.ToTensor())
pictures = torch.stack([images[i][0].flatten() for i in range(29)])
loader = DataLoader(TensorDataset(pictures, images.targets[:29]), batch_size=7, shuffle=True)
attention = nn.TransformerEncoderLayer(13, 1, 17, dropout=0.2)  # among the pictures of a batch
model = nn.Sequential(nn.Linear(784, 13), Noisy(), attention, nn.Dropout(0.3), nn.Linear(13, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for epoch in range(args.epochs):
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
with torch.no_grad():
    print(f"loss {loss.item():.3f}, {'torch' in type(loss).__module__}")
"""
LAYERS = """
from torch import nn, randn_like


class Noisy(nn.Module):
    def forward(self, input):
        return nn.functional.relu(input + 0.1 * randn_like(input))
"""
ENDLESS = """
import torch

weights = torch.randn(11, 3, requires_grad=True)
order = torch.randperm(11)
rows = torch.randint(0, 11, (5,))
while True:
    chosen = torch.multinomial(torch.rand(11) + 0.1, 2)
    loss = (weights[rows] ** 2).sum() + weights[order[chosen]].exp().sum()
    print(loss.item())
    loss.backward()
    with torch.no_grad():
        weights -= 0.05 * weights.grad
    weights.grad.zero_()
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Repository]:
    """A mirror with one bare repository of two scripts."""
    folder = tmp_path_factory.mktemp("scripts")
    source = folder / "source"
    for name, text in (("train/main.py", NETWORK), ("train/layers.py", LAYERS), ("endless.py", ENDLESS)):
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git = ("git", "-C", str(source), "-c", "user.name=a", "-c", "user.email=a@b")
    for arguments in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "Two scripts")):
        subprocess.run((*git, *arguments), check=True)
    head = subprocess.run((*git, "rev-parse", "HEAD"), check=True, stdout=subprocess.PIPE, text=True)
    mirror = folder / "mirror"
    subprocess.run(("git", "clone", "-q", "--bare", str(source), str(mirror / "some+one.git")), check=True)
    return mirror, Repository("some/one", head.stdout.strip())


@pytest.mark.full
@pytest.mark.slow
def test_scripts_run_with_both_and_have_equal_losses(
    repository: tuple[Path, Repository], tmp_path: Path
) -> None:
    mirror, source = repository
    network = Case("network", source, "train/main.py", ("--epochs=2",), pictures=40)
    endless = Case("endless", source, "endless.py", steps=6)
    rows = []
    for case in (network, endless):
        (row,), output = measured(case, tmp_path, mirror)
        assert row.comparison is not None, (row.failure, output)
        assert row.comparison.equal, row
        assert row.lines == 0
        rows.append(row)
    assert (rows[0].comparison.steps, rows[1].comparison.steps) == (10, 6)  # type: ignore[union-attr]
    assert not rows[0].stopped
    assert rows[1].stopped
    reports = [
        json.loads((tmp_path / framework / "endless" / "report.json").read_text())
        for framework in ("torch", "dl4all")
    ]
    assert len(set(reports[1]["losses"])) == 6  # and those of random numbers, not of constants
    assert reports[0]["items"][:1] == pytest.approx(reports[1]["items"][:1])


def test_imports_and_nothing_else_are_replaced(tmp_path: Path) -> None:
    source = (
        "import torch  # needed\nimport torch.nn.functional as F\r\n    import torch.utils.data\n"
        "from torch.nn import Linear\nfrom torchvision import models\nimport torchvision\n"
        "'import torch'\ntorch.nn.Linear\n"
    )
    assert with_dl4all(source) == (
        "import dl4all as torch\nimport dl4all.nn.functional as F\r\n"
        "    import dl4all.utils.data; import dl4all as torch\n"
        "from dl4all.nn import Linear\nfrom torchvision import models\nimport torchvision\n"
        "'import torch'\ntorch.nn.Linear\n"
    )
    with pytest.raises(ValueError, match="one module"):
        with_dl4all("import torch, os\n")
    for folder, text in (("before", "import torch\nx = 1\n"), ("after", "import dl4all as torch\nx = 2\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.py").write_text(text)
    assert other_changes(tmp_path / "before", tmp_path / "after") == 1
    assert on_device("x.to('cpu').cpu()  # \"cpu\", cpus", "vulkan:0") == (
        "x.to('vulkan:0').cpu()  # \"vulkan:0\", cpus"
    )
    assert imports_torch(tmp_path / "before" / "a.py")
    assert not imports_torch(tmp_path / "after" / "a.py")


def test_differences_are_relative_to_the_loss_or_a_share_of_the_largest() -> None:
    assert differences([2.0, 1.002], [2.0, 1.0]) == [0.0, pytest.approx(0.002)]
    assert differences([100.0, 0.5], [100.0, 0.0]) == [0.0, 0.5]
    assert differences([float("nan")], [1.0]) == [float("inf")]
    assert Comparison(3, 3, 1e-7, 9e-4, 1e-4, None).equal
    assert not Comparison(3, 3, 1e-7, 2e-3, 1e-4, None).equal
    assert not Comparison(3, 3, 1e-4, 1e-4, 1e-4, None).equal
    assert not Comparison(3, 4, 0.0, 0.0, 0.0, None).equal
    assert not Comparison(0, 0, 0.0, 0.0, 0.0, None).equal
    assert Comparison(3, 3, 1e-7, 9e-5, None, None).equal
    assert not Comparison(3, 3, 1e-7, 2e-4, None, None).equal
    assert Comparison(3, 3, 1e-7, 2e-3, None, None).may_be_rounding
    assert not Comparison(3, 4, 0.0, 2e-3, 0.0, None).may_be_rounding


def test_rounding_is_the_most_that_any_run_made_of_the_steps_that_were_taken() -> None:
    torch, *nudges = (
        Run("finished", losses, [0.0] * len(losses), [], 0.0, 0, "")
        for losses in ([2.0, 1.0, 5.0], [2.0, 1.001, 5.0], [2.0, 1.02, 9.0])
    )
    ours = Run("stopped", [2.0, 1.1], [0.0] * 2, [], 0.0, 0, "")
    found = compare(ours, torch, nudges, None, 2)
    assert (found.steps, found.torch_steps, found.first, found.time_ratio) == (2, 2, 0.0, None)
    assert found.largest == pytest.approx(0.1)
    assert found.rounding == pytest.approx(0.02)
    assert compare(ours, torch, [], None, 2).rounding is None


def test_page_shows_what_failed() -> None:
    rows = [Row(CASES[0], "cpu", Comparison(3, 3, 0.0, 2e-6, 1e-6, 1.5), 0, True, ""),
            Row(CASES[1], "cpu", None, 2, False, "dl4all: AttributeError: no x"),
            Row(CASES[0], "vulkan:0", Comparison(2, 2, 0.0, 3e-6, None, None), 0, True, "")]  # fmt: skip
    text = page(rows, [("a script", "its reason")], "2.13.0")
    assert "## cpu\n\n1 of 2 scripts have equal losses; 1 have no other line changed" in text
    assert "| 0 | 3+ | 0.0e+00 | 2.0e-06 | 1.0e-06 | yes | 1.50 |" in text
    assert "dl4all: AttributeError: no x" in text
    assert "## vulkan:0\n\n1 of 1 scripts" in text
    assert "| 0 | 2+ | 0.0e+00 | 3.0e-06 |  | yes |\n" in text
    assert "- a script: its reason" in text


def test_measured_rows_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "scripts.json"
    first, again, second, other = (
        Row(CASES[k], device, Comparison(steps, 5, 0.0, 2e-6, 1e-6, None), 0, True, "")
        for k, steps, device in ((1, 4, "cpu"), (1, 5, "cpu"), (0, 5, "cpu"), (1, 2, "vulkan:0"))
    )
    failed = Row(CASES[2], "cpu", None, 3, False, "dl4all: no x")
    assert with_new_rows(file, [first, failed], "2.13.0") == [first, failed]
    assert with_new_rows(file, [other, again, second], "2.13.0") == [second, again, failed, other]
    assert with_new_rows(file, [first], "2.14.0") == [first]


def test_cases_have_names_of_their_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert len({(case.repository.name, case.script) for case in CASES}) >= 18
