"""The scripts that are run, with which arguments and on which data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from lab.scripts import data_files
from lab.scripts.repositories import ROOT, Repository

EXAMPLES = Repository("pytorch/examples", "77f55b912142e11fcfdf5b530231fb9c52f181e8")
NANOGPT = Repository("karpathy/nanoGPT", "3adf61e154c3fe3fca428ad6bc3818b27a3b8291")
MINGPT = Repository("karpathy/minGPT", "37baab71b9abea1b76ab957409a1cc2fbfba8a26")
MAKEMORE = Repository("karpathy/makemore", "988aa59e4d8fefa526d06f3b453ad116258398d4")
UNET = Repository("milesial/Pytorch-UNet", "21d7850f2af30a9695bbeea75f3136aa538cfc4a")
TUTORIAL = Repository("yunjey/pytorch-tutorial", "0500d3df5a2a8080ccfccbc00aca0eacc21818db")
CIFAR = Repository("kuangliu/pytorch-cifar", "49b7aa97b0c12fe0d4054e670403a16b6b834ddd")
SMALL = Repository("jcjohnson/pytorch-examples", "0003fcdc606a79951e53bf8f46f8574fa4739f23")
GANS = Repository("eriklindernoren/PyTorch-GAN", "36d3c77e5ff20ebe0aeefd322326a134a279b93e")
LECTURE = Repository("karpathy/ng-video-lecture", "52201428ed7b46804849dea0b3ccf0de9df1a5c3")
MORVAN = Repository("MorvanZhou/PyTorch-Tutorial", "dbe154a9e56635e51c6b0c2ccea8ae36cfb585a7")

WHOLE = (
    "is stopped before it calls `torch.save(model)`: dl4all saves `model.state_dict()`, and refuses a whole "
    "module, for which a file would have to run code"
)
ARRAYS = (("torch.from_numpy(", "torch.tensor("),)
PICTURES = (("imgs.type(Tensor)", "imgs.to('auto')"), ("imgs.type(FloatTensor)", "imgs.to('auto')"))
"""Data as tensors on the default device: `from_numpy` and loaders make them on the CPU, as PyTorch's do."""


THEMES = Repository("lab/themes", "")
"""Scripts of this repository in the manner of others', of themes that those above do not have."""


class Case(NamedTuple):
    """A script and how it is run."""

    name: str
    repository: Repository
    script: str
    arguments: tuple[str, ...] = ()
    steps: int = 60
    """After so many calls of ``backward`` it is stopped."""
    files: Callable[[Path], None] | None = None
    """Writes the data into the working directory."""
    folder: str | None = None
    """The working directory, in the repository; None: the script's."""
    pictures: int = 512
    """How many pictures the data sets of torchvision's names have."""
    device_steps: int = 10
    """As `steps`, on a device that is not the CPU, where the first losses are compared."""
    names_device: bool = True
    """Whether the script or an argument names the device to compute on; otherwise DL4ALL_DEVICE does."""
    timed: bool = True
    """Whether a step's work is the same with other random numbers; an episode's length is not."""
    edits: tuple[tuple[str, str], ...] = ()
    """Texts of the script and what stands in their places on a device that is not the CPU."""
    note: str = ""
    """What else the page says."""

    def steps_on(self, device: str) -> int:
        """After how many calls of ``backward`` it is stopped."""
        return self.steps if device == "cpu" else min(self.steps, self.device_steps)

    def edits_on(self, device: str) -> tuple[tuple[str, str], ...]:
        """What is replaced in the script, beside imports and the name of the device."""
        return () if device == "cpu" else self.edits

    def arguments_on(self, device: str) -> tuple[str, ...]:
        """What the script is called with, where it is told a device too."""
        return tuple(argument.replace("=cpu", f"={device}") for argument in self.arguments)


def _themes() -> tuple[Case, ...]:
    """All scripts of the folder, which run as they are on the device that DL4ALL_DEVICE names."""
    scripts = sorted((ROOT / THEMES.name).glob("*/*.py"), key=lambda script: script.stem)
    return tuple(
        Case(
            f"theme: {script.stem}",
            THEMES,
            script.relative_to(ROOT / THEMES.name).as_posix(),
            device_steps=60,
            names_device=False,
            timed=script.stem != "worker_pipeline",  # whose work is in other processes
        )
        for script in scripts
    )


def _example(name: str, script: str, *arguments: str, **options: object) -> Case:
    return Case(name, EXAMPLES, script, arguments, **options)  # type: ignore[arg-type]


