"""Low-rank adapters: fine-tuning of few numbers beside frozen weights, in peft's files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dl4all import nn
from dl4all.autograd import no_grad
from dl4all.errors import ArgumentError, FileFormatError, WeightsError
from dl4all.io import load, save
from dl4all.io.files import write_text
from dl4all.llm.decoder import Decoder
from dl4all.llm.documents import read_json
from dl4all.nn import init
from dl4all.tensor.creation import zeros
from dl4all.tensor.tensor import Tensor

PREFIX = "base_model.model.model."
"""The beginning of peft's names of weights."""
LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
FUSED = ("gpt2", "phi3")
"""Families whose files have several of our layers in one: peft's names are of those."""


@dataclass(frozen=True)
class LoraConfig:
    """Settings of adapters, under peft's names.

    Args:
        r: the rank.
        lora_alpha: by which the adapter's part is scaled: ``lora_alpha / r``.
        target_modules: names of layers that get adapters, or ``"all-linear"`` for all of a block's.
        lora_dropout: of the adapter's inputs in training.
        use_rslora: scale by ``lora_alpha / sqrt(r)``. Source: D. Kalajdzievski, A Rank Stabilization Scaling
            Factor for Fine-Tuning with LoRA, 2023.

    Example:
        >>> import dl4all as dl
        >>> dl.llm.LoraConfig(r=16, lora_alpha=32).scale
        2.0
    """

    r: int = 8
    lora_alpha: float = 8
    target_modules: Sequence[str] | str = ("q_proj", "v_proj")
    lora_dropout: float = 0.0
    use_rslora: bool = False

    def __post_init__(self) -> None:
        """Refuse settings that are out of their range.

        Raises:
            ArgumentError: one is.
        """
        if isinstance(self.r, bool) or not isinstance(self.r, int) or self.r < 1:
            raise ArgumentError(f"[LoraConfig] r must be a positive integer, got {self.r!r}")
        if not 0 <= self.lora_dropout < 1 or not math.isfinite(self.lora_alpha):
            raise ArgumentError(
                "[LoraConfig] expected 0 <= lora_dropout < 1 and a finite lora_alpha, got "
                f"{self.lora_dropout} and {self.lora_alpha}"
            )

    @property
    def scale(self) -> float:
        """The factor of the adapter's part."""
        return self.lora_alpha / (math.sqrt(self.r) if self.use_rslora else self.r)

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the layers."""
        if isinstance(self.target_modules, str):
            return LINEARS if self.target_modules == "all-linear" else (self.target_modules,)
        return tuple(self.target_modules)


class LoraLinear(nn.Module):
    """A frozen linear layer and an adapter beside it: ``base(x) + scale * B(A(x))``.

    Args:
        base: the layer.
        config: of the adapter.

    Source: E. Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, 2021.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.llm.LoraLinear(dl.nn.Linear(4, 6), dl.llm.LoraConfig(r=2))
        >>> layer(dl.rand(3, 4)).shape, [name for name, p in layer.named_parameters() if p.requires_grad]
        ((3, 6), ['lora_A.weight', 'lora_B.weight'])
    """

    def __init__(self, base: Any, config: LoraConfig) -> None:
        super().__init__()
        self.base, self.config = base, config
        for parameter in base.parameters():
            parameter.requires_grad_(False)
        inputs, outputs = int(base.in_features), int(base.out_features)
        with init.skipping():
            self.lora_A = nn.Linear(inputs, config.r, bias=False)
            self.lora_B = nn.Linear(config.r, outputs, bias=False)
        self.lora_A.weight = nn.Parameter(init.kaiming_uniform((config.r, inputs)))
        self.lora_B.weight = nn.Parameter(zeros(outputs, config.r, device="cpu"))
        self.dropout = nn.Dropout(config.lora_dropout) if config.lora_dropout else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Outputs of the base's shape; the adapter computes in float32, as its weights are."""
        adapted: Tensor = self.lora_B(self.lora_A(self.dropout(x.float())))
        y: Tensor = self.base(x)
        return y + (adapted * self.config.scale).to(y.dtype)

    def merged(self) -> nn.Module:
        """The base, with the adapter's part in its weight.

        Raises:
            ArgumentError: its weight is quantised.
        """
        weight = getattr(self.base, "weight", None)
        if not isinstance(weight, nn.Parameter):
            raise ArgumentError("[llm] adapters cannot be merged into quantised weights; keep them apart")
        with no_grad():
            part = (self.lora_B.weight @ self.lora_A.weight) * self.config.scale
            weight.copy_((weight.float() + part).to(weight.dtype))
        merged: nn.Module = self.base
        return merged


def get_lora_model(model: Decoder, config: LoraConfig) -> Decoder:
    """Freeze a model, and put adapters beside its layers.

    Args:
        model: is changed: its layers are replaced.
        config: of the adapters.

    Returns:
        The model.

    Raises:
        ArgumentError: no layer has a name of ``target_modules``, or the model has adapters already.

    Example:
        >>> import dl4all as dl
        >>> sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2}
        >>> made = dl.llm.decoder_config({**sizes, "model_type": "llama", "num_attention_heads": 4})
        >>> model = dl.llm.get_lora_model(dl.llm.Decoder(made), dl.llm.LoraConfig(r=4))
        >>> sum(p.numel() for p in model.parameters() if p.requires_grad)
        1024
    """
    if any(isinstance(module, LoraLinear) for module in model.modules()):
        raise ArgumentError("[llm] the model has adapters already; merge() makes them part of its weights")
    found: list[tuple[str, Any]] = [
        (name, module)
        for name, module in model.named_modules()
        if name.rpartition(".")[2] in config.targets and hasattr(module, "in_features")
    ]
    if not found:
        raise ArgumentError(
            f"[llm] no layer is called {' or '.join(config.targets) or 'anything'}; there are "
            f"{', '.join(LINEARS)}"
        )
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for name, module in found:
        _replace(model, name, LoraLinear(module, config).to(module.weight.device))
    return model


