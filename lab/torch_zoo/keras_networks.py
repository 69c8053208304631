"""Networks of Keras 3 for ``torch_models.py``: a device in, losses and weights after five batches out."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

os.environ.setdefault("KERAS_BACKEND", "torch")

BATCH, BATCHES = 8, 5


def trained(
    device: str, make: Callable[[], Any], inputs: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]
) -> list[torch.Tensor]:
    """What ``fit`` reports, what ``predict`` gives, and the weights."""
    import keras

    with keras.device(device):
        keras.utils.set_random_seed(0)
        model = make()
        draw = np.random.default_rng(0)
        shapes = [weights.shape for weights in model.get_weights()]  # variances are among those of one axis
        model.set_weights(
            [draw.normal(0, 0.3, one) if len(one) > 1 else draw.uniform(0.1, 0.9, one) for one in shapes]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.003, epsilon=1e-3, clipnorm=1.0), loss, metrics=["accuracy"])
        history = model.fit(inputs, labels, batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
        found = [*(values[0] for values in history.history.values()), model.predict(inputs, verbose=0)]
        return [torch.as_tensor(one, dtype=torch.float32) for one in (*found, *model.get_weights())]


def keras_convolution(device: str) -> list[torch.Tensor]:
    """Separable and transposed convolutions with batch normalization."""
    from keras import Sequential, layers

    def make() -> Any:
        return Sequential(
            [
                layers.Input((9, 9, 3)),
                layers.Conv2D(8, 3, padding="same", activation="relu"),
                layers.BatchNormalization(),
                layers.MaxPooling2D(),
                layers.SeparableConv2D(8, 3, padding="same", activation="swish"),
                layers.Conv2DTranspose(6, 3, strides=2),
                layers.GlobalAveragePooling2D(),
                layers.Dense(5),
            ]
        )

    draw = np.random.default_rng(1)
    count = BATCH * BATCHES
    return trained(device, make, draw.random((count, 9, 9, 3), np.float32), draw.integers(0, 5, count))


def keras_lstm(device: str) -> list[torch.Tensor]:
    """Sentences of several lengths through an LSTM in both directions and a GRU, with masks."""
    from keras import Sequential, layers

    def make() -> Any:
        return Sequential(
            [
                layers.Input((11,), dtype="int32"),
                layers.Embedding(31, 8, mask_zero=True),
                layers.Bidirectional(layers.LSTM(8, return_sequences=True)),
                layers.GRU(8),
                layers.Dense(4),
            ]
        )

    draw = np.random.default_rng(2)
    words = draw.integers(1, 31, (BATCH * BATCHES, 11))
    words[np.arange(11) >= draw.integers(3, 12, len(words))[:, None]] = 0
    return trained(device, make, words, draw.integers(0, 4, len(words)))


def keras_transformer(device: str) -> list[torch.Tensor]:
    """A block of a Transformer, with residual paths."""
    from keras import Input, Model, layers

    def make() -> Any:
        words = Input((11,), dtype="int32")
        x = layers.Embedding(31, 16)(words)
        attended = layers.MultiHeadAttention(4, 4)(x, x, use_causal_mask=True)
        x = layers.LayerNormalization()(x + attended)
        inner = layers.Dense(16)(layers.Dense(32, activation="gelu")(x))
        x = layers.LayerNormalization()(x + inner)
        return Model(words, layers.Dense(4)(layers.GlobalMaxPooling1D()(x)))

    draw = np.random.default_rng(3)
    count = BATCH * BATCHES
    return trained(device, make, draw.integers(1, 31, (count, 11)), draw.integers(0, 4, count))


KERAS_SCRIPTS: dict[str, Callable[[str], list[torch.Tensor]]] = {
    function.__name__: function for function in (keras_convolution, keras_lstm, keras_transformer)
}
