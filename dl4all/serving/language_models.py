"""The language models of a server, by name."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from dl4all.serving.request_error import Reason, RequestError

if TYPE_CHECKING:
    from dl4all.llm.completion_batcher import CompletionBatcher


class LanguageModel(NamedTuple):
    """A language model that is served.

    Attributes:
        name: by which clients ask for it.
        batcher: computes its completions.
        created: when it was added, in seconds of Unix time.
    """

    name: str
    batcher: CompletionBatcher
    created: int


def unix_time() -> int:
    """Seconds since 1970, as clients are told them."""
    return int(time.time())


class LanguageModels:
    """The language models of a server."""

    def __init__(self) -> None:
        self.by_name: dict[str, LanguageModel] = {}

    def put(self, name: str, batcher: CompletionBatcher) -> None:
        """Serve a model under a name that no other has."""
        self.by_name[name] = LanguageModel(name, batcher, unix_time())

    def get(self, name: str) -> LanguageModel:
        """The model of a name.

        Raises:
            RequestError: there is none.
        """
        if name not in self.by_name:
            raise RequestError(Reason.UNKNOWN, f"there is no model {name[:60]!r}; see /v1/models")
        return self.by_name[name]

    def stop(self) -> None:
        """End all, when what was asked for is computed."""
        for model in self.by_name.values():
            model.batcher.stop()
        self.by_name = {}
