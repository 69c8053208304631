"""Train a tiny language model on plain text, then tune it to answer questions, in a minute.

python examples/tune_tiny_model.py [--device auto] [--folder tiny-model]

The text is Python's own Zen, and the model reads it byte by byte. Its folder is one that `dl4all chat` and
Hugging Face's transformers read; the adapters are peft's. Then `dl4all chat tiny-model --adapter
tiny-model/adapter` talks with it.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import tokenizers

import dl4all as dl

LENGTH = 64
TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
ANSWERS = {
    "What is better than ugly?": "Beautiful is better than ugly.",
    "What is better than implicit?": "Explicit is better than implicit.",
    "What counts?": "Readability counts.",
    "What is better than never?": "Now is better than never.",
}


def zen() -> str:
    """The text, which Python hides in a module that prints it."""
    with contextlib.redirect_stdout(io.StringIO()):
        import this
    return codecs.decode(this.s, "rot13")


def write_tokenizer(folder: Path) -> dl.llm.Tokenizer:
    """A tokenizer whose tokens are bytes, and the marks of talks."""
    letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    numbers = {letter: number for number, letter in enumerate(sorted(letters))}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(numbers, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<user>", "<assistant>", "<system>", "<end>"])
    made.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<end>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    found = dl.llm.Tokenizer.of_folder(folder)
    assert found is not None
    return found


def train(folder: Path, tokenizer: dl.llm.Tokenizer, device: str, steps: int) -> float:
    """A new model, which learns the text, and is written as a folder; returns the last loss."""
    document = {
        "model_type": "llama", "vocab_size": tokenizer.tokens.get_vocab_size(), "hidden_size": 128,
        "intermediate_size": 384, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 256, "tie_word_embeddings": True, "dtype": "float32",
        "eos_token_id": tokenizer.tokens.token_to_id("<end>"),
    }  # fmt: skip
    model = dl.llm.Decoder(dl.llm.decoder_config(document)).to(device)
    with dl.no_grad():
        model.embed_tokens.weight.mul_(0.1)
    optimizer = dl.optim.AdamW(model.parameters(), lr=2e-3)
    tokens, draw = np.array(tokenizer.encode(zen())), np.random.default_rng(0)

    @dl.compile
    def step(x: dl.Tensor, y: dl.Tensor) -> dl.Tensor:
        optimizer.zero_grad()
        loss: dl.Tensor = dl.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(steps):
        starts = draw.integers(0, len(tokens) - LENGTH - 1, 8)
        rows = np.stack([tokens[start : start + LENGTH + 1] for start in starts])
        x, y = (dl.tensor(part, device=device) for part in (rows[:, :-1], rows[:, 1:]))
        loss = step(x, y)
    (folder / "config.json").write_text(json.dumps(document))
    weights = {f"model.{name}": value for name, value in model.state_dict().items()}
    dl.save(weights, folder / "model.safetensors")
    return float(loss.item())


def tune(folder: Path, device: str, epochs: int) -> dl.llm.Decoder:
    """The model of the folder with adapters that have learned the answers, which are written, too."""
    model, tokenizer = dl.llm.load(folder, device=device)
    assert tokenizer is not None
    talks: list[dict[str, Any]] = [
        {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}
        for question, answer in ANSWERS.items()
    ]
    (folder / "answers.jsonl").write_text("\n".join(json.dumps(talk) for talk in talks * 8))
    rows, targets = dl.llm.packed(dl.llm.read_examples(folder / "answers.jsonl", tokenizer), 128)
    tuned = dl.llm.TunedDecoder(dl.llm.get_lora_model(model, dl.llm.LoraConfig(16, 32, "all-linear")))
    print(f"memory of a step: {dl.llm.tuning_memory(model, tokens=128, batch=4)}")
    optimizer = dl.optim.AdamW(list(tuned.parameters()), lr=3e-3)
    trainer = dl.Trainer(
        tuned, tuned.loss, optimizer, device=device, compile=True, stop_on_nan=False, progress=False
    )
    loader = dl.data.DataLoader(dl.data.TensorDataset(rows, targets), 4, shuffle=True, device=None)
    trainer.fit(loader, epochs)
    losses = trainer.history["loss"]
    print(f"loss of the answers: {losses[0]:.2f}, then {losses[-1]:.3f}")
    dl.llm.save_adapter(model, folder / "adapter", str(folder))
    return model.eval()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="auto", show_default=True)
@click.option("--folder", default="tiny-model", show_default=True, type=click.Path(path_type=Path))
@click.option("--steps", default=300, show_default=True, help="Of training on the text.")
@click.option("--epochs", default=40, show_default=True, help="Of tuning on the answers.")
def main(device: str, folder: Path, steps: int, epochs: int) -> None:
    """Train, tune, and ask."""
    dl.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = write_tokenizer(folder)
    print(f"loss of the text: {train(folder, tokenizer, device, steps):.3f}")
    plain, _ = dl.llm.load(folder, device=device)
    print("goes on:", dl.llm.generate(plain, tokenizer, "Beautiful is", 40).strip())
    model = tune(folder, device, epochs)
    for question, answer in ANSWERS.items():
        talk = [{"role": "user", "content": question}]
        told = "".join(piece.text for piece in dl.llm.Conversation(model, tokenizer).answer(talk, 60))
        print(f"{question} {told}" + ("" if told == answer else "  (not what it was told)"))


if __name__ == "__main__":
    main()
