"""The results of OpenVINO on the CPU for the files of a folder: python to_openvino.py FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import openvino


def main() -> None:
    for path in sorted(Path(sys.argv[1]).glob("*.onnx")):
        # On some processors it would compute in bfloat16 otherwise.
        model = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        with np.load(path.with_suffix(".npz")) as arrays:
            results = model([arrays["x"]])
        np.savez(path.with_suffix(".results.npz"), *results.values())


if __name__ == "__main__":
    main()
