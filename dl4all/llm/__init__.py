"""Language models: decoders of many families, their files, and text from them (extra ``llm``).

model_files.py             a model and its tokenizer, from a folder or from Hugging Face's Hub
├── families.py            what configurations say
├── decoder.py, rotary.py  the model; cache.py: what it keeps of the tokens before
├── weights.py             arrays of files by the model's names
├── tokenizer.py           text and tokens, and the templates of talks
├── samplers.py            which token comes next
└── generation.py          tokens one after the other; conversation.py: answers to messages
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dl4all.lazy_names import lazy_names

if TYPE_CHECKING:
    from dl4all.llm.cache import KeyValueCache
    from dl4all.llm.conversation import Conversation
    from dl4all.llm.decoder import Decoder
    from dl4all.llm.families import DecoderConfig, decoder_config
    from dl4all.llm.generation import Piece, generate, stream_generate
    from dl4all.llm.model_files import load
    from dl4all.llm.samplers import make_sampler
    from dl4all.llm.tokenizer import Tokenizer

MODULES = {
    "Conversation": "conversation",
    "Decoder": "decoder",
    "DecoderConfig": "families",
    "KeyValueCache": "cache",
    "Piece": "generation",
    "Tokenizer": "tokenizer",
    "decoder_config": "families",
    "generate": "generation",
    "load": "model_files",
    "make_sampler": "samplers",
    "stream_generate": "generation",
}
__all__ = [
    "Conversation",
    "Decoder",
    "DecoderConfig",
    "KeyValueCache",
    "Piece",
    "Tokenizer",
    "decoder_config",
    "generate",
    "load",
    "make_sampler",
    "stream_generate",
]
__getattr__ = lazy_names(__name__, MODULES, extra="llm")
