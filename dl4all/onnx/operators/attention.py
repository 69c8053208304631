"""Attention, with keys and values of earlier calls."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.functions import names as functions
from dl4all.nn import functional as F
from dl4all.onnx.call import Call, is_array
from dl4all.onnx.registry import operator


def _heads(x: Any, count: int | None) -> Any:
    """Shape (batch, heads, rows, features) of (batch, rows, heads * features)."""
    if x.ndim == 4:
        return x
    return x.reshape(*x.shape[:2], count, -1).transpose(1, 2)


@operator("Attention")
def attention(
    call: Call,
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    past_key: Any = None,
    past_value: Any = None,
    lengths: Any = None,
) -> Any:
    """One kernel, unless scores are a result, are capped or have a window: then as the standard writes it."""
    rare = call.node.attributes.keys() - {"is_causal", "q_num_heads", "kv_num_heads", "scale"}
    if call.results > 3 or lengths is not None or any(map(call.get, rare)):
        return call.expanded(query, key, value, mask, past_key, past_value, lengths)
    q, k, v = call.tensors(query, key, value)
    flat = q.ndim == 3
    q = _heads(q, call.get("q_num_heads"))
    k, v = (_heads(t, call.get("kv_num_heads")) for t in (k, v))
    before = 0
    if past_key is not None and past_value is not None:
        k, v = functions.cat([call.tensor(past_key), k], 2), functions.cat([call.tensor(past_value), v], 2)
        before = past_key.shape[2]
    y = F.scaled_dot_product_attention(
        q, k, v, _mask(call, mask, q.shape[2], k.shape[2], before), scale=call.get("scale"),
        enable_gqa=q.shape[1] != k.shape[1],
    )  # fmt: skip
    if flat:
        y = y.transpose(1, 2).reshape(*query.shape[:2], -1)
    return (y, k, v)[: max(call.results, 1)]


def _mask(call: Call, mask: Any, queries: int, keys: int, before: int) -> Any:
    """The mask of the call, together with the causal one."""
    causal = np.tril(np.ones((queries, keys), bool), before) if call.flag("is_causal") else None
    if mask is None:
        return None if causal is None else call.tensor(causal)
    if mask.shape[-1] < keys:  # what it leaves out is not seen
        mask = call.tensor(mask)
        if mask.dtype == np.bool_:
            mask = F.pad(mask.to("uint8"), (0, keys - mask.shape[-1])).bool()
        else:
            mask = F.pad(mask, (0, keys - mask.shape[-1]), value=-float("inf"))
    if causal is None:
        return call.tensor(mask)
    if mask.dtype == np.bool_:
        return (
            call.tensor(mask & causal) if is_array(mask) else functions.logical_and(mask, call.tensor(causal))
        )
    return call.tensor(mask) + call.tensor(np.where(causal, 0, -np.inf).astype(np.float32)).to(mask.dtype)
