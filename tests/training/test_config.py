"""Configuration files: what they make, and what a mistake in one says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ConfigError
from dl4all.training import prepare, read_config
from dl4all.training.config import DATA, MODELS, OPTIMIZERS, SCHEDULES, arguments, fits

CONFIGS = sorted((Path(__file__).parents[2] / "examples" / "configs").glob("*.toml"))
GOOD = """
epochs = 2
seed = 7
[data]
name = "spiral"
count = 100
batch_size = 16
test = 0.25
[model]
name = "mlp"
hidden = [8, 8]
[optimizer]
name = "Adam"
lr = 0.01
betas = [0.8, 0.99]
[schedule]
name = "StepLR"
step_size = 1
gamma = 0.5
[trainer]
accumulate = 2
clip_norm = 1
ema = 0.9
metrics = ["accuracy", "top5_accuracy"]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text)
    return path


def ready(path: Path, **options: Any) -> dl.training.Prepared:
    return prepare(read_config(path), device="cpu", progress=False, **options)


def test_what_a_file_makes(tmp_path: Path) -> None:
    run = ready(written(tmp_path, GOOD), folder=tmp_path / "out")
    trainer, optimizer = run.trainer, run.trainer.optimizer
    assert isinstance(optimizer, dl.optim.Adam)
    assert optimizer.param_groups[0]["betas"] == [0.8, 0.99]
    assert isinstance(trainer.scheduler, dl.optim.lr_scheduler.StepLR)
    assert (trainer.accumulate, trainer.clip_norm, trainer.ema.decay) == (2, 1, 0.9)
    assert [tuple(p.shape) for p in trainer.model.parameters()] == [(8, 2), (8,), (8, 8), (8,), (3, 8), (3,)]
    assert run.test is not None
    assert (len(run.train.dataset), len(run.test.dataset), dl.initial_seed()) == (75, 25, 7)
    assert run.train.seed is None  # the order comes from the generator that the seed has started
    history = run.fit()
    assert set(history.rows[-1]) == {
        "epoch", "loss", "accuracy", "top5_accuracy", "val_loss", "val_accuracy", "val_top5_accuracy",
    }  # fmt: skip
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.0025)
    assert (tmp_path / "out" / "history.jsonl").exists()


def test_the_same_file_gives_the_same_to_the_last_bit(tmp_path: Path, device: str) -> None:
    path = written(tmp_path, GOOD)

    def weights() -> list[bytes]:
        run = prepare(read_config(path), device=device, progress=False)
        run.fit(1)
        return [tensor.numpy().tobytes() for tensor in run.trainer.model.state_dict().values()]

    assert weights() == weights()


def test_held_out_samples_are_the_same_for_every_seed(tmp_path: Path) -> None:
    runs = [ready(written(tmp_path, GOOD.replace("seed = 7", f"seed = {seed}"))) for seed in (1, 2)]
    first, second = (run.test.dataset.arrays[0] for run in runs if run.test)
    np.testing.assert_array_equal(first, second)
    one, other = (next(iter(run.trainer.model.parameters())).detach().numpy() for run in runs)
    assert not np.array_equal(one, other)


