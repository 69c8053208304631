"""The results of ncnn on the CPU for the files of a folder, by way of pnnx: python to_ncnn.py FOLDER."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ncnn
import numpy as np

TOOL = Path(sys.executable).with_name("pnnx")
SECONDS = 300


def main() -> None:
    for path in sorted(Path(sys.argv[1]).glob("*.onnx")):  # before pnnx writes more of them
        with np.load(path.with_suffix(".npz")) as arrays:
            x = arrays["x"]
        shape = ",".join(map(str, x.shape))
        command = [str(TOOL), str(path), f"inputshape=[{shape}]", "fp16=0"]
        subprocess.run(command, check=True, cwd=path.parent, stdout=subprocess.DEVNULL, timeout=SECONDS)
        network = ncnn.Net()
        network.opt.use_fp16_storage = network.opt.use_fp16_packed = network.opt.use_fp16_arithmetic = False
        network.load_param(str(path.with_suffix(".ncnn.param")))
        network.load_model(str(path.with_suffix(".ncnn.bin")))
        extractor = network.create_extractor()
        extractor.input("in0", ncnn.Mat(x[0]))  # ncnn knows no batch
        _, result = extractor.extract("out0")
        np.savez(path.with_suffix(".results.npz"), np.array(result))


if __name__ == "__main__":
    main()
