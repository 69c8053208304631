"""Several tokens in one step of a large model: a small one drafts them, and scores tell which were right.

Source: Y. Leviathan et al., Fast Inference from Transformers via Speculative Decoding, 2023. A draft
counts where it is the token that is chosen by the large model's scores, so what is said stays the same.
"""

from __future__ import annotations

from dl4all.autograd import no_grad
from dl4all.errors import ArgumentError
from dl4all.llm.cache import KeyValueCache, first_length
from dl4all.llm.decoder import Decoder
from dl4all.ops.indexing.concatenation import cat
from dl4all.tensor.creation import tensor
from dl4all.tensor.ranges import arange
from dl4all.tensor.tensor import Tensor


class DraftedTokens:
    """Drafts of a small model for a large one.

    Args:
        model: the large one.
        draft_model: of the same vocabulary.
        tokens: that are in the large one's cache.
        count: of a draft.

    Raises:
        ArgumentError: the vocabularies differ, or the count is below 1.
    """

    def __init__(self, model: Decoder, draft_model: Decoder, tokens: list[int], count: int) -> None:
        sizes = model.config.vocabulary, draft_model.config.vocabulary
        if sizes[0] != sizes[1] or count < 1:
            raise ArgumentError(
                f"[llm] expected a draft_model of the same vocabulary and at least one token of a draft, got "
                f"{sizes[1]} tokens for {sizes[0]}, num_draft_tokens={count}"
            )
        self._model, self._draft_model, self._count = model, draft_model, count
        self._tokens = list(tokens)
        self._written: list[int] = []  # tokens whose keys are in the small model's cache
        self._draft_cache = draft_model.make_cache(1, first_length(len(tokens), draft_model.config.positions))
        self._settled = 0  # of these, as far as they were compared with what was said
        self._drafted: list[int] = []
        self._scores: list[Tensor] = []

    def after(self, token: int, cache: KeyValueCache) -> tuple[Tensor, KeyValueCache] | None:
        """Scores (1, vocabulary) after one more token, and the cache, which may have grown.

        Returns:
            None where there is no room for a draft: the token is to be computed alone.
        """
        right = bool(self._drafted) and self._drafted[0] == token
        if not right or not self._scores:
            self._drafted, self._scores = [], []
            made = self._computed(token, cache)
            if made is None:
                return None
            cache = made
        else:
            self._drafted = self._drafted[1:]
        self._tokens.append(token)
        cache.position += 1
        return self._scores.pop(0), cache

    def _computed(self, token: int, cache: KeyValueCache) -> KeyValueCache | None:
        """Draft what follows the token, and compute the scores after it and after each of the draft."""
        count, model = self._count, self._model
        most = min(model.config.positions, self._draft_model.config.positions)
        if cache.position + count + 1 > most or len(self._tokens) + count + 1 > most:
            return None
        drafts = self._draft(token)
        cache = cache.grown(count + 1, model.config.positions)
        device = model.embed_tokens.weight.device
        idx = cat([tensor([token], device=device), drafts.to(device)]).reshape(1, -1)
        at = arange(cache.position, cache.position + count + 1, device=device)
        with no_grad():
            scores = model.step_scores(idx, at, cache, cache.position + count + 1)
        self._scores = [scores[:, number] for number in range(count + 1)]
        self._drafted = drafts.tolist()
        return cache

    def _draft(self, token: int) -> Tensor:
        """The likeliest tokens (count,) after the token, by the small model."""
        small = self._draft_model
        device = small.embed_tokens.weight.device
        positions = small.config.positions
        tokens = [*self._tokens, token]
        known = self._settled
        while known < min(len(self._written), len(tokens) - 1) and self._written[known] == tokens[known]:
            known += 1
        missing, self._settled = tokens[known:], known
        self._draft_cache.position = known
        cache = self._draft_cache.grown(len(missing) + self._count, positions)
        with no_grad():
            if len(missing) > 2:  # a prompt
                small(tensor([missing[:-1]], device=device), cache, last=True)
                missing = missing[-1:]
            for one in missing:
                scores = small.scores_after(tensor([one], device=device), cache)
            drafts = [scores.argmax(-1)]
            while len(drafts) < self._count:
                drafts.append(small.scores_after(drafts[-1], cache).argmax(-1))
        self._draft_cache, made = cache, cat(drafts)
        self._written = [*tokens, *made.tolist()[:-1]]
        return made
