"""dl4all itself: ``python -m lab.peers.dl4all_peer DEVICE``."""

from __future__ import annotations

import sys

import dl4all as dl
from lab.peers.cases import Array, Case
from lab.peers.serve import Steps, serve


def main(name: str) -> None:
    place = dl.device(name)

    def prepare(case: Case, x: Array, w: Array) -> Steps:
        weights = dl.from_numpy(w, place)
        dl.synchronize(place)

        def upload() -> dl.Tensor:
            given = dl.from_numpy(x, place)
            dl.synchronize(place)
            return given

        def compute(given: dl.Tensor) -> dl.Tensor:
            with dl.no_grad():
                if case.is_convolution:
                    result: dl.Tensor = dl.nn.functional.conv2d(given, weights, padding=1, stride=case.stride)
                else:
                    result = dl.matmul(given, weights)
            dl.synchronize(place)
            return result

        return Steps(upload, compute, dl.Tensor.numpy)

    serve(f"dl4all {dl.__version__}", place.info.hardware, prepare)


if __name__ == "__main__":
    main(sys.argv[1])
