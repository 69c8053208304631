"""What PyTorch has and dl4all does not is a decision: every such name stands here, with its reason."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import dl4all as dl

torch = pytest.importorskip("torch", reason="names are compared with PyTorch's")

VERSION = "2.13"  # whose names were looked through; other versions have more or fewer

SPACES: dict[str, tuple[Any, Any]] = {
    "torch": (torch, dl),
    "Tensor": (torch.Tensor, dl.Tensor),
    "functional": (torch.nn.functional, dl.nn.functional),
    "nn": (torch.nn, dl.nn),
}

PATTERNS: dict[str, str] = {
    "parts of PyTorch's other backends": (
        r"(mkl|mkldnn|cudnn|miopen|fbgemm|native|quantized|fused|fake_quantize|quantize|hash|grouped|scaled)_.*"
        r"|(to|is)_mkldnn|.*_native_.*|choose_qparams_optimized|from_file|profiler_.*|dequantize|int_repr"
        r"|q_.*|qscheme|empty_quantized|is_quantized"
    ),
    "devices that are named otherwise": (
        r"is_(cuda|cpu|dlall|ipu|maia|meta|mps|mtia|vulkan|xla|xpu|vulkan_available)|cuda|dlall|ipu|mtia|xpu|get_device.*"
        r"|record_stream|(is_pinned|pin_memory)|compiled_with_cxx11_abi|get_default_device"
    ),
    "mixed precision, which dl4all does not have yet": r".*autocast.*",
    "tracing and compilation": (
        r"sym_.*|(import|parse|merge|unify)_.*|compile|cond|while_loop|fork|wait|classproperty|typename"
        r"|thread_safe_generator|prepare_multiprocessing_environment|.*torch_function.*|boolean_dispatch"
        r"|assert_int_or_pair|module_load|dim_order|as_subclass"
    ),
    "settings of PyTorch's process": (
        r"(set|get|use|are|is)_(anomaly|deterministic|default_dtype|default_tensor|flush|float32|num_|printoptions"
        r"|warn|file_path).*|is_(warn_always|inference|deterministic).*|init_num_threads"
        r"|(use|are)_deterministic_.*|is_inference|is_distributed|is_storage"
    ),
    "sparse tensors": (
        r"(to_)?sparse_.*|.*sparse.*|(ccol|crow|col|row)_indices(_copy)?|indices|indices_copy|values|values_copy"
        r"|coalesce|is_coalesced|dense_dim|s?spmm|h?smm|[dhs]+[sp]*mm|s+p?addmm|to_dense|to_padded_tensor|is_nested"
        r"|hspmm|saddmm|sspaddmm"
    ),
    "complex numbers": (
        r"(resolve_|is_)?(conj|neg)(_physical_?)?|complex|polar|imag|real|angle|view_as_(complex|real)(_copy)?"
        r"|cdouble|cfloat|chalf|H|mH"
    ),
    "copies of what is a view: a view and .clone()": r".*_copy|(unsafe|split_with)_.*|slice_inverse",
    "what is removed or internal in PyTorch": (
        r"eig|symeig|solve|lstsq|lu|reinforce|resize|resize_as|new|name|volatile|storage_type|output_nr|layout"
        r"|(index|data|grad_dtype|retains_grad|register_post_accumulate_grad_hook)|Container|NLLLoss2d|conv_tbc"
        r"|CrossMapLRN2d|Buffer|(RNN|RNNCell)Base|multi_head_attention_forward|Uninitialized.*|DataParallel"
        r"|convolution|constant_pad_nd|norm_except_dim|embedding_renorm_|affine_grid_generator|grid_sampler.*"
        r"|(batch_norm|rnn|gru|lstm)_.*|gru|lstm|feature_dropout|max_pool1d_with_indices|nonzero_static|range"
        r"|frobenius_norm|nuclear_norm|Callable|DType|Optional|Tensor|ScalingType|SwizzleType|scalar_.*"
    ),
    "a tensor's memory taken from under it": (
        r"set_|resize_|resize_as_|untyped_storage|data_ptr|const_data_ptr|share_memory_|is_shared|is_set_to|detach_"
        r"|as_strided_(scatter)?|map_|map2_|apply_|new_empty_strided|empty_(permuted|strided)|frombuffer|to_dlpack"
    ),
    "layers that find their sizes later": r"Lazy.*",
    "one device, one process": r"SyncBatchNorm",
    "methods, or functions without the _": r"detach|(feature_)?(alpha_)?dropout_",
    "gives float64, which fits no other tensor": r"float_power_",
}

NAMES: dict[str, str] = {
    "factorizations that few use": (
        "cholesky_inverse cholesky_solve geqrf lobpcg lu_solve lu_unpack "
        "matrix_exp matrix_rank orgqr ormqr pca_lowrank svd_lowrank triangular_solve"
    ),
    "special functions, for which there are no kernels": (
        "i0 igamma igammac mvlgamma polygamma nextafter frexp "
    ),
    "signals": "stft istft ",
    "random numbers of distributions that are not there": "binomial poisson",
    "seldom met, and short in other ops": (
        "gradient histogramdd narrow_copy segment_reduce fill split_with_sizes"
    ),
    "not yet: fractional pooling, and softmax with a cut vocabulary": (
        "fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d "
        "fractional_max_pool3d_with_indices FractionalMaxPool2d FractionalMaxPool3d linear_cross_entropy "
        "AdaptiveLogSoftmaxWithLoss LinearCrossEntropyLoss LinearCrossEntropyOptions"
    ),
}


def names(space: Any) -> set[str]:
    return {name for name in dir(space) if not name.startswith("_")}


def missing(space: str) -> set[str]:
    """What PyTorch has there and dl4all does not."""
    theirs, ours = SPACES[space]
    found = names(theirs) - names(ours) - {"dlall", "is_dlall"}  # dl4all.torch adds those to PyTorch
    if space == "torch":
        functions = names(dl.nn.functional)
        found = {
            name
            for name in found
            if callable(getattr(torch, name))
            and not inspect.isclass(getattr(torch, name))
            # Functions that change their operand are methods, and those of layers are with the layers.
            and not (name.endswith("_") and hasattr(dl.Tensor, name))
            and name not in functions
        }
    elif space == "nn":
        found = {name for name in found if inspect.isclass(getattr(theirs, name))}
    elif space == "functional":
        found = {name for name in found if callable(getattr(theirs, name))}
    return found


def reasons(name: str) -> list[str]:
    """Why a name is not there; one that ends in _ is left out with the function that it is of."""
    plain = name.rstrip("_")
    found = [why for why, listed in NAMES.items() if {name, plain} & set(listed.split())]
    return found + [why for why, pattern in PATTERNS.items() if re.fullmatch(pattern, name)]


@pytest.mark.skipif(
    not torch.__version__.startswith(f"{VERSION}."), reason=f"the names are those of {VERSION}"
)
@pytest.mark.parametrize("space", SPACES)
def test_what_is_missing_has_a_reason(space: str) -> None:
    assert sorted(name for name in missing(space) if not reasons(name)) == []


def test_what_is_listed_is_missing() -> None:
    """A name that is added is taken off the list."""
    listed = {name for words in NAMES.values() for name in words.split()}
    there = names(dl) | names(dl.nn) | names(dl.nn.functional)
    assert sorted(listed & there) == []
    assert sorted(listed & names(dl.Tensor)) == []
