"""``dl4all generate`` and ``dl4all chat``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import dl4all as dl
from dl4all.cli import cli
from dl4all.errors import FileFormatError
from tests.llm.speaker import write_speaker


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that speaks bytes."""
    return write_speaker(tmp_path_factory.mktemp("model"))


def invoke(command: str, *arguments: Any, text: str | None = None) -> Result:
    steady = ["--device", "cpu", "--max-tokens", 8, "--temp", 0]
    return CliRunner().invoke(
        cli, [command, *map(str, arguments), *map(str, steady)], input=text, catch_exceptions=False
    )


def test_generate(folder: Path) -> None:
    model, tokenizer = dl.llm.load(folder, device="cpu")
    assert tokenizer is not None
    talk = tokenizer.apply_chat_template([{"role": "user", "content": "hello"}])
    done = invoke("generate", folder, "hello")
    assert done.stdout == dl.llm.generate(model, tokenizer, talk, 8) + "\n"
    assert done.stderr.startswith("8 tokens; the first after ")
    raw = invoke("generate", folder, "-", "--raw", text="hello")
    assert raw.stdout == dl.llm.generate(model, tokenizer, "hello", 8) + "\n"
    assert raw.stdout != done.stdout


def test_chat(folder: Path) -> None:
    model, tokenizer = dl.llm.load(folder, device="cpu")
    assert tokenizer is not None
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    first = dl.llm.generate(model, tokenizer, tokenizer.apply_chat_template(messages), 8)
    messages += [{"role": "assistant", "content": first}, {"role": "user", "content": "why?"}]
    second = dl.llm.generate(model, tokenizer, tokenizer.apply_chat_template(messages), 8)
    lines = "hello\nwhy?\n/new\nhello\n" + "x" * 200 + "\n/exit\n"
    done = invoke("chat", folder, "--system", "be brief", text=lines)
    assert done.exit_code == 0
    assert done.stdout == f"{first}\n{second}\n{first}\n"
    assert "128 tokens, got" in done.stderr, "a talk that is too long does not end it"
    assert invoke("chat", folder, text="").exit_code == 0


def test_models_without_text(folder: Path, tmp_path: Path) -> None:
    bare = Path(shutil.copytree(folder, tmp_path / "bare"))
    (bare / "chat_template.jinja").unlink()
    with pytest.raises(FileFormatError, match="no template of talks"):
        invoke("chat", bare)
    (bare / "tokenizer.json").unlink()
    with pytest.raises(FileFormatError, match=r"no tokenizer\.json"):
        invoke("generate", bare, "hello")
