# Written by tools/exports.py from the @export declarations in dl4all/ops; run it after changing them.

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, overload

import numpy.typing as npt

from dl4all.ops.composite.division import RoundingMode
from dl4all.ops.composite.grid_sampler import PaddingMode, SamplingMode
from dl4all.ops.composite.order_statistics import Interpolation
from dl4all.ops.composite.scatter_reduction import Reduction
from dl4all.ops.core.memory_format import MemoryFormat
from dl4all.ops.core.op import REGISTRY as REGISTRY
from dl4all.ops.core.op import all_shaders as all_shaders
from dl4all.ops.core.tensor_base import Dims, DTypeLike, Scalar, Shape, Size
from dl4all.ops.indexing.indices import Indices, NDArray
from dl4all.ops.memory.parts import BasicIndex
from dl4all.ops.pool.windows import OutputSizes, Pooling, Sizes
from dl4all.ops.random.generator import Generator
from dl4all.tensor.tensor import Tensor

class Extremes(NamedTuple):
    values: Tensor
    indices: Tensor

class SignAndLogarithm(NamedTuple):
    sign: Tensor
    logabsdet: Tensor

class Orthogonal(NamedTuple):
    Q: Tensor
    R: Tensor

class Eigen(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor

class SingularValues(NamedTuple):
    U: Tensor
    S: Tensor
    Vh: Tensor

class SingularTriples(NamedTuple):
    U: Tensor
    S: Tensor
    V: Tensor

class Histogram(NamedTuple):
    hist: Tensor
    bin_edges: Tensor

class TriangularSolution(NamedTuple):
    solution: Tensor
    cloned_coefficient: Tensor

class CheckedInverse(NamedTuple):
    inverse: Tensor
    info: Tensor

class CheckedSolution(NamedTuple):
    result: Tensor
    info: Tensor

class CheckedFactor(NamedTuple):
    L: Tensor
    info: Tensor

class Sorted(NamedTuple):
    values: Tensor
    indices: Tensor

class TopK(NamedTuple):
    values: Tensor
    indices: Tensor

class MantissaAndExponent(NamedTuple):
    mantissa: Tensor
    exponent: Tensor

class Range(NamedTuple):
    min: Tensor
    max: Tensor

def relu(input: Tensor, inplace: bool = False) -> Tensor: ...
def relu_backward(grad: Tensor | float, output: Tensor | float) -> Tensor: ...
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor: ...
def leaky_relu_backward(
    grad: Tensor | float, input: Tensor | float, negative_slope: float = 0.01
) -> Tensor: ...
def elu(
    input: Tensor, alpha: float = 1.0, inplace: bool = False, *, scale: float = 1.0, input_scale: float = 1.0
) -> Tensor: ...
def elu_backward(
    grad: Tensor | float,
    input: Tensor | float,
    alpha: float = 1.0,
    scale: float = 1.0,
    input_scale: float = 1.0,
) -> Tensor: ...
def elu_output_backward(
    grad: Tensor | float,
    output: Tensor | float,
    alpha: float = 1.0,
    scale: float = 1.0,
    input_scale: float = 1.0,
) -> Tensor: ...
def selu(input: Tensor, inplace: bool = False) -> Tensor: ...
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor: ...
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor: ...
def hardtanh_backward(
    grad: Tensor | float, input: Tensor | float, min_val: float = -1.0, max_val: float = 1.0
) -> Tensor: ...
def relu6(input: Tensor, inplace: bool = False) -> Tensor: ...
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor: ...
def hardsigmoid_backward(grad: Tensor | float, input: Tensor | float) -> Tensor: ...
def hardswish(input: Tensor, inplace: bool = False) -> Tensor: ...
def hardswish_backward(grad: Tensor | float, input: Tensor | float) -> Tensor: ...
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor: ...
def prelu(input: Tensor, weight: Tensor) -> Tensor: ...
def sigmoid(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def sigmoid_backward(grad: Tensor | float, output: Tensor | float) -> Tensor: ...
def logsigmoid(input: Tensor) -> Tensor: ...
def silu(input: Tensor, inplace: bool = False) -> Tensor: ...
def silu_backward(grad: Tensor | float, input: Tensor | float) -> Tensor: ...
def mish(input: Tensor, inplace: bool = False) -> Tensor: ...
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor: ...
def softplus_backward(
    grad: Tensor | float, input: Tensor | float, beta: float = 1.0, threshold: float = 20.0
) -> Tensor: ...
def softsign(input: Tensor) -> Tensor: ...
def gelu_exact(input: Tensor) -> Tensor: ...
def gelu_exact_backward(grad: Tensor | float, input: Tensor | float) -> Tensor: ...
def gelu_tanh(input: Tensor) -> Tensor: ...
def gelu_tanh_backward(grad: Tensor | float, input: Tensor | float) -> Tensor: ...
def gelu(input: Tensor, approximate: Literal["none", "tanh"] = "none") -> Tensor: ...
def glu(input: Tensor, dim: int = -1) -> Tensor: ...
def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    scale: float = 1.0,
    causal: bool = False,
    repeats: int = 1,
) -> Tensor: ...
def flash_attention_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    scale: float = 1.0,
    causal: bool = False,
    repeats: int = 1,
    saved: Tensor | None = None,
) -> Tensor: ...
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]: ...
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor: ...
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor: ...
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor: ...
def tanhshrink(input: Tensor) -> Tensor: ...
def rrelu(
    input: Tensor, lower: float = ..., upper: float = ..., training: bool = False, inplace: bool = False
) -> Tensor: ...
def equal(input: Tensor, other: Tensor) -> bool: ...
def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor: ...
def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool: ...
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor: ...
def fmax(input: Tensor, other: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def fmin(input: Tensor, other: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def copysign(
    input: Tensor, other: Tensor | Scalar, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def heaviside(
    input: Tensor, values: Tensor | Scalar, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def xlogy(input: Tensor, other: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def ldexp(input: Tensor, other: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def float_power(
    input: Tensor | Scalar, exponent: Tensor | Scalar, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def nextafter(input: Tensor, other: Tensor) -> Tensor: ...
def hypot(input: Tensor, other: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def logaddexp(input: Tensor, other: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def logaddexp2(input: Tensor, other: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def rsub(input: Tensor, other: Tensor | Scalar, *, alpha: float = 1) -> Tensor: ...
def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor: ...
def corrcoef(input: Tensor) -> Tensor: ...
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor: ...
def cummax(input: Tensor, dim: int, *, out: Tensor | Sequence[Tensor] | None = None) -> Extremes: ...
def cummin(input: Tensor, dim: int, *, out: Tensor | Sequence[Tensor] | None = None) -> Extremes: ...
def logcumsumexp(input: Tensor, dim: int, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def diff(
    input: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
    *,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1) -> Tensor: ...

trapz = trapezoid

def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1) -> Tensor: ...
def gradient(
    input: Tensor,
    *,
    spacing: float | Sequence[float | Tensor] | None = None,
    dim: int | Sequence[int] | None = None,
    edge_order: int = 1,
) -> tuple[Tensor, ...]: ...
def div(
    input: Tensor | Scalar,
    other: Tensor | Scalar,
    *,
    rounding_mode: RoundingMode = None,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...

divide = div

def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor: ...
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor: ...
def inverse(input: Tensor) -> Tensor: ...
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor: ...
def cholesky(input: Tensor, upper: bool = False) -> Tensor: ...
def slogdet(input: Tensor) -> SignAndLogarithm: ...
def logdet(input: Tensor) -> Tensor: ...
def det(input: Tensor) -> Tensor: ...
def qr(input: Tensor, some: bool = True) -> Orthogonal: ...
def eigh(A: Tensor, UPLO: str = "L") -> Eigen: ...
def svd_factors(A: Tensor, full_matrices: bool = True) -> SingularValues: ...
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> SingularTriples: ...
def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor: ...
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool = False) -> Tensor: ...
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: SamplingMode = "bilinear",
    padding_mode: PaddingMode = "zeros",
    align_corners: bool | None = None,
) -> Tensor: ...
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor: ...
def histc(
    input: Tensor,
    bins: int = 100,
    min: float = 0,
    max: float = 0,
    *,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def histogram(
    input: Tensor,
    bins: int | Tensor = 100,
    *,
    range: tuple[float, float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Histogram: ...
def bitwise_left_shift(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor: ...
def bitwise_right_shift(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor: ...
def gcd(input: Tensor, other: Tensor) -> Tensor: ...
def lcm(input: Tensor, other: Tensor) -> Tensor: ...
def unravel_index(indices: Tensor, shape: int | Shape) -> tuple[Tensor, ...]: ...
def broadcast_shapes(*shapes: int | Sequence[int]) -> Size: ...
def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor: ...
def upsample(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor: ...
def upsample_nearest(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
) -> Tensor: ...
def upsample_bilinear(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
) -> Tensor: ...
@overload
def atleast_1d(tensor: Tensor, /) -> Tensor: ...
@overload
def atleast_1d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]: ...
@overload
def atleast_2d(tensor: Tensor, /) -> Tensor: ...
@overload
def atleast_2d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]: ...
@overload
def atleast_3d(tensor: Tensor, /) -> Tensor: ...
@overload
def atleast_3d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]: ...
def dstack(tensors: Sequence[Tensor], *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def column_stack(tensors: Sequence[Tensor], *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]: ...
def cartesian_prod(*tensors: Tensor) -> Tensor: ...
def triangular_solve(
    input: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> TriangularSolution: ...
def cholesky_solve(input: Tensor, input2: Tensor, upper: bool = False) -> Tensor: ...
def cholesky_inverse(input: Tensor, upper: bool = False) -> Tensor: ...
def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Tensor: ...
def tensorinv(A: Tensor, ind: int = 2) -> Tensor: ...
def inv_ex(A: Tensor, *, check_errors: bool = False) -> CheckedInverse: ...
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> CheckedSolution: ...
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> CheckedFactor: ...
def matrix_exp(input: Tensor) -> Tensor: ...
def block_diag(*tensors: Tensor) -> Tensor: ...
def trace(input: Tensor) -> Tensor: ...
def diagflat(input: Tensor, offset: int = 0) -> Tensor: ...
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor: ...
def matrix_power(input: Tensor, n: int, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def nanquantile(
    input: Tensor,
    q: Tensor | float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: Interpolation = "linear",
) -> Tensor: ...
@overload
def median(
    input: Tensor, dim: None = None, keepdim: bool = False, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
@overload
def median(
    input: Tensor, dim: int, keepdim: bool = False, *, out: Tensor | Sequence[Tensor] | None = None
) -> Sorted: ...
@overload
def nanmedian(
    input: Tensor, dim: None = None, keepdim: bool = False, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
@overload
def nanmedian(
    input: Tensor, dim: int, keepdim: bool = False, *, out: Tensor | Sequence[Tensor] | None = None
) -> Sorted: ...
def kthvalue(
    input: Tensor,
    k: int,
    dim: int = -1,
    keepdim: bool = False,
    *,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Sorted: ...
def mode(
    input: Tensor, dim: int = -1, keepdim: bool = False, *, out: Tensor | Sequence[Tensor] | None = None
) -> Sorted: ...
def quantile(
    input: Tensor,
    q: Tensor | float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: Interpolation = "linear",
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor: ...
def t(input: Tensor) -> Tensor: ...
def adjoint(input: Tensor) -> Tensor: ...
def ravel(input: Tensor) -> Tensor: ...
def fliplr(input: Tensor) -> Tensor: ...
def flipud(input: Tensor) -> Tensor: ...
def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = ...) -> Tensor: ...
def local_response_norm(
    input: Tensor, size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0
) -> Tensor: ...
def renorm(
    input: Tensor, p: float, dim: int, maxnorm: float, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def index_copy(
    input: Tensor,
    dim: int,
    index: Tensor | npt.ArrayLike,
    source: Tensor,
    *,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def index_fill(input: Tensor, dim: int, index: Tensor | npt.ArrayLike, value: Tensor | Scalar) -> Tensor: ...
def scatter(
    input: Tensor,
    dim: int,
    index: Tensor | npt.ArrayLike,
    src: Tensor | Scalar | None = None,
    *,
    value: Scalar | None = None,
    reduce: Literal["add", "multiply"] | None = None,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def index_put(
    input: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False
) -> Tensor: ...
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor: ...
def scatter_reduce(
    input: Tensor,
    dim: int,
    index: Tensor | npt.ArrayLike,
    src: Tensor,
    reduce: Reduction,
    *,
    include_self: bool = True,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def index_reduce(
    input: Tensor,
    dim: int,
    index: Tensor | npt.ArrayLike,
    source: Tensor,
    reduce: Literal["prod", "mean", "amax", "amin"],
    *,
    include_self: bool = True,
) -> Tensor: ...
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor: ...
def segment_reduce(
    data: Tensor,
    reduce: Literal["sum", "mean", "max", "min", "prod"],
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor: ...
@overload
def unique(input: Tensor, sorted: bool = True, *, dim: int | None = None) -> Tensor: ...
@overload
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def unique_consecutive(input: Tensor, *, dim: int | None = None) -> Tensor: ...
@overload
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Tensor | tuple[Tensor, ...]: ...
def isin(
    elements: Tensor | Scalar,
    test_elements: Tensor | Scalar,
    *,
    assume_unique: bool = False,
    invert: bool = False,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def channel_shuffle(input: Tensor, groups: int) -> Tensor: ...
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor: ...
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor: ...
def window(input: Tensor, dimension: int, size: int, step: int) -> Tensor: ...
def unfold(
    input: Tensor,
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
) -> Tensor: ...
def fold(
    input: Tensor,
    output_size: int | Sequence[int],
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
) -> Tensor: ...
def sort(
    input: Tensor,
    dim: int = -1,
    descending: bool = False,
    stable: bool = False,
    *,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Sorted: ...
def argsort(
    input: Tensor,
    dim: int = -1,
    descending: bool = False,
    stable: bool = False,
    *,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def msort(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def topk(
    input: Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
    *,
    out: Tensor | Sequence[Tensor] | None = None,
) -> TopK: ...
def searchsorted(
    sorted_sequence: Tensor,
    input: Tensor | Scalar,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: Literal["left", "right"] | None = None,
    sorter: Tensor | None = None,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def bucketize(
    input: Tensor | Scalar,
    boundaries: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def argwhere(input: Tensor) -> Tensor: ...
def polygamma(n: int, input: Tensor) -> Tensor: ...
def log_ndtr(input: Tensor) -> Tensor: ...
def ndtr(input: Tensor) -> Tensor: ...
def entr(input: Tensor) -> Tensor: ...
def xlog1py(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor: ...
def mvlgamma(input: Tensor, p: int) -> Tensor: ...
def tensor_split(
    input: Tensor,
    indices_or_sections: int | Sequence[int] | Tensor | None = None,
    dim: int = 0,
    *,
    sections: int | None = None,
    indices: Sequence[int] | None = None,
) -> tuple[Tensor, ...]: ...
def hsplit(input: Tensor, indices_or_sections: int | Sequence[int] | Tensor) -> tuple[Tensor, ...]: ...
def vsplit(input: Tensor, indices_or_sections: int | Sequence[int] | Tensor) -> tuple[Tensor, ...]: ...
def dsplit(input: Tensor, indices_or_sections: int | Sequence[int] | Tensor) -> tuple[Tensor, ...]: ...
def as_strided(
    input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor: ...
def asinh(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...

arcsinh = asinh

def acosh(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...

arccosh = acosh

def atanh(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...

arctanh = atanh

def frac(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def deg2rad(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def rad2deg(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def sinc(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def logit(
    input: Tensor, eps: float | None = None, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def signbit(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def isneginf(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def isposinf(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def isreal(input: Tensor) -> Tensor: ...
def is_nonzero(input: Tensor) -> bool: ...
def real(input: Tensor) -> Tensor: ...
def positive(input: Tensor) -> Tensor: ...
def frexp(input: Tensor) -> MantissaAndExponent: ...
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor: ...
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor: ...
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor: ...
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor: ...
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor: ...
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor: ...
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor: ...
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor: ...
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor: ...
def conv_input(
    grad: Tensor,
    weight: Tensor,
    input_size: Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor: ...
def conv_weight(
    grad: Tensor,
    input: Tensor,
    kernel_size: Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor: ...
def add(
    input: Tensor | float,
    other: Tensor | float,
    *,
    alpha: float = 1,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def sub(
    input: Tensor | float,
    other: Tensor | float,
    *,
    alpha: float = 1,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...

subtract = sub

def mul(
    input: Tensor | float, other: Tensor | float, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...

multiply = mul

def true_divide(
    input: Tensor | float, other: Tensor | float, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def neg(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...

negative = neg

def clone(input: Tensor) -> Tensor: ...
def addcmul(
    input: Tensor | float,
    tensor1: Tensor | float,
    tensor2: Tensor | float,
    *,
    value: float = 1,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def addcdiv(
    input: Tensor | float,
    tensor1: Tensor | float,
    tensor2: Tensor | float,
    *,
    value: float = 1,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def lerp(
    input: Tensor | float,
    end: Tensor | float,
    weight: Tensor | float,
    *,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def eq(
    input: Tensor | float, other: Tensor | float, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def ne(
    input: Tensor | float, other: Tensor | float, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...

not_equal = ne

def lt(
    input: Tensor | float, other: Tensor | float, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...

less = lt

def le(
    input: Tensor | float, other: Tensor | float, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...

less_equal = le

def gt(
    input: Tensor | float, other: Tensor | float, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...

greater = gt

def ge(
    input: Tensor | float, other: Tensor | float, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...

greater_equal = ge

def isnan(input: Tensor) -> Tensor: ...
def isinf(input: Tensor) -> Tensor: ...
def isfinite(input: Tensor) -> Tensor: ...
def maximum(
    input: Tensor | float, other: Tensor | float, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def minimum(
    input: Tensor | float, other: Tensor | float, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def maximum_backward(grad: Tensor | float, input: Tensor | float, other: Tensor | float) -> Tensor: ...
def in_range(input: Tensor | float, min: Tensor | float, max: Tensor | float) -> Tensor: ...
def clamp_unchecked(input: Tensor | float, min: Tensor | float, max: Tensor | float) -> Tensor: ...
def clamp_min(
    input: Tensor | float, min: Tensor | float, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def clamp_max(
    input: Tensor | float, max: Tensor | float, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def clamp(
    input: Tensor,
    min: Tensor | Scalar | None = None,
    max: Tensor | Scalar | None = None,
    *,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...

clip = clamp

def nan_to_num(
    input: Tensor,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
    *,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def logical_and(
    input: Tensor | float, other: Tensor | float, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def logical_or(
    input: Tensor | float, other: Tensor | float, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def logical_xor(
    input: Tensor | float, other: Tensor | float, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def logical_not(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def bitwise_and(
    input: Tensor | float, other: Tensor | float, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def bitwise_or(
    input: Tensor | float, other: Tensor | float, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def bitwise_xor(
    input: Tensor | float, other: Tensor | float, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def bitwise_not(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def where(
    condition: Tensor | float,
    input: Tensor | float,
    other: Tensor | float,
    *,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def masked_fill(input: Tensor, mask: Tensor, value: Tensor | Scalar) -> Tensor: ...
def squared_error(input: Tensor | float, target: Tensor | float) -> Tensor: ...
def squared_error_backward(grad: Tensor | float, input: Tensor | float, target: Tensor | float) -> Tensor: ...
def smooth_error(input: Tensor | float, target: Tensor | float, beta: float = 1.0) -> Tensor: ...
def smooth_error_backward(
    grad: Tensor | float, input: Tensor | float, target: Tensor | float, beta: float = 1.0
) -> Tensor: ...
def logistic_error(input: Tensor | float, target: Tensor | float) -> Tensor: ...
def logistic_error_backward(
    grad: Tensor | float, input: Tensor | float, target: Tensor | float
) -> Tensor: ...
def binary_error(input: Tensor | float, target: Tensor | float) -> Tensor: ...
def binary_error_backward(grad: Tensor | float, input: Tensor | float, target: Tensor | float) -> Tensor: ...
def zero(input: Tensor) -> Tensor: ...
def abs(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...

absolute = abs

def sign(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...

sgn = sign

def floor(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def ceil(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def trunc(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...

fix = trunc

def round_even(input: Tensor) -> Tensor: ...
def round(input: Tensor, *, decimals: int = 0, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def remainder(
    input: Tensor | float, other: Tensor | float, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def fmod(
    input: Tensor | float, other: Tensor | float, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def floor_divide(
    input: Tensor | float, other: Tensor | float, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def lgamma(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def digamma(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def zeta(input: Tensor | float, other: Tensor | float) -> Tensor: ...
def erfinv(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def erfcx(input: Tensor) -> Tensor: ...
def ndtri(input: Tensor) -> Tensor: ...
def sqrt(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def rsqrt(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def reciprocal(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def exp(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def exp2(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def expm1(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def log(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def log2(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def log10(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def log1p(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def sin(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def cos(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def tan(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def asin(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...

arcsin = asin

def acos(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...

arccos = acos

def atan(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...

arctan = atan

def sinh(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def cosh(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def tanh(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def tanh_backward(grad: Tensor | float, output: Tensor | float) -> Tensor: ...
def square(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def atan2(
    input: Tensor | float, other: Tensor | float, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...

arctan2 = atan2

def erf(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def erfc(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def pow(
    input: Tensor | float, exponent: Tensor | float, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def getitem(input: Tensor, key: object) -> Tensor: ...
def copy_(input: Tensor, src: Tensor | Scalar, non_blocking: bool = False) -> Tensor: ...
def fill_(input: Tensor, value: Tensor | Scalar) -> Tensor: ...
def zero_(input: Tensor) -> Tensor: ...
def setitem(input: Tensor, key: object, value: Tensor | NDArray | Scalar | Sequence[object]) -> None: ...
def cat(
    tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...

concat = cat
concatenate = cat

def stack(
    tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def hstack(tensors: Sequence[Tensor], *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def vstack(tensors: Sequence[Tensor], *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...

row_stack = vstack

def split(
    tensor: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]: ...
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]: ...
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]: ...
def one_hot(input: Tensor, num_classes: int = -1) -> Tensor: ...
def index_select(
    input: Tensor,
    dim: int,
    index: Tensor | NDArray | Sequence[int],
    *,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def index_add(
    input: Tensor,
    dim: int,
    index: Tensor | NDArray | Sequence[int],
    source: Tensor,
    *,
    alpha: float = 1,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def gather(
    input: Tensor,
    dim: int,
    index: Tensor | NDArray | Sequence[object],
    *,
    sparse_grad: bool = False,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def scatter_add(
    input: Tensor,
    dim: int,
    index: Tensor | NDArray | Sequence[object],
    src: Tensor,
    *,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def take(
    input: Tensor, index: Tensor | NDArray | Sequence[object], *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def take_along_dim(
    input: Tensor,
    indices: Tensor | NDArray | Sequence[object],
    dim: int | None = None,
    *,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def masked_select(
    input: Tensor, mask: Tensor | NDArray | Sequence[object], *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def nonzero(
    input: Tensor, as_tuple: bool = False, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def in_place(function: Callable[..., Tensor]) -> Callable[..., Tensor]: ...
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor: ...
@overload
def repeat(input: Tensor, *repeats: int | Shape) -> Tensor: ...
@overload
def repeat(input: Tensor, *, repeats: Shape) -> Tensor: ...
@overload
def tile(input: Tensor, *dims: int | Shape) -> Tensor: ...
@overload
def tile(input: Tensor, *, dims: Shape) -> Tensor: ...
def repeat_interleave(
    input: Tensor,
    repeats: Tensor | NDArray | Sequence[int] | int | None = None,
    dim: int | None = None,
    *,
    output_size: int | None = None,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
@overload
def flip(input: Tensor, *dims: int | Shape) -> Tensor: ...
@overload
def flip(input: Tensor, *, dims: Shape) -> Tensor: ...
def roll(input: Tensor, shifts: int | Shape, dims: int | Shape | None = None) -> Tensor: ...
def take_rows(input: Tensor, index: Sequence[int] | Indices) -> Tensor: ...
def take_rows_backward(input: Tensor, index: Sequence[int] | Indices, size: int) -> Tensor: ...
def put_rows(input: Tensor, source: Tensor, index: Sequence[int] | Indices) -> Tensor: ...
def tril(input: Tensor, diagonal: int = 0, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def triu(input: Tensor, diagonal: int = 0, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor: ...
def diag(input: Tensor, diagonal: int = 0, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def mm(input: Tensor, mat2: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def mv(input: Tensor, vec: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def bmm(input: Tensor, mat2: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def outer(input: Tensor, vec2: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...

ger = outer

def addmm(
    input: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def baddbmm(
    input: Tensor,
    batch1: Tensor,
    batch2: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def addmv(
    input: Tensor,
    mat: Tensor,
    vec: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def addr(
    input: Tensor,
    vec1: Tensor,
    vec2: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def addbmm(
    input: Tensor,
    batch1: Tensor,
    batch2: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def inner(input: Tensor, other: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def vdot(input: Tensor, other: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def tensordot(
    a: Tensor,
    b: Tensor,
    dims: int | Sequence[int | Sequence[int]] = 2,
    *,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def kron(input: Tensor, other: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def cross(
    input: Tensor, other: Tensor, dim: int | None = None, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def chain_matmul(*matrices: Tensor, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor: ...
def cdist(
    x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary"
) -> Tensor: ...
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-06, keepdim: bool = False
) -> Tensor: ...
def pdist(input: Tensor, p: float = 2.0) -> Tensor: ...
def dot(input: Tensor, tensor: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def einsum(equation: Tensor | str, *operands: Tensor | Sequence[object]) -> Tensor: ...
def matmul(input: Tensor, other: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor: ...
def cross_entropy(
    input: Tensor,
    target: Tensor | npt.ArrayLike,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor: ...
def nll_loss(
    input: Tensor,
    target: Tensor | npt.ArrayLike,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor: ...
def cross_entropy_each(
    input: Tensor,
    weight: Tensor | None = None,
    target: Sequence[int] | Indices = ...,
    label_smoothing: float = 0.0,
) -> Tensor: ...
def cross_entropy_backward(
    grad: Tensor,
    input: Tensor,
    weight: Tensor | None = None,
    target: Sequence[int] | Indices = ...,
    label_smoothing: float = 0.0,
) -> Tensor: ...
def nll_each(
    input: Tensor, weight: Tensor | None = None, target: Sequence[int] | Indices = ...
) -> Tensor: ...
def nll_backward(
    grad: Tensor, weight: Tensor | None = None, target: Sequence[int] | Indices = ..., classes: int = 1
) -> Tensor: ...
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor | npt.ArrayLike,
    input_lengths: Tensor | npt.ArrayLike,
    target_lengths: Tensor | npt.ArrayLike,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor: ...
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor: ...
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor: ...
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor: ...
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor: ...
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor: ...
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor: ...
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor: ...
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | Scalar,
    full: bool = False,
    eps: float = 1e-06,
    reduction: str = "mean",
) -> Tensor: ...
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-08,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor: ...
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor: ...
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor: ...
def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor: ...
def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor: ...
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-06,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor: ...
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor: ...
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-08) -> Tensor: ...
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor: ...
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor: ...
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor: ...
def cast(input: Tensor, dtype: str) -> Tensor: ...
def select(input: Tensor, dim: int, index: int) -> Tensor: ...
def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor: ...
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor: ...
def index(input: Tensor, key: BasicIndex) -> Tensor: ...
def index_backward(input: Tensor, key: BasicIndex, shape: Shape) -> Tensor: ...
def contiguous(input: Tensor, memory_format: MemoryFormat = None) -> Tensor: ...
@overload
def reshape(input: Tensor, *shape: int | Shape) -> Tensor: ...
@overload
def reshape(input: Tensor, *, shape: Shape) -> Tensor: ...
def reshape_as(input: Tensor, other: Tensor) -> Tensor: ...
@overload
def view(input: Tensor, *size: int | Shape) -> Tensor: ...
@overload
def view(input: Tensor, *, size: Shape) -> Tensor: ...
@overload
def view(input: Tensor, dtype: DTypeLike) -> Tensor: ...
def view_as(input: Tensor, other: Tensor) -> Tensor: ...
def unflatten(input: Tensor, dim: int, sizes: Shape) -> Tensor: ...
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor: ...
def squeeze(input: Tensor, dim: Dims = None) -> Tensor: ...
def unsqueeze(input: Tensor, dim: int) -> Tensor: ...
@overload
def permute(input: Tensor, *dims: int | Shape) -> Tensor: ...
@overload
def permute(input: Tensor, *, dims: Shape) -> Tensor: ...
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor: ...

swapdims = transpose

def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor: ...
def movedim(input: Tensor, source: int | Shape, destination: int | Shape) -> Tensor: ...

moveaxis = movedim

@overload
def expand(input: Tensor, *size: int | Shape) -> Tensor: ...
@overload
def expand(input: Tensor, *, size: Shape) -> Tensor: ...
def expand_as(input: Tensor, other: Tensor) -> Tensor: ...
def broadcast_to(input: Tensor, size: Shape) -> Tensor: ...
def batch_norm_stats(input: Tensor) -> Tensor: ...
def batch_norm_apply(
    input: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
) -> Tensor: ...
def batch_norm_sums(grad: Tensor, input: Tensor, mean: Tensor, var: Tensor, eps: float = 1e-05) -> Tensor: ...
def batch_norm_backward(
    grad: Tensor,
    input: Tensor,
    mean: Tensor,
    var: Tensor,
    sums: Tensor,
    weight: Tensor | None = None,
    eps: float = 1e-05,
) -> Tensor: ...
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Tensor: ...
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Tensor: ...
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
) -> Tensor: ...
def layer_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
) -> Tensor: ...
def rms_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor: ...
def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor: ...
def normalized_backward(grad: Tensor, input: Tensor, statistics: Tensor, groups: int = 1) -> Tensor: ...
def normalized_sums(grad: Tensor, input: Tensor, statistics: Tensor, groups: int = 1) -> Tensor: ...
def grouped_norm(
    input: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    groups: int = 1,
    eps: float = 1e-05,
    center: bool = True,
) -> Tensor: ...
def grouped_norm_statistics(
    input: Tensor, groups: int = 1, eps: float = 1e-05, center: bool = True
) -> Tensor: ...
def grouped_norm_backward(
    grad: Tensor,
    input: Tensor,
    weight: Tensor | None = None,
    groups: int = 1,
    eps: float = 1e-05,
    center: bool = True,
) -> Tensor: ...
def grouped_norm_sums(
    grad: Tensor, input: Tensor, groups: int = 1, eps: float = 1e-05, center: bool = True
) -> Tensor: ...
def avg_pool2d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor: ...
def adaptive_avg_pool2d(input: Tensor, output_size: OutputSizes) -> Tensor: ...
def avg_pool_backward(grad: Tensor, pooling: Pooling) -> Tensor: ...
def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor: ...
def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor: ...
def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor: ...
def max_pool_backward(grad: Tensor, input: Tensor, pooling: Pooling) -> Tensor: ...
def max_pool_at(input: Tensor, by: Tensor, pooling: Pooling) -> Tensor: ...
def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor: ...
def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor: ...
def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor: ...
def max_pool1d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor: ...
def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]: ...
def avg_pool1d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor: ...
def adaptive_avg_pool1d(input: Tensor, output_size: Sizes) -> Tensor: ...
def adaptive_max_pool1d(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Tensor: ...
def adaptive_max_pool1d_with_indices(
    input: Tensor, output_size: Sizes, return_indices: bool = False
) -> tuple[Tensor, Tensor]: ...
def max_pool2d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor: ...
def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]: ...
def adaptive_max_pool2d(input: Tensor, output_size: OutputSizes, return_indices: bool = False) -> Tensor: ...
def adaptive_max_pool2d_with_indices(
    input: Tensor, output_size: OutputSizes, return_indices: bool = False
) -> tuple[Tensor, Tensor]: ...
def avg_pool3d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor: ...
def max_pool3d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor: ...
def max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]: ...
def adaptive_avg_pool3d(input: Tensor, output_size: OutputSizes) -> Tensor: ...
def adaptive_max_pool3d(input: Tensor, output_size: OutputSizes, return_indices: bool = False) -> Tensor: ...
def adaptive_max_pool3d_with_indices(
    input: Tensor, output_size: OutputSizes, return_indices: bool = False
) -> tuple[Tensor, Tensor]: ...
def uniform_(
    input: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Generator | None = None
) -> Tensor: ...
def normal_(
    input: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor: ...
def bernoulli_(input: Tensor, p: Tensor | float = 0.5, *, generator: Generator | None = None) -> Tensor: ...
def random_dropout(input: Tensor, p: float, seed: int, offset: int, inner: int = 1) -> Tensor: ...
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor: ...
def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor: ...
def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor: ...
def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor: ...
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor: ...
def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor: ...
def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor: ...
def count_nonzero(
    input: Tensor, dim: Dims = None, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def any(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def all(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def amax(
    input: Tensor, dim: Dims = ..., keepdim: bool = False, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def amin(
    input: Tensor, dim: Dims = ..., keepdim: bool = False, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def argmax(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def argmin(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
@overload
def max(
    input: Tensor, dim: None = None, keepdim: bool = False, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
@overload
def max(
    input: Tensor, dim: int, keepdim: bool = False, *, out: Tensor | Sequence[Tensor] | None = None
) -> Extremes: ...
@overload
def max(input: Tensor, dim: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
@overload
def max(input: Tensor, *, other: Tensor, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
@overload
def min(
    input: Tensor, dim: None = None, keepdim: bool = False, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
@overload
def min(
    input: Tensor, dim: int, keepdim: bool = False, *, out: Tensor | Sequence[Tensor] | None = None
) -> Extremes: ...
@overload
def min(input: Tensor, dim: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
@overload
def min(input: Tensor, *, other: Tensor, out: Tensor | Sequence[Tensor] | None = None) -> Tensor: ...
def aminmax(
    input: Tensor,
    *,
    dim: int | None = None,
    keepdim: bool = False,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Range: ...
def extreme_backward(grad: Tensor, input: Tensor, dim: int, largest: bool) -> Tensor: ...
def nansum(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DTypeLike = None,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def nanmean(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DTypeLike = None,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def cumsum(
    input: Tensor, dim: int, *, dtype: DTypeLike = None, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def cumsum_backward(input: Tensor, dim: int) -> Tensor: ...
def cumprod(
    input: Tensor, dim: int, *, dtype: DTypeLike = None, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def softmax(
    input: Tensor,
    dim: int | None = None,
    dtype: DTypeLike = None,
    *,
    _stacklevel: int = 3,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def log_softmax(
    input: Tensor,
    dim: int | None = None,
    dtype: DTypeLike = None,
    *,
    _stacklevel: int = 3,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def softmin(
    input: Tensor, dim: int | None = None, dtype: DTypeLike = None, *, _stacklevel: int = 3
) -> Tensor: ...
def logsumexp(
    input: Tensor, dim: Dims, keepdim: bool = False, *, out: Tensor | Sequence[Tensor] | None = None
) -> Tensor: ...
def softmax_backward(grad: Tensor, result: Tensor, dim: int) -> Tensor: ...
def log_softmax_backward(grad: Tensor, result: Tensor, dim: int) -> Tensor: ...
def var(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def std(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def var_mean(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    out: Tensor | Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor]: ...
def std_mean(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    out: Tensor | Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor]: ...
def sum_to(input: Tensor, shape: Shape) -> Tensor: ...
def sum(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DTypeLike = None,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def mean(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DTypeLike = None,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def prod(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DTypeLike = None,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def norm(
    input: Tensor,
    p: float | Literal["fro"] = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DTypeLike = None,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Tensor: ...
def gru_step(gates_x: Tensor, gates_h: Tensor, hidden: Tensor) -> Tensor: ...
def gru_step_backward(grad: Tensor, gates_x: Tensor, gates_h: Tensor, hidden: Tensor) -> Tensor: ...
def lstm_step(gates_x: Tensor, gates_h: Tensor, cell: Tensor) -> Tensor: ...
def lstm_step_backward(grad: Tensor, gates: Tensor, cell: Tensor) -> Tensor: ...
def recurrent_sequence(
    gates_x: Tensor,
    hidden: Tensor,
    weight: Tensor,
    cell: Tensor | None = None,
    bias: Tensor | None = None,
    projection: Tensor | None = None,
    mode: str = "lstm",
    sizes: tuple[int, ...] = ...,
    reverse: bool = False,
    save: bool = True,
) -> Tensor: ...
def recurrent_sequence_backward(
    grad: Tensor,
    result: Tensor,
    weight: Tensor,
    grad_hidden: Tensor | None = None,
    grad_cell: Tensor | None = None,
    projection: Tensor | None = None,
    mode: str = "lstm",
    sizes: tuple[int, ...] = ...,
    reverse: bool = False,
) -> Tensor: ...

__all__ = [
    "REGISTRY",
    "abs",
    "absolute",
    "acos",
    "acosh",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_with_indices",
    "add",
    "addbmm",
    "addcdiv",
    "addcmul",
    "addmm",
    "addmv",
    "addr",
    "adjoint",
    "affine_grid",
    "all",
    "all_shaders",
    "allclose",
    "alpha_dropout",
    "amax",
    "amin",
    "aminmax",
    "any",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "argmax",
    "argmin",
    "argsort",
    "argwhere",
    "as_strided",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "avg_pool_backward",
    "baddbmm",
    "batch_norm",
    "batch_norm_apply",
    "batch_norm_backward",
    "batch_norm_stats",
    "batch_norm_sums",
    "bernoulli_",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "binary_error",
    "binary_error_backward",
    "bincount",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "block_diag",
    "bmm",
    "broadcast_shapes",
    "broadcast_tensors",
    "broadcast_to",
    "bucketize",
    "cartesian_prod",
    "cast",
    "cat",
    "cdist",
    "ceil",
    "celu",
    "chain_matmul",
    "channel_shuffle",
    "cholesky",
    "cholesky_ex",
    "cholesky_inverse",
    "cholesky_solve",
    "chunk",
    "clamp",
    "clamp_max",
    "clamp_min",
    "clamp_unchecked",
    "clip",
    "clone",
    "column_stack",
    "combinations",
    "concat",
    "concatenate",
    "contiguous",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_input",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "conv_weight",
    "copy_",
    "copysign",
    "corrcoef",
    "cos",
    "cosh",
    "cosine_embedding_loss",
    "cosine_similarity",
    "count_nonzero",
    "cov",
    "cross",
    "cross_entropy",
    "cross_entropy_backward",
    "cross_entropy_each",
    "ctc_loss",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "cumsum_backward",
    "cumulative_trapezoid",
    "deg2rad",
    "det",
    "diag",
    "diag_embed",
    "diagflat",
    "diagonal",
    "diagonal_scatter",
    "diff",
    "digamma",
    "dist",
    "div",
    "divide",
    "dot",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "dsplit",
    "dstack",
    "eigh",
    "einsum",
    "elu",
    "elu_backward",
    "elu_output_backward",
    "embedding",
    "embedding_bag",
    "entr",
    "eq",
    "equal",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp",
    "exp2",
    "expand",
    "expand_as",
    "expm1",
    "extreme_backward",
    "feature_alpha_dropout",
    "fill_",
    "fix",
    "flash_attention",
    "flash_attention_backward",
    "flatten",
    "flip",
    "fliplr",
    "flipud",
    "float_power",
    "floor",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "fold",
    "frac",
    "frexp",
    "gather",
    "gaussian_nll_loss",
    "gcd",
    "ge",
    "gelu",
    "gelu_exact",
    "gelu_exact_backward",
    "gelu_tanh",
    "gelu_tanh_backward",
    "ger",
    "getitem",
    "glu",
    "gradient",
    "greater",
    "greater_equal",
    "grid_sample",
    "group_norm",
    "grouped_norm",
    "grouped_norm_backward",
    "grouped_norm_statistics",
    "grouped_norm_sums",
    "gru_step",
    "gru_step_backward",
    "gt",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardsigmoid_backward",
    "hardswish",
    "hardswish_backward",
    "hardtanh",
    "hardtanh_backward",
    "heaviside",
    "hinge_embedding_loss",
    "histc",
    "histogram",
    "hsplit",
    "hstack",
    "huber_loss",
    "hypot",
    "in_place",
    "in_range",
    "index",
    "index_add",
    "index_backward",
    "index_copy",
    "index_fill",
    "index_put",
    "index_reduce",
    "index_select",
    "inner",
    "instance_norm",
    "interpolate",
    "inv_ex",
    "inverse",
    "is_nonzero",
    "isclose",
    "isfinite",
    "isin",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isreal",
    "kl_div",
    "kron",
    "kthvalue",
    "l1_loss",
    "layer_norm",
    "lcm",
    "ldexp",
    "le",
    "leaky_relu",
    "leaky_relu_backward",
    "lerp",
    "less",
    "less_equal",
    "lgamma",
    "linear",
    "local_response_norm",
    "log",
    "log1p",
    "log2",
    "log10",
    "log_ndtr",
    "log_softmax",
    "log_softmax_backward",
    "logaddexp",
    "logaddexp2",
    "logcumsumexp",
    "logdet",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logistic_error",
    "logistic_error_backward",
    "logit",
    "logsigmoid",
    "logsumexp",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "lstm_step",
    "lstm_step_backward",
    "lt",
    "margin_ranking_loss",
    "masked_fill",
    "masked_scatter",
    "masked_select",
    "matmul",
    "matrix_exp",
    "matrix_power",
    "max",
    "max_pool1d",
    "max_pool1d_with_indices",
    "max_pool2d",
    "max_pool2d_with_indices",
    "max_pool3d",
    "max_pool3d_with_indices",
    "max_pool_at",
    "max_pool_backward",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "maximum",
    "maximum_backward",
    "mean",
    "median",
    "min",
    "minimum",
    "mish",
    "mm",
    "mode",
    "moveaxis",
    "movedim",
    "mse_loss",
    "msort",
    "mul",
    "multi_head_attention_forward",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "multiply",
    "mv",
    "mvlgamma",
    "nan_to_num",
    "nanmean",
    "nanmedian",
    "nanquantile",
    "nansum",
    "narrow",
    "ndtr",
    "ndtri",
    "ne",
    "neg",
    "negative",
    "nextafter",
    "nll_backward",
    "nll_each",
    "nll_loss",
    "nonzero",
    "norm",
    "normal_",
    "normalize",
    "normalized_backward",
    "normalized_sums",
    "not_equal",
    "one_hot",
    "outer",
    "pad",
    "pairwise_distance",
    "pdist",
    "permute",
    "pinverse",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll_loss",
    "polygamma",
    "positive",
    "pow",
    "prelu",
    "prod",
    "put",
    "put_rows",
    "qr",
    "quantile",
    "rad2deg",
    "random_dropout",
    "ravel",
    "real",
    "reciprocal",
    "recurrent_sequence",
    "recurrent_sequence_backward",
    "relu",
    "relu6",
    "relu_backward",
    "remainder",
    "renorm",
    "repeat",
    "repeat_interleave",
    "reshape",
    "reshape_as",
    "rms_norm",
    "roll",
    "rot90",
    "round",
    "round_even",
    "row_stack",
    "rrelu",
    "rsqrt",
    "rsub",
    "scaled_dot_product_attention",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "searchsorted",
    "segment_reduce",
    "select",
    "select_scatter",
    "selu",
    "setitem",
    "sgn",
    "sigmoid",
    "sigmoid_backward",
    "sign",
    "signbit",
    "silu",
    "silu_backward",
    "sin",
    "sinc",
    "sinh",
    "slice_scatter",
    "slogdet",
    "smooth_error",
    "smooth_error_backward",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmax_backward",
    "softmin",
    "softplus",
    "softplus_backward",
    "softshrink",
    "softsign",
    "solve",
    "solve_ex",
    "solve_triangular",
    "sort",
    "split",
    "sqrt",
    "square",
    "squared_error",
    "squared_error_backward",
    "squeeze",
    "stack",
    "std",
    "std_mean",
    "sub",
    "subtract",
    "sum",
    "sum_to",
    "svd",
    "svd_factors",
    "swapaxes",
    "swapdims",
    "t",
    "take",
    "take_along_dim",
    "take_rows",
    "take_rows_backward",
    "tan",
    "tanh",
    "tanh_backward",
    "tanhshrink",
    "tensor_split",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "threshold",
    "tile",
    "topk",
    "trace",
    "transpose",
    "trapezoid",
    "trapz",
    "triangular_solve",
    "tril",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
    "triu",
    "true_divide",
    "trunc",
    "unbind",
    "unflatten",
    "unfold",
    "uniform_",
    "unique",
    "unique_consecutive",
    "unravel_index",
    "unsqueeze",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
    "vander",
    "var",
    "var_mean",
    "vdot",
    "view",
    "view_as",
    "vsplit",
    "vstack",
    "where",
    "window",
    "xlog1py",
    "xlogy",
    "zero",
    "zero_",
    "zeta",
]
