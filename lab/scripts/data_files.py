"""Small files in the formats that the scripts read, drawn from a seed."""

from __future__ import annotations

import io
import pickle
import random
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

TEXT = (
    "the king and his crown spoke of war love night but no man heard a word that day for wind had come to him"
)
WORDS = TEXT.split()


def prose(words: int, seed: int = 3) -> str:
    """Lines of a dozen words in which some follow others more often."""
    rng = random.Random(seed)
    place, chosen = 0, []
    for _ in range(words):
        place = (place * 5 + rng.choice((1, 1, 1, 2, 7))) % len(WORDS)
        chosen.append(WORDS[place])
    return "\n".join(" ".join(chosen[i : i + 12]) for i in range(0, words, 12)) + "\n"


def text_file(folder: Path) -> None:
    """``input.txt``."""
    Path(folder, "input.txt").write_text("O God, O God! " + prose(4000))


def names(folder: Path) -> None:
    """``names.txt``, a name a line."""
    rng = random.Random(4)
    syllables = ("ka", "ri", "mo", "len", "dor", "a", "e", "mi", "sha", "tan", "li", "jo")
    made = {"".join(rng.choices(syllables, k=rng.randint(2, 4))) for _ in range(900)}
    Path(folder, "names.txt").write_text("\n".join(sorted(made)) + "\n")


def word_corpus(folder: Path) -> None:
    """Wikitext's three files, and Penn Treebank's one."""
    data = folder / "data" / "wikitext-2"
    data.mkdir(parents=True, exist_ok=True)
    for seed, (name, words) in enumerate((("train", 30_000), ("valid", 700), ("test", 700))):
        Path(data, f"{name}.txt").write_text(prose(words, seed))
    Path(folder, "data", "train.txt").write_text(prose(6000, 5))


def characters(folder: Path) -> None:
    """nanoGPT's characters: their numbers in two files of 16 bits, and their table."""
    data = folder / "data" / "shakespeare_char"
    data.mkdir(parents=True, exist_ok=True)
    text = prose(6000)
    letters = sorted(set(text))
    numbers = np.array([letters.index(letter) for letter in text], np.uint16)
    numbers[:-2000].tofile(data / "train.bin")
    numbers[-2000:].tofile(data / "val.bin")
    table = {
        "vocab_size": len(letters),
        "itos": dict(enumerate(letters)),
        "stoi": {letter: number for number, letter in enumerate(letters)},
    }
    Path(data, "meta.pkl").write_bytes(pickle.dumps(table))


def citations(folder: Path) -> None:
    """Cora's two files, ``cora.content`` and ``cora.cites``, and the archive that they are downloaded in."""
    rng = np.random.default_rng(5)
    papers, words = 1800, 300
    subjects = rng.integers(0, 7, papers)
    numbers = rng.permutation(50_000)[:papers]
    likely = rng.random((7, words)) < 0.15
    used = (rng.random((papers, words)) < np.where(likely[subjects], 0.25, 0.02)).astype(int)
    lines = [
        "\t".join((str(number), *map(str, row), f"Subject_{subject}"))
        for number, row, subject in zip(numbers, used, subjects, strict=True)
    ]
    pairs = {
        (a, int(rng.choice(np.flatnonzero(subjects == subjects[a])) if rng.random() < 0.8 else b))
        for a, b in rng.integers(0, papers, (4000, 2)).tolist()
    }
    cites = [f"{numbers[a]}\t{numbers[b]}" for a, b in sorted(pairs) if a != b]
    contents = {"cora.content": lines, "cora.cites": cites}
    with tarfile.open(folder / "cora.tgz", "w:gz") as archive:
        for name, text in contents.items():
            encoded = ("\n".join(text) + "\n").encode()
            member = tarfile.TarInfo(f"cora/{name}")
            member.size = len(encoded)
            archive.addfile(member, io.BytesIO(encoded))


def photographs(folder: Path) -> None:
    """The folders of the Berkeley segmentation data set with a few blurred pictures."""
    rng = np.random.default_rng(6)
    for part, count in (("train", 16), ("test", 4)):
        target = folder / "dataset" / "BSDS300" / "images" / part
        target.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            pixels = rng.integers(0, 255, (33, 49, 3)).astype(np.uint8)
            Image.fromarray(pixels).resize((481, 321), Image.Resampling.BICUBIC).save(
                target / f"{number}.png"
            )


def masked_photographs(folder: Path) -> None:
    """Carvana's folders: pictures of a bright disc, and masks of where it is."""
    rng = np.random.default_rng(7)
    images, masks = folder / "data" / "imgs", folder / "data" / "masks"
    images.mkdir(parents=True, exist_ok=True)
    masks.mkdir(parents=True, exist_ok=True)
    height, width = np.mgrid[:48, :64]
    for number in range(12):
        (y, x), radius = rng.integers(14, 34, 2), rng.integers(8, 13)
        inside = (height - y) ** 2 + (width - x) ** 2 < radius**2
        pixels = rng.integers(0, 90, (48, 64, 3)) + inside[..., None] * rng.integers(90, 160, 3)
        Image.fromarray(pixels.astype(np.uint8)).save(images / f"{number:02}.png")
        Image.fromarray(inside.astype(np.uint8) * 255).save(masks / f"{number:02}_mask.png")


def result_folder(folder: Path) -> None:
    """``results``, which git keeps by an empty file."""
    Path(folder, "results").mkdir(exist_ok=True)
