"""Language models: decoders of many families, their files, and text from them (extra ``llm``).

model_files.py             a model and its tokenizer, from a folder, a GGUF file, or Hugging Face's Hub
├── families.py            what configurations say
├── decoder.py, rotary.py  the model; cache.py: what it keeps of the tokens before
├── weights.py             arrays of files by the model's names; gguf/: models in one file
├── lora.py                adapters beside frozen weights; examples.py: what they learn from
├── tokenizer.py           text and tokens, and the templates of talks
├── samplers.py            which token comes next
├── generation.py          tokens one after the other; conversation.py: answers to messages
└── completion_batcher.py  completions for many at once; speculation.py: drafts of a small model
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dl4all.lazy_names import lazy_names

if TYPE_CHECKING:
    from dl4all.llm.cache import KeyValueCache
    from dl4all.llm.completion_batcher import (
        Completion,
        CompletionBatcher,
        CompletionPiece,
        CompletionRequest,
    )
    from dl4all.llm.conversation import Conversation
    from dl4all.llm.decoder import Decoder
    from dl4all.llm.examples import TokenExample, packed, read_examples
    from dl4all.llm.families import DecoderConfig, decoder_config
    from dl4all.llm.generation import Piece, generate, stream_generate
    from dl4all.llm.gguf.writer import save_gguf
    from dl4all.llm.lora import (
        LoraConfig,
        LoraLinear,
        get_lora_model,
        load_adapter,
        merge,
        save_adapter,
    )
    from dl4all.llm.memory_account import TuningMemory, tuning_memory
    from dl4all.llm.model_files import load
    from dl4all.llm.samplers import make_sampler
    from dl4all.llm.tokenizer import Tokenizer
    from dl4all.llm.tuned_decoder import TunedDecoder

MODULES = {
    "Completion": "completion_batcher",
    "CompletionBatcher": "completion_batcher",
    "CompletionPiece": "completion_batcher",
    "CompletionRequest": "completion_batcher",
    "Conversation": "conversation",
    "Decoder": "decoder",
    "DecoderConfig": "families",
    "KeyValueCache": "cache",
    "LoraConfig": "lora",
    "LoraLinear": "lora",
    "Piece": "generation",
    "TokenExample": "examples",
    "Tokenizer": "tokenizer",
    "TunedDecoder": "tuned_decoder",
    "TuningMemory": "memory_account",
    "decoder_config": "families",
    "generate": "generation",
    "get_lora_model": "lora",
    "load": "model_files",
    "load_adapter": "lora",
    "make_sampler": "samplers",
    "merge": "lora",
    "packed": "examples",
    "read_examples": "examples",
    "save_adapter": "lora",
    "save_gguf": "gguf.writer",
    "stream_generate": "generation",
    "tuning_memory": "memory_account",
}
__all__ = [
    "Completion",
    "CompletionBatcher",
    "CompletionPiece",
    "CompletionRequest",
    "Conversation",
    "Decoder",
    "DecoderConfig",
    "KeyValueCache",
    "LoraConfig",
    "LoraLinear",
    "Piece",
    "TokenExample",
    "Tokenizer",
    "TunedDecoder",
    "TuningMemory",
    "decoder_config",
    "generate",
    "get_lora_model",
    "load",
    "load_adapter",
    "make_sampler",
    "merge",
    "packed",
    "read_examples",
    "save_adapter",
    "save_gguf",
    "stream_generate",
    "tuning_memory",
]
__getattr__ = lazy_names(__name__, MODULES, extra="llm")
