"""Networks of Keras, by tf2onnx, with an input and its results: python from_keras.py FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow
import tf2onnx
from keras import layers

OPSET = 17


def convolutional() -> keras.Model:
    """Convolutions with their channels last, as is usual in Keras."""
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(8, 3, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(),
            layers.DepthwiseConv2D(3, strides=2, padding="same"),
            layers.Conv2D(16, 1, activation="swish"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10, activation="softmax"),
        ]
    )


def recurrent() -> keras.Model:
    both = layers.Bidirectional(layers.LSTM(8, return_sequences=True))
    return keras.Sequential([keras.Input((12, 5)), both, layers.GRU(6), layers.Dense(3)])


def transformer() -> keras.Model:
    x = keras.Input((7, 16))
    normed = layers.LayerNormalization()(x)
    y = layers.Add()([layers.MultiHeadAttention(2, 8)(normed, normed), x])
    wide = layers.Dense(32, activation="silu")(layers.LayerNormalization()(y))
    return keras.Model(x, layers.Add()([y, layers.Dense(16)(wide)]))


def main() -> None:
    folder = Path(sys.argv[1])
    keras.utils.set_random_seed(0)
    for name, make in (("cnn", convolutional), ("lstm", recurrent), ("transformer", transformer)):
        model = make()
        x = np.random.default_rng(0).standard_normal((3, *model.input_shape[1:])).astype(np.float32)
        signature = [tensorflow.TensorSpec((None, *x.shape[1:]), tensorflow.float32, name="x")]
        function = tensorflow.function(lambda x, model=model: model(x, training=False), signature)
        proto, _ = tf2onnx.convert.from_function(function, input_signature=signature, opset=OPSET)
        (folder / f"{name}.onnx").write_bytes(proto.SerializeToString())
        np.savez(folder / f"{name}.npz", x=x, y0=model(x).numpy())


if __name__ == "__main__":
    main()
