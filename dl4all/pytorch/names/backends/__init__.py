"""Switches of PyTorch's libraries, which scripts set: none is here, and what is set has no effect.

``dl.set_float32_matmul_precision`` is the switch for faster products that dl4all has.
"""

from __future__ import annotations

from dl4all.pytorch.names.backends import cpu as cpu
from dl4all.pytorch.names.backends import cuda as cuda
from dl4all.pytorch.names.backends import cudnn as cudnn
from dl4all.pytorch.names.backends import mkl as mkl
from dl4all.pytorch.names.backends import mkldnn as mkldnn
from dl4all.pytorch.names.backends import mps as mps
from dl4all.pytorch.names.backends import openmp as openmp

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp"]