def test_images_moved_and_held_out_apart(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    text = GOOD.replace('"spiral"\ncount = 100', '"digits"\nsize = 16\nshift = 3')
    run = ready(written(tmp_path, text))
    assert run.test is not None
    assert len(run.train.dataset) == 5 * 1348
    assert len(run.test.dataset) == 449
    assert tuple(next(iter(run.trainer.model.parameters())).shape) == (8, 256)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_bundled_files_are_good(path: Path) -> None:
    config = read_config(path)
    assert config.run.epochs > 1
    assert f"examples/configs/{path.name}" in path.read_text()


def test_each_belongs_to_an_example() -> None:
    examples = CONFIGS[0].parents[1]
    assert len(CONFIGS) >= 5
    assert [path.stem for path in CONFIGS if not (examples / f"{path.stem}.py").exists()] == []


def test_lengths_follow_from_the_epochs(tmp_path: Path) -> None:
    cosine = GOOD.replace('"StepLR"\nstep_size = 1\ngamma = 0.5', '"CosineAnnealingLR"')
    assert ready(written(tmp_path, cosine)).trainer.scheduler.T_max == 2
    cycle = GOOD.replace('"StepLR"\nstep_size = 1\ngamma = 0.5', '"OneCycleLR"\nmax_lr = 0.1')
    run = ready(written(tmp_path, cycle))
    assert run.trainer.scheduler.total_steps == 6  # 75 samples are 5 batches, which are 3 steps
    run.fit()
    assert run.trainer.step == 6


def test_two_kinds_of_targets(tmp_path: Path) -> None:
    text = GOOD.replace('"spiral"\ncount = 100', '"xor"').replace("test = 0.25", "test = 0")
    run = ready(written(tmp_path, re.sub(r"metrics = .*", "", text)))
    assert isinstance(run.trainer.loss, dl.nn.BCEWithLogitsLoss)
    assert run.test is None
    assert set(run.fit().rows[-1]) == {"epoch", "loss", "binary_accuracy"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("epochs = 2", "", "the file must say epochs"),
        (
            "epochs = 2",
            "epoch = 2",
            r"unknown key 'epoch' in the file \(did you mean 'epochs'\?\); known are",
        ),
        ("epochs = 2", "epochs = 'many'", "epochs in the file must be an integer, not 'many'"),
        ("[optimizer]", "[optimiser]", r"unknown key 'optimiser' .*did you mean 'optimizer'"),
        ("batch_size", "batchsize", r"unknown key 'batchsize' in \[data\] \(did you mean 'batch_size'\?\)"),
        ('"spiral"', '"spirals"', r"\[data\] has no 'spirals' \(did you mean 'spiral'\?\); known are xor,"),
        ('name = "mlp"', "", r"\[model\] has no name; known are mlp, lenet"),
        ('"Adam"', '"adamw"', r"did you mean 'AdamW'"),
        (
            "lr = 0.01",
            "learning_rate = 0.01",
            r"unknown key 'learning_rate' in \[optimizer\].*known are.* lr,",
        ),
        ("lr = 0.01", 'lr = "fast"', r"lr in \[optimizer\] must be a number, not 'fast'"),
        ("lr = 0.01", "lr = -1.0", r"run.toml: \[Adam\]"),
        (
            "[0.8, 0.99]",
            "[0.8]",
            r"betas in \[optimizer\] must be a list of 2: a number, a number, not \[0.8\]",
        ),
        ("[8, 8]", "[8, true]", r"hidden in \[model\] must be a list, each an integer"),
        (
            "[8, 8]",
            "[8, 8]\nnum_classes = 3",
            r"'num_classes' in \[model\] follows from the rest; leave it out",
        ),
        ("test = 0.25", "test = 1.5", r"test in \[data\] is a share below 1"),
        (
            "batch_size = 16",
            "batch_size = 0",
            r"run.toml: \[DataLoader\] batch_size must be at least 1, got 0",
        ),
        ('"mlp"\nhidden = [8, 8]', '"resnet18"\nbase_channels = 4', r"run.toml: \[conv2d\]"),
        ("accumulate = 2", "acumulate = 2", r"did you mean 'accumulate'"),
        ("top5_accuracy", "top9", r"run.toml: \[Trainer\] unknown metric 'top9'"),
        ("epochs = 2", "epochs = ", "is no TOML"),
        ("[model]", "[[model]]", r"there must be a table \[model\]"),
    ],
)
def test_mistakes(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    path = written(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ConfigError, match=message) as caught:
        ready(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"^none.toml: cannot be read: No such file"):
        read_config("none.toml")


def test_arguments_have_types() -> None:
    """So that every one of them is checked, and a default fits its own type."""
    import inspect

    for known in (DATA, MODELS, OPTIMIZERS, SCHEDULES):
        for name, factory in known.items():
            parameters = inspect.signature(factory).parameters
            for argument, hint in arguments(factory).items():
                default = parameters[argument].default
                default = list(default) if isinstance(default, tuple) else default
                assert hint is not Any, (name, argument)
                assert default is inspect.Parameter.empty or fits(default, hint), (name, argument, hint)
