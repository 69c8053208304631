"""Sequence to sequence with attention over a recurrent network: written dates to dates of digits.

python examples/course/translation.py --picture translation.svg
"""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt

import dl4all as dl
from dl4all import nn
from dl4all.cli.run import run
from dl4all.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[2]))

from dl4all.io.picture_file import new_figure, save_figure

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
LETTERS = " -0123456789" + "".join(sorted(set("".join(MONTHS))))
START = len(LETTERS)
SOURCE, TARGET, WIDTH = 11, 8, 48

Codes = npt.NDArray[np.int64]


def dates(rng: np.random.Generator, count: int) -> tuple[Codes, Codes]:
    """Dates such as ``" 3 Feb 2027"``, shape (count, 11), and ``"20270203"``, shape (count, 8)."""
    days = [
        datetime.date(2000, 1, 1) + datetime.timedelta(int(day)) for day in rng.integers(0, 18_262, count)
    ]
    written = [f"{day.day:>2} {MONTHS[day.month - 1]} {day.year}" for day in days]
    return codes(written), codes([day.strftime("%Y%m%d") for day in days])


def codes(texts: list[str]) -> Codes:
    return np.array([[LETTERS.index(letter) for letter in text] for text in texts], np.int64)


def text_of(line: Codes) -> str:
    return "".join(LETTERS[code] for code in line)


class Translator(nn.Module):
    """A GRU reads, another writes and looks at all that the first has read (Luong et al., 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(START + 1, WIDTH)
        self.reader = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.writer = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.mixed = nn.Linear(2 * WIDTH, WIDTH)
        self.answer = nn.Linear(WIDTH, START)

    def forward(self, source: dl.Tensor, before: dl.Tensor) -> tuple[dl.Tensor, dl.Tensor]:
        """Logits (N, T, letters) of each letter after those `before` it (N, T), and attention (N, T, S)."""
        read, state = self.reader(self.letters(source))
        written, _ = self.writer(self.letters(before), state)
        attention = (written @ read.transpose(1, 2)).softmax(-1)
        mixed = self.mixed(dl.cat([written, attention @ read], -1)).tanh()
        return self.answer(mixed), attention


def answers(network: Translator, source: dl.Tensor) -> tuple[Codes, dl.Tensor]:
    """Letters (N, 8), each from those before it, and the attention of the last step."""
    before = dl.full((source.shape[0], 1), START, dtype=dl.int64, device=source.device)
    with dl.no_grad():
        for _ in range(TARGET):
            logits, attention = network(source, before)
            before = dl.cat([before, logits[:, -1:].argmax(-1)], 1)
    return before[:, 1:].numpy(), attention


@click.command()
@click.option("--device", default="auto", show_default=True, help="auto, cpu, vulkan:0, kompute:0, ...")
@click.option("--steps", default=600, show_default=True)
@click.option("--batch", default=64, show_default=True)
@click.option("--picture", metavar="FILE.svg", help="Draw where the network looks.")
def main(device: str, steps: int, batch: int, picture: str | None) -> None:
    place = dl.device(device)
    dl.manual_seed(0)
    rng = np.random.default_rng(0)
    network = Translator().to(place)
    optimizer = dl.optim.Adam(network.parameters(), lr=3e-3)

    @dl.compile
    def step(source: dl.Tensor, before: dl.Tensor, target: dl.Tensor) -> dl.Tensor:
        optimizer.zero_grad()
        logits, _ = network(source, before)
        loss = F.cross_entropy(logits.reshape(-1, START), target.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    for number in range(steps):
        source, target = dates(rng, batch)
        before = np.concatenate([np.full((batch, 1), START), target[:, :-1]], 1)
        loss = step(*(dl.tensor(one, device=place) for one in (source, before, target)))
        if number % 100 == 99:
            print(f"step {number + 1}: loss {loss.item():.3f}")
    source, target = dates(np.random.default_rng(1), 200)
    got, attention = answers(network, dl.tensor(source, device=place))
    for one in range(3):
        print(f"{text_of(source[one])} -> {text_of(got[one])}")
    print(f"{(got == target).all(1).mean():.1%} of 200 dates are right, on {place}")
    if picture is not None:
        figure = new_figure("course", 5, 4)
        axes = figure.add_subplot()
        axes.imshow(attention[0].numpy(), cmap="viridis")
        axes.set_xticks(range(SOURCE), text_of(source[0]))
        axes.set_yticks(range(TARGET), text_of(got[0]))
        save_figure("course", figure, picture)


if __name__ == "__main__":
    run(main, "translation")
