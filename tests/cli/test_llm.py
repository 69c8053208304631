"""``dl4all generate`` and ``dl4all chat``."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import dl4all as dl
from dl4all.cli import cli
from dl4all.errors import FileFormatError
from dl4all.training import trainer
from tests.llm.speaker import write_speaker


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that speaks bytes."""
    return write_speaker(tmp_path_factory.mktemp("model"))


def run(*arguments: Any, text: str | None = None) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)], input=text, catch_exceptions=False)


def invoke(command: str, *arguments: Any, text: str | None = None) -> Result:
    steady = ["--device", "cpu", "--max-tokens", 8, "--temp", 0]
    return run(command, *arguments, *steady, text=text)


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
    assert invoke("generate", folder, "hello", "--draft-model", folder).stdout == done.stdout


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
    with pytest.raises(FileFormatError, match="has no tokenizer"):
        invoke("generate", bare, "hello")


@pytest.mark.parametrize("four_bits", [False, True])
def test_finetune(folder: Path, tmp_path: Path, four_bits: bool) -> None:
    line = {"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "world"}]}
    (tmp_path / "data.jsonl").write_text("\n".join([json.dumps(line)] * 24))
    options = ["--rank", 8, "--lr", 0.03, "--length", 40, "--batch", 2, "--epochs", 12, "--device", "cpu"]
    if four_bits:
        options.append("--four-bits")
    done = run("finetune", folder, tmp_path / "data.jsonl", "--output", tmp_path / "adapter", *options)
    assert done.exit_code == 0
    losses = [float(part.split(",")[0]) for part in done.stderr.split("loss ")[1:]]
    assert len(losses) == 12
    assert losses[-1] < 0.8 * losses[0]
    again = invoke("generate", folder, "hello", "--adapter", tmp_path / "adapter")
    assert again.stdout != invoke("generate", folder, "hello").stdout
    more = run(
        "finetune", folder, tmp_path / "data.jsonl", "--output", tmp_path / "more", *options,
        "--epochs", 1, "--device", "cpu", "--adapter", tmp_path / "adapter",
    )  # fmt: skip
    assert float(more.stderr.split("loss ")[1].split(",")[0]) < 0.9 * losses[0]


def test_finetune_goes_on_and_says_its_memory(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was interrupted within an epoch ends as one that was not."""
    lines = [json.dumps({"prompt": "hello", "completion": f"world {'again ' * n}"}) for n in range(9)]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    given = (
        "finetune", folder, tmp_path / "data.jsonl", "--rank", 4, "--lr", 0.02, "--length", 16, "--batch", 2,
        "--epochs", 3, "--dropout", 0.2, "--device", "cpu", "--save-every", 1,
    )  # fmt: skip
    whole = run(*given, "--output", tmp_path / "whole")
    assert whole.exit_code == 0
    told = re.search(
        r"memory of a step: (\d+) MB: weights \d+, adapters \d+, kept \d+, working \d+; ", whole.stderr
    )
    assert told is not None
    forced = run(*given, "--checkpointing", "--output", tmp_path / "again")
    assert "memory of a step, layers computed again for gradients: " in forced.stderr
    save_within = trainer.__dict__["save_within"]

    def interrupted(run: dl.Trainer, train: object) -> None:
        save_within(run, train)
        if run.step == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "save_within", interrupted)
        assert run(*given, "--output", tmp_path / "parts").exit_code != 0
    refused = run(*given, "--output", tmp_path / "parts")
    assert refused.exit_code == 2
    assert "has an earlier run: --resume goes on with it" in refused.stderr
    rest = run(*given, "--output", tmp_path / "parts", "--resume")
    assert rest.exit_code == 0
    assert "epoch 3: loss" in rest.stderr
    for name in ("whole", "again"):
        expected = dl.load(tmp_path / name / "adapter_model.safetensors")
        found = dl.load(tmp_path / "parts" / "adapter_model.safetensors")
        assert expected.keys() == found.keys()
        for key in expected:
            np.testing.assert_allclose(found[key].numpy(), expected[key].numpy(), atol=2e-5)
    size = sum(file.stat().st_size for file in (tmp_path / "whole" / "run").rglob("*.safetensors"))
    assert size < 2 * 4 * sum(value.nbytes for value in expected.values()), "frozen weights are not in it"
    one = run(*given, "--output", tmp_path / "more", "--device", "cpu,vulkan:0")
    assert (one.exit_code, "adapters learn on one device" in one.stderr) == (2, True)
    both = run(*given, "--output", tmp_path / "more", "--four-bits", "--dtype", "bfloat16")
    assert (both.exit_code, "give one of them" in both.stderr) == (2, True)


def test_quantize_writes_gguf(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "speaker.gguf"
    done = run("quantize", folder, out, "--to", "q8_0")
    assert done.exit_code == 0
    assert done.stdout == f"{out}: {out.stat().st_size / 1e6:.1f} MB of q8_0\n"
    assert isinstance(dl.llm.load(out)[0].lm_head.weight, dl.quantization.PackedWeight)
    assert invoke("generate", out, "hello").exit_code == 0
    run("quantize", folder, out)
    assert dl.llm.load(out)[0].layers[0].mlp.up_proj.weight.format == "Q4_0"
    for given, match in (
        ((out, "--to", "int8"), "expected one of f32"),
        (("w.st", "--to", "q4_0"), "is for a GGUF"),
    ):
        refused = run("quantize", folder, *given)
        assert refused.exit_code == 2
        assert match in refused.stderr


def test_bench(folder: Path) -> None:
    given = ("bench", "llm", folder, "--device", "cpu", "-p", 20, "-n", 5, "-r", 2)
    report = json.loads(run(*given, "--json").stdout)
    assert [test["test"] for test in report["tests"]] == ["pp20", "tg5"]
    assert all(test["mean"] > 0 for test in report["tests"])
    assert "tg5" in run(*given).stdout
