"""The class Tensor, and the functions that create tensors."""

from __future__ import annotations

from dl4all.tensor.creation import *
from dl4all.tensor.dtypes import *
from dl4all.tensor.random import *
from dl4all.tensor.ranges import *
from dl4all.tensor.tensor import Tensor as Tensor