def _tutorial(name: str, script: str, *arguments: str, **options: object) -> Case:
    return Case(name, TUTORIAL, f"tutorials/{script}", arguments, **options)  # type: ignore[arg-type]


CASES = (
    _example("mnist", "mnist/main.py", "--no-accel", "--epochs=2", "--log-interval=1", "--save-model"),
    _example("mnist_rnn", "mnist_rnn/main.py", "--epochs=3", "--save-model"),
    _example(
        "mnist_forward_forward",
        "mnist_forward_forward/main.py",
        "--no_accel",
        "--epochs=15",
        "--train_size=256",
        "--test_size=64",
        "--save_model",
    ),
    _example("vae", "vae/main.py", "--no-accel", "--epochs=5", files=data_files.result_folder),
    _example(
        "dcgan",
        "dcgan/main.py",
        "--dataset=fake",
        "--imageSize=64",
        "--batchSize=16",
        "--ngf=16",
        "--ndf=16",
        "--niter=2",
        "--manualSeed=3",
        "--workers=0",
        pictures=64,
    ),
    _example("regression", "regression/main.py", steps=400, names_device=False),
    _example(
        "reinforce",
        "reinforcement_learning/reinforce.py",
        steps=40,
        names_device=False,
        edits=ARRAYS,
        timed=False,
    ),
    _example(
        "actor_critic",
        "reinforcement_learning/actor_critic.py",
        steps=40,
        names_device=False,
        edits=ARRAYS,
        timed=False,
    ),
    _example(
        "super_resolution",
        "super_resolution/main.py",
        "--upscale_factor=3",
        "--batchSize=4",
        "--nEpochs=2",
        "--threads=2",
        "--lr=0.001",
        steps=3,
        note=WHOLE,
        files=data_files.photographs,
    ),
    _example(
        "word_language_model: LSTM",
        "word_language_model/main.py",
        "--model=LSTM",
        "--dropout=0",
        "--nhid=64",
        "--emsize=64",
        "--epochs=6",
        "--log-interval=2",
        steps=40,
        note=WHOLE,
        files=data_files.word_corpus,
    ),
    _example(
        "word_language_model: Transformer",
        "word_language_model/main.py",
        "--model=Transformer",
        "--lr=1",
        "--dropout=0",
        "--nhid=64",
        "--emsize=64",
        "--epochs=6",
        "--log-interval=2",
        steps=40,
        note=WHOLE,
        files=data_files.word_corpus,
    ),
    _example("gcn", "gcn/main.py", "--no-accel", "--epochs=30", files=data_files.citations),
    _example(
        "gat",
        "gat/main.py",
        "--no-accel",
        "--epochs=8",
        "--hidden-dim=16",
        "--num-heads=4",
        device_steps=3,
        files=data_files.citations,
    ),
    Case(
        "nanoGPT",
        NANOGPT,
        "train.py",
        (
            "config/train_shakespeare_char.py",
            "--device=cpu",
            "--compile=False",
            "--eval_iters=2",
            "--log_interval=1",
            "--block_size=32",
            "--batch_size=8",
            "--n_layer=2",
            "--n_head=2",
            "--n_embd=64",
            "--max_iters=30",
            "--eval_interval=10",
            "--lr_decay_iters=30",
            "--dropout=0.0",
        ),
        files=data_files.characters,
    ),
    Case(
        "minGPT: adder",
        MINGPT,
        "projects/adder/adder.py",
        ("--trainer.max_iters=40", "--trainer.num_workers=0", "--model.model_type=gpt-nano"),
        folder=".",
    ),
    Case(
        "minGPT: chargpt",
        MINGPT,
        "projects/chargpt/chargpt.py",
        (
            "--trainer.max_iters=30",
            "--model.model_type=gpt-nano",
            "--trainer.batch_size=16",
            "--data.block_size=32",
        ),
        folder=".",
        files=data_files.text_file,
    ),
    *(
        Case(
            f"makemore: {kind}",
            MAKEMORE,
            "makemore.py",
            (
                f"--type={kind}",
                "--max-steps=40",
                "--num-workers=0",
                "--n-layer=2",
                "--n-embd=32",
                "--n-embd2=32",
            ),
            files=data_files.names,
        )
        for kind in ("transformer", "bigram", "mlp", "rnn", "gru", "bow")
    ),
    Case(
        "UNet",
        UNET,
        "train.py",
        ("--epochs=1", "--batch-size=2", "--scale=0.5", "--validation=20", "--learning-rate=1e-5"),
        steps=4,
        device_steps=2,
        files=data_files.masked_photographs,
    ),
    _tutorial("linear_regression", "01-basics/linear_regression/main.py", names_device=False, edits=ARRAYS),
    _tutorial("logistic_regression", "01-basics/logistic_regression/main.py", names_device=False),
    _tutorial("feedforward_neural_network", "01-basics/feedforward_neural_network/main.py"),
    _tutorial("convolutional_neural_network", "02-intermediate/convolutional_neural_network/main.py"),
    _tutorial("recurrent_neural_network", "02-intermediate/recurrent_neural_network/main.py", steps=20),
    _tutorial(
        "bidirectional_recurrent_neural_network",
        "02-intermediate/bidirectional_recurrent_neural_network/main.py",
        steps=20,
    ),
    _tutorial(
        "deep_residual_network",
        "02-intermediate/deep_residual_network/main.py",
        steps=10,
        pictures=160,
        device_steps=4,
    ),
    _tutorial(
        "language_model", "02-intermediate/language_model/main.py", steps=15, files=data_files.word_corpus
    ),
    _tutorial(
        "generative_adversarial_network",
        "03-advanced/generative_adversarial_network/main.py",
        steps=60,
        pictures=500,
    ),
    _tutorial("variational_autoencoder", "03-advanced/variational_autoencoder/main.py", steps=60),
    Case("pytorch-cifar: SimpleDLA", CIFAR, "main.py", ("--lr=0.01",), steps=2, device_steps=2, pictures=80),
    Case("two_layer_net_tensor", SMALL, "tensor/two_layer_net_tensor.py"),
    Case("two_layer_net_autograd", SMALL, "autograd/two_layer_net_autograd.py", steps=500),
    Case(
        "two_layer_net_custom_function",
        SMALL,
        "autograd/two_layer_net_custom_function.py",
        steps=500,
        device_steps=20,
    ),
    Case("two_layer_net_nn", SMALL, "nn/two_layer_net_nn.py", steps=500),
    Case(
        "two_layer_net_optim",
        SMALL,
        "nn/two_layer_net_optim.py",
        steps=500,
        device_steps=20,
        names_device=False,
    ),
    Case(
        "two_layer_net_module",
        SMALL,
        "nn/two_layer_net_module.py",
        steps=500,
        device_steps=20,
        names_device=False,
    ),
    Case("dynamic_net", SMALL, "nn/dynamic_net.py", steps=100, names_device=False),
    Case("ng-video-lecture: bigram", LECTURE, "bigram.py", steps=100, files=data_files.text_file),
    *(
        Case(
            f"PyTorch-GAN: {kind}",
            GANS,
            f"implementations/{kind}/{kind}.py",
            ("--n_epochs=2", "--batch_size=32", *arguments),
            steps=steps,
            pictures=256,
            names_device=False,
            edits=PICTURES,
        )
        for kind, steps, arguments in (
            ("wgan_gp", 40, ()),
            ("aae", 40, ("--img_size=28",)),
            ("infogan", 24, ()),
        )
    ),
    Case(
        "RNN_regressor",
        MORVAN,
        "tutorial-contents/403_RNN_regressor.py",
        steps=60,
        names_device=False,
        edits=ARRAYS,
    ),
    Case("GAN of curves", MORVAN, "tutorial-contents/406_GAN.py", steps=60, names_device=False, edits=ARRAYS),
    *_themes(),
)