def merge(model: Decoder) -> Decoder:
    """Make adapters part of the weights beside them; returns the model.

    Raises:
        ArgumentError: there are none, or weights are quantised.

    Example:
        >>> import dl4all as dl
        >>> sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2}
        >>> made = dl.llm.decoder_config({**sizes, "model_type": "llama", "num_attention_heads": 4})
        >>> model = dl.llm.get_lora_model(dl.llm.Decoder(made), dl.llm.LoraConfig(r=4))
        >>> type(dl.llm.merge(model).layers[0].self_attn.q_proj).__name__
        'Linear'
    """
    for name, layer in list(adapters_of(model)):
        _replace(model, name, layer.merged())
    return model


def save_adapter(model: Decoder, folder: str | Path, base: str = "") -> None:
    """Write the adapters of a model as peft does: ``adapter_config.json``, ``adapter_model.safetensors``.

    Args:
        model: from :func:`get_lora_model`.
        folder: is made where it is not there.
        base: the model's folder or repository, which the file names.

    Raises:
        ArgumentError: the model has no adapters, or peft has other layers in its family.

    Example:
        >>> import dl4all as dl
        >>> sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2}
        >>> made = dl.llm.decoder_config({**sizes, "model_type": "llama", "num_attention_heads": 4})
        >>> dl.llm.save_adapter(dl.llm.get_lora_model(dl.llm.Decoder(made), dl.llm.LoraConfig()), "adapter")
    """
    _check_family(model)
    layers = dict(adapters_of(model))
    config = next(iter(layers.values())).config
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        f"{PREFIX}{name}.{part}.weight": getattr(layer, part).weight
        for name, layer in layers.items()
        for part in ("lora_A", "lora_B")
    }
    save(weights, folder / "adapter_model.safetensors")
    document = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": config.r,
        "lora_alpha": config.lora_alpha,
        "lora_dropout": config.lora_dropout,
        "target_modules": sorted({name.rpartition(".")[2] for name in layers}),
        "use_rslora": config.use_rslora,
        "bias": "none",
        "inference_mode": True,
    }
    write_text(folder / "adapter_config.json", json.dumps(document, indent=2))


def load_adapter(model: Decoder, folder: str | Path) -> Decoder:
    """Put the adapters of a folder, ours or peft's, beside a model's layers; returns the model.

    Raises:
        FileFormatError: a file is missing or damaged, or the adapter is of another kind.
        WeightsError: the adapter is of another model.
        ArgumentError: the model has adapters already, or peft has other layers in its family.

    Example:
        >>> import dl4all as dl
        >>> sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2}
        >>> made = dl.llm.decoder_config({**sizes, "model_type": "llama", "num_attention_heads": 4})
        >>> dl.llm.save_adapter(dl.llm.get_lora_model(dl.llm.Decoder(made), dl.llm.LoraConfig(r=4)), "lora")
        >>> dl.llm.load_adapter(dl.llm.Decoder(made), "lora").layers[0].self_attn.q_proj.config.r
        4
    """
    _check_family(model)
    folder = Path(folder)
    document = read_json(folder / "adapter_config.json")
    beyond = ("use_dora", "modules_to_save", "rank_pattern", "alpha_pattern")
    other = next((name for name in beyond if document.get(name)), None)
    if document.get("peft_type") != "LORA" or document.get("bias", "none") != "none" or other:
        raise FileFormatError(
            f"[llm] {folder} has an adapter of another kind than LoRA without biases: "
            f"{other or document.get('peft_type')!r}"
        )
    try:
        config = LoraConfig(
            r=document["r"],
            lora_alpha=document["lora_alpha"],
            target_modules=document["target_modules"],
            lora_dropout=document.get("lora_dropout", 0.0),
            use_rslora=bool(document.get("use_rslora", False)),
        )
    except (KeyError, TypeError, ArgumentError) as error:
        raise FileFormatError(f"[llm] {folder}/adapter_config.json is damaged: {error}") from error
    stored: dict[str, Any] = load(folder / "adapter_model.safetensors")
    get_lora_model(model, config)
    for name, layer in adapters_of(model):
        for part in ("lora_A", "lora_B"):
            key, weight = f"{PREFIX}{name}.{part}.weight", getattr(layer, part).weight
            found = stored.pop(key, None)
            if found is None or found.shape != weight.shape:
                shape = "missing" if found is None else f"of shape {found.shape}"
                raise WeightsError(f"[llm] {key} of {folder} is {shape}, the model needs {weight.shape}")
            with no_grad():
                weight.copy_(found.to(weight.device).to(weight.dtype))
    if stored:
        raise WeightsError(f"[llm] {folder} has {min(stored)}, which the model has not")
    return model


def adapters_of(model: Decoder) -> Iterator[tuple[str, LoraLinear]]:
    """Adapters by the names of the layers that they are beside.

    Raises:
        ArgumentError: there are none.
    """
    found = [(name, module) for name, module in model.named_modules() if isinstance(module, LoraLinear)]
    if not found:
        raise ArgumentError("[llm] the model has no adapters; get_lora_model makes some")
    yield from found


def _check_family(model: Decoder) -> None:
    if model.config.family in FUSED:
        raise ArgumentError(
            f"[llm] files of {model.config.family} have several layers in one, so peft's adapters are of "
            "other layers; merge() makes these part of the weights"
        )


def _replace(model: Decoder, name: str, module: nn.Module) -> None:
    parent, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(parent), leaf, module)
