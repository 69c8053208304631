"""GGUF files: models of all families, weights in few bits, tokenizers, and files that lie."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import tokenizers
import torch
import transformers as hf
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

import dl4all as dl
from dl4all.errors import ArgumentError, ConfigError, Dl4allError, FileFormatError, WeightsError
from dl4all.llm.gguf.architectures import ARCHITECTURES, KEYS
from dl4all.llm.gguf.model import gguf_config
from dl4all.llm.gguf.reader import read_gguf
from dl4all.llm.gguf.row_bytes import rows_of
from dl4all.llm.gguf.vocabulary import KEY, metadata_of, tokenizer_of
from dl4all.quantization import PackedWeight
from tests.llm.conftest import IDX, Folders
from tests.llm.models import CONFIGS
from tests.llm.speaker import write_speaker

UNSAID = {
    "llama-dynamic": "depend on the length",
    "qwen2-window": "windows",
    "gemma2": "scale",
    "gemma3": "scale",
}
"""Models with parts that the format has no words for."""
READ_BY_TRANSFORMERS = ("llama", "qwen2")
"""The others it reads without their own rotary positions, sizes of heads or joined weights."""
SIZES = {"vocab_size": 97, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2}
KINDS = ("F32", "F16", "BF16", "Q4_0", "Q8_0", "Q4_K", "Q6_K", "Q5_1", "Q3_K")
"""Types that weights stay in, and others that become floats."""


def scores(path: Path, device: str = "cpu", **settings: Any) -> Any:
    model, _ = dl.llm.load(path, device=device, **settings)
    with dl.no_grad():
        return model(dl.tensor(IDX, device=device)).float().numpy()


def close(ours: Any, theirs: Any, most: float = 3e-5) -> None:
    assert np.abs(ours - theirs).max() <= most * np.abs(theirs).max()


def write_llama(path: Path, kind: str, **metadata: Any) -> dict[str, Any]:
    """Write a Llama by the package gguf alone; returns the numbers of its tensors, by their names."""
    rng = np.random.default_rng(0)
    type = GGMLQuantizationType[kind]
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in {
        "block_count": 2, "embedding_length": 256, "feed_forward_length": 512, "context_length": 64,
        "attention.head_count": 4, "attention.head_count_kv": 2, "vocab_size": 97,
    }.items():  # fmt: skip
        writer.add_uint32(f"llama.{name}", metadata.pop(name, value))
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_tokenizer_model("no_vocab")
    shapes = {"token_embd": (97, 256), "output": (97, 256), "output_norm": (256,)}
    for layer in range(2):
        shapes |= {
            f"blk.{layer}.{name}": shape
            for name, shape in {
                "attn_q": (256, 256), "attn_k": (128, 256), "attn_v": (128, 256), "attn_output": (256, 256),
                "ffn_gate": (512, 256), "ffn_up": (512, 256), "ffn_down": (256, 512),
                "attn_norm": (256,), "ffn_norm": (256,),
            }.items()
        }  # fmt: skip
    numbers = {}
    for name, shape in shapes.items():
        block, size = GGML_QUANT_SIZES[type]
        if len(shape) == 1:
            numbers[name] = rng.uniform(0.5, 1.5, shape).astype(np.float32)
            writer.add_tensor(f"{name}.weight", numbers[name])
        elif kind in ("Q4_K", "Q6_K", "Q3_K"):  # which the package does not write
            raw = rng.integers(0, 256, (shape[0], shape[1] // block, size), np.uint8)
            small = rng.uniform(2e-4, 8e-4, (*raw.shape[:2], 2)).astype("<f2").view(np.uint8)
            if kind == "Q4_K":
                raw[..., :4] = small
            else:
                raw[..., -2:] = small[..., :2]
            raw = raw.reshape(shape[0], -1)
            numbers[name] = gguf.dequantize(raw, type).reshape(shape)
            writer.add_tensor(f"{name}.weight", raw, raw_dtype=type)
        else:
            raw = gguf.quantize(rng.standard_normal(shape).astype(np.float32) * 0.05, type)
            numbers[name] = gguf.dequantize(raw, type).reshape(shape)
            writer.add_tensor(f"{name}.weight", raw, raw_dtype=type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return numbers


@pytest.mark.parametrize("name", [name for name in CONFIGS if name not in UNSAID])
def test_models_become_files_and_models_again(name: str, folders: Folders, tmp_path: Path) -> None:
    folder, expected = folders(name)
    model, _ = dl.llm.load(folder, device="cpu")
    dl.llm.save_gguf(model, None, tmp_path / "model.gguf", "f32")
    close(scores(tmp_path / "model.gguf"), expected)
    if name in READ_BY_TRANSFORMERS:
        theirs: Any = hf.AutoModelForCausalLM
        read = theirs.from_pretrained(
            tmp_path, gguf_file="model.gguf", attn_implementation="eager", dtype=torch.float32
        )
        with torch.no_grad():
            close(read(torch.from_numpy(IDX)).logits.numpy(), expected)


@pytest.mark.parametrize("name", list(UNSAID))
def test_what_a_file_cannot_say_is_refused(name: str, folders: Folders, tmp_path: Path) -> None:
    model, _ = dl.llm.load(folders(name)[0], device="cpu")
    with pytest.raises(ConfigError, match=UNSAID[name]):
        dl.llm.save_gguf(model, None, tmp_path / "model.gguf", "f32")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_those_of_the_package(kind: str, device: str, tmp_path: Path) -> None:
    numbers = write_llama(tmp_path / "model.gguf", kind)
    for name, tensor in read_gguf(tmp_path / "model.gguf").tensors.items():
        floats = rows_of(tensor).floats()
        np.testing.assert_array_equal(floats.astype(np.float32), numbers[name.removesuffix(".weight")])
    kept, _ = dl.llm.load(tmp_path / "model.gguf", device=device)
    wide, _ = dl.llm.load(tmp_path / "model.gguf", device=device, dtype="float32")
    table: Any = kept.embed_tokens.weight
    if kind.startswith("Q") and kind not in ("Q5_1", "Q3_K"):
        assert (type(table), table.format) == (PackedWeight, kind)
    else:
        assert str(table.dtype) == {"F16": "float16", "BF16": "bfloat16"}.get(kind, "float32")
    assert wide.lm_head.weight.dtype == dl.float32
    np.testing.assert_array_equal(wide.lm_head.weight.detach().numpy(), numbers["output"])
    idx = dl.tensor(IDX[:1, :9], device=device)
    with dl.no_grad():
        exact = wide(idx).numpy()
        if not kind.endswith("F16"):  # which computes in 16 bits
            close(kept(idx).float().numpy(), exact)
    if kind in ("Q4_0", "Q6_K"):
        tokens = [dl.llm.generate(model, None, IDX[0, :5].tolist(), 12) for model in (kept, wide)]
        assert tokens[0] == tokens[1]


def test_models_in_few_bits_are_near_and_can_be_tuned(folders: Folders, tmp_path: Path) -> None:
    config = dl.llm.decoder_config({**SIZES, "model_type": "qwen3", "num_attention_heads": 4})
    dl.manual_seed(3)
    model = dl.llm.Decoder(config).eval()
    with dl.no_grad():
        exact = model(dl.tensor(IDX)).numpy()
    for kind, most in (("q8_0", 0.02), ("q4_0", 0.3)):
        path = tmp_path / f"{kind}.gguf"
        dl.llm.save_gguf(model, None, path, kind)
        close(scores(path), exact, most)
    read, _ = dl.llm.load(tmp_path / "q4_0.gguf", device="cpu")
    kinds = {name: w.format for name, w in read.named_modules() if isinstance(w, PackedWeight)}
    assert set(kinds.values()) == {"Q4_0", "Q8_0"}
    assert kinds["lm_head.weight"] == "Q8_0"
    tuned = dl.llm.get_lora_model(read, dl.llm.LoraConfig(r=4, target_modules=("q_proj", "up_proj")))
    optimizer = dl.optim.Adam([p for p in tuned.parameters() if p.requires_grad], 1e-2)
    losses = []
    for _ in range(6):
        loss = dl.nn.functional.cross_entropy(
            tuned(dl.tensor(IDX[:, :-1])).reshape(-1, 97), IDX[:, 1:].ravel()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1
    with pytest.raises(ArgumentError, match="in few bits already"):
        dl.llm.save_gguf(read, None, tmp_path / "again.gguf")
    with pytest.raises(ArgumentError, match="expected a kind of f32, f16, bf16, q8_0, q4_0, got 'q2_k'"):
        dl.llm.save_gguf(model, None, tmp_path / "again.gguf", "q2_k")


def test_a_file_speaks_as_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "speaker"
    folder.mkdir()
    model, tokenizer = dl.llm.load(write_speaker(folder), device="cpu")
    dl.llm.save_gguf(model, tokenizer, tmp_path / "speaker.gguf", "f32")
    read, theirs = dl.llm.load(tmp_path / "speaker.gguf", device="cpu")
    assert tokenizer is not None
    assert theirs is not None
    talk = [{"role": "user", "content": "Grüße, 日本"}]
    assert theirs.apply_chat_template(talk) == tokenizer.apply_chat_template(talk)
    assert theirs.stops == tokenizer.stops
    answers = [
        dl.llm.generate(*both, "hello", 9, sampler=dl.llm.make_sampler(1.0), seed=1)
        for both in ((model, tokenizer), (read, theirs))
    ]
    assert answers[0] == answers[1]


TEXTS = ("hello world", "  The quick, brown fox's 1234 jumps!\n\n ok", "Grüße 日本語 🙂", "", "a<|end|>b")


@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "qwen2", "smollm", "tekken"])
def test_byte_pairs_from_tokens_and_merges(name: str) -> None:
    from dl4all.llm.gguf.vocabulary import WORDS

    pre = tokenizers.pre_tokenizers
    whole = tokenizers.Tokenizer(tokenizers.models.BPE())
    whole.pre_tokenizer = pre.Sequence(list(WORDS[name]))
    whole.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre.ByteLevel.alphabet(), special_tokens=["<s>", "<|end|>"],
        show_progress=False,
    )  # fmt: skip
    whole.train_from_iterator(TEXTS * 3, trainer)
    metadata = metadata_of(dl.llm.Tokenizer(whole, "{{ bos_token }}", {"bos_token": "<s>"}, [1]))
    assert metadata[f"{KEY}model"] == "gpt2"
    assert metadata[f"{KEY}pre"] == name
    del metadata["tokenizer.huggingface.json"]
    made = tokenizer_of(metadata)
    assert made is not None
    assert made.template == "{{ bos_token }}"
    assert made.stops == {1}
    for text in TEXTS:
        tokens = made.encode(text)
        assert tokens == whole.encode(text).ids
        assert made.decode(tokens) == whole.decode(tokens)


@pytest.mark.parametrize("prefix", [True, False])
def test_sentence_pieces_from_tokens_and_scores(prefix: bool) -> None:
    steps: list[Any] = [tokenizers.normalizers.Prepend("▁")] if prefix else []
    model = tokenizers.models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    whole = tokenizers.Tokenizer(model)
    whole.normalizer = tokenizers.normalizers.Sequence([*steps, tokenizers.normalizers.Replace(" ", "▁")])
    control = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=340, special_tokens=control, show_progress=False)
    whole.train_from_iterator(["the theme of them", "hello world there", "then other"] * 3, trainer)
    numbers = whole.get_vocab()
    pieces = sorted(numbers, key=numbers.__getitem__)
    metadata = {
        f"{KEY}model": "llama",
        f"{KEY}tokens": pieces,
        f"{KEY}scores": [-float(number) for number in range(len(pieces))],
        f"{KEY}token_type": [2, 3, 3, *[6] * 256, *[1] * (len(pieces) - len(control))],
        f"{KEY}bos_token_id": 1,
        f"{KEY}eos_token_id": 2,
        f"{KEY}add_space_prefix": prefix,
    }
    made = tokenizer_of(metadata)
    assert made is not None
    assert made.stops == {2}
    for text in ("the other hello", "them é 🙂 there", " world"):
        tokens = made.encode(text)
        assert tokens[0] == 1
        if "é" not in text:  # whose bytes the reference holds for special tokens
            assert tokens[1:] == whole.encode(text).ids
        assert made.decode(tokens) == text
    assert made.encode("<s>hello")[:2] == [1, 1]


def test_tokenizers_that_are_not_known() -> None:
    assert tokenizer_of({}) is None
    base = {f"{KEY}tokens": ["a", "b"], f"{KEY}merges": [], f"{KEY}model": "gpt2"}
    for changed, match in (
        ({f"{KEY}model": "t5"}, "of kind 't5' is not known"),
        ({f"{KEY}pre": "runes"}, "cuts words as 'runes' is not known"),
        ({f"{KEY}merges": ["a c"]}, "tokenizer is damaged"),
        ({f"{KEY}bos_token_id": 9}, "tokenizer is damaged"),
        ({f"{KEY}token_type": [1]}, "tokenizer is damaged"),
        ({"tokenizer.huggingface.json": "{"}, "tokenizer is damaged"),
    ):
        with pytest.raises(FileFormatError, match=match):
            tokenizer_of({**base, **changed})


def lying(path: Path, at: int, layout: str, value: int) -> Path:
    data = bytearray(path.read_bytes())
    struct.pack_into(layout, data, at, value)
    other = path.with_name("lying.gguf")
    other.write_bytes(data)
    return other


def test_files_that_lie(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_llama(path, "Q4_0")
    data = path.read_bytes()
    place = data.index(b"token_embd.weight") + len(b"token_embd.weight")
    changes: list[tuple[Callable[[], Path], str]] = [
        (lambda: lying(path, 0, "<I", 0), "it begins with"),
        (lambda: lying(path, 4, "<I", 9), "its version is 9"),
        (lambda: lying(path, 8, "<Q", 2**62), "4611686018427387904 tensors follow"),
        (lambda: lying(path, 16, "<Q", 2**62), "entries of metadata follow"),
        (lambda: lying(path, 24, "<Q", 2**63), "bytes of text follow"),
        (lambda: lying(path, place, "<I", 9), "has 9 axes"),
        (lambda: lying(path, place + 4, "<Q", 2**62), "of 2[0-9]+ bytes, begins at"),
        (lambda: lying(path, place + 4, "<Q", 255), "no whole number of blocks of 32"),
        (lambda: lying(path, place + 4, "<Q", 0), r"is \(97, 0\): it has no elements"),
        (lambda: lying(path, place + 20, "<I", 77), "has the type 77, which is not known"),
        (lambda: lying(path, place + 24, "<Q", 2**40), "begins at byte"),
        (lambda: lying(path, place + 24, "<Q", 3), "begins at byte"),
    ]
    for changed, match in changes:
        with pytest.raises(FileFormatError, match=match):
            dl.llm.load(changed(), device="cpu")
    for size in (0, 3, 24, 100, len(data) // 2, len(data) - 100):
        (tmp_path / "cut.gguf").write_bytes(data[:size])
        with pytest.raises(FileFormatError, match=r"cut\.gguf"):
            dl.llm.load(tmp_path / "cut.gguf", device="cpu")


def test_configurations_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    for name, value, error, match in (
        ("block_count", 3, WeightsError, "numbers, the files have no more than"),
        ("block_count", 1, WeightsError, "blk.1.* which the model has not"),
        ("block_count", 2**31, ConfigError, "2147483648 layers .* expected up to 4096"),
        ("block_count", 0, ConfigError, "0 layers"),
        ("attention.head_count", 0, ConfigError, "num_attention_heads must be"),
        ("attention.head_count_kv", 3, ConfigError, "cannot share 3"),
        ("feed_forward_length", 500, WeightsError, r"ffn_gate.weight is \(512, 256\), the model's"),
    ):
        write_llama(path, "Q8_0", **{name: value})
        with pytest.raises(error, match=match):
            dl.llm.load(path, device="cpu")
    whole = path.read_bytes()
    begin = b"general.architecture" + struct.pack("<IQ", 8, 5)
    path.write_bytes(whole.replace(begin + b"llama", begin + b"mamba"))
    with pytest.raises(ConfigError, match="the architecture 'mamba' is not known; known are llama"):
        dl.llm.load(path, device="cpu")


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_any_kind_of_value_is_taken_or_refused(architecture: str, tmp_path: Path) -> None:
    """Whatever a number of the metadata becomes, there is a configuration or an error of the library."""
    write_llama(tmp_path / "model.gguf", "F32")
    file = read_gguf(tmp_path / "model.gguf")
    sound = {key.replace("llama", architecture, 1): value for key, value in file.metadata.items()}
    sound |= {"general.architecture": architecture, f"{architecture}.rope.scaling.type": "yarn"}
    known = [*KEYS.values(), "rope.freq_base", "rope.dimension_count", "rope.scaling.factor",
             "rope.scaling.attn_factor", "rope.freq_base_swa", "attention.layer_norm_epsilon"]  # fmt: skip
    for key in known:
        for value in (0, -1, 2**31, 2**62, 1e308, "x", [], [3, 3], True, ""):
            changed = {**sound, f"{architecture}.{key}": value}
            try:
                gguf_config(file._replace(metadata=changed))
            except ConfigError:
                continue


def test_names_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_llama(path, "Q8_0")
    whole = path.read_bytes()
    for name in (b"blk.0.attn_norm.weight", b"token_embd.weight"):
        for other in (b"blk.0.weight", b"blk.weight", b"x"):
            old, new = (struct.pack("<Q", len(one)) + one for one in (name, other))
            path.write_bytes(whole.replace(old, new))
            with pytest.raises(Dl4allError):
                dl.llm.load(path, device="cpu")


def test_any_change_of_a_header_is_loaded_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_llama(path, "Q8_0")
    whole = path.read_bytes()
    header = whole.index(b"blk.1.ffn_norm.weight") + 60
    rng = np.random.default_rng(0)
    loaded = 0
    for number in range(2000):
        data = bytearray(whole if number % 40 == 0 else whole[:header])
        for at in rng.integers(4, header, rng.integers(1, 4)):
            data[at] = rng.choice([0, 1, 255, rng.integers(256)])
        path.write_bytes(data)
        try:
            if number % 40 == 0:
                dl.llm.load(path, device="cpu")
            else:
                read_gguf(path)
            loaded += 1
        except Dl4allError:
            continue
    assert loaded > 0