OMITTED = (
    (
        "pytorch/examples siamese_network",
        "calls `np.array(..., copy=None)`, which is NumPy 2's; PyTorch's run too fails with NumPy 1",
    ),
    ("spro/char-rnn.pytorch", "reads `loss.data[0]`, which PyTorch refuses since version 0.5"),
    (
        "yunjey/pytorch-tutorial pytorch_basics",
        "calls `data_iter.next()`, which PyTorch removed in version 1.13",
    ),
    (
        "yunjey/pytorch-tutorial neural_style_transfer",
        "reads `PIL.Image.ANTIALIAS`, which Pillow removed in 10",
    ),
    (
        "pytorch/examples time_sequence_prediction",
        "loads a pickled array, which `torch.load` of both refuses",
    ),
    ("pytorch/examples language_translation, snli", "need torchtext, which is no longer developed"),
    ("pytorch/examples mnist_hogwild, imagenet, distributed, rpc", "share a model between processes"),
    (
        "karpathy/ng-video-lecture gpt",
        "evaluates a network of 10 million parameters 400 times before its first step",
    ),
    (
        "pytorch/examples fx, cpp, fast_neural_style",
        "are about PyTorch's graphs, about C++, and need weights",
    ),
)
"""Scripts that were looked at, and why they are not run."""
