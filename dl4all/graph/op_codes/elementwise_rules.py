"""Elementwise ops as sequences of instructions, written in the assembler's language.

y is the result, a, b and c are the operands, t, u and v temporary registers; ``{name}`` is an argument of the
op. As the result may lie in an operand's memory, only the last instruction writes y.
"""

from __future__ import annotations

RULES = {
    # arithmetic
    "add": "mad y, b, {alpha}, a",
    "sub": "nmad y, b, {alpha}, a",
    "mul": "mul y, a, b",
    "true_divide": "div y, a, b",
    "neg": "neg y, a",
    "abs": "abs y, a",
    "sign": "sign y, a",
    "floor": "floor y, a",
    "clone": "copy y, a",
    "zero": "copy y, #0",
    "addcmul": "mul t, b, c; mad y, t, {value}, a",
    "addcdiv": "div t, b, c; mad y, t, {value}, a",
    "maximum": "max y, a, b",
    "minimum": "min y, a, b",
    "clamp_min": "max y, a, b",
    "clamp_max": "min y, a, b",
    "clamp_unchecked": "max t, a, b; min y, t, c",
    # functions
    "sqrt": "sqrt y, a",
    "rsqrt": "rsqrt y, a",
    "reciprocal": "div y, #1, a",
    "exp": "exp y, a",
    "expm1": "expm1 y, a",
    "log": "log y, a",
    "log1p": "log1p y, a",
    "sin": "sin y, a",
    "cos": "cos y, a",
    "erf": "erf y, a",
    "pow": "pow y, a, b",
    "tanh": "tanh y, a",
    "tanh_backward": "nmad t, b, b, #1; mul y, a, t",
    "sigmoid": "sigmoid y, a",
    "sigmoid_backward": "sub t, #1, b; mul u, a, b; mul y, u, t",
    # activations
    "relu": "relu y, a",
    "relu_backward": "le t, b, #0; select y, t, #0, a",
    "leaky_relu": "lt t, #0, a; mul u, a, {negative_slope}; select y, t, a, u",
    "leaky_relu_backward": "lt t, #0, b; mul u, a, {negative_slope}; select y, t, a, u",
    "silu": "sigmoid t, a; mul y, a, t",
    "silu_backward": "neg t, b; sigmoid t, t; mad t, b, t, #1; sigmoid u, b; mul u, a, u; mul y, u, t",
    "gelu_tanh": "mul t, a, a; mad t, t, #0.044715, #1; mul u, a, #1.59576912; mul t, t, u; sigmoid t, t; "
    "mul y, a, t",
    "gelu_exact": "mul t, a, #0.70710678; erf t, t; mad t, t, #0.5, #0.5; mul y, a, t",
    "hardtanh": "max t, a, {min_val}; min y, t, {max_val}",
    "hardsigmoid": "mad t, a, #0.16666667, #0.5; max t, t, #0; min y, t, #1",
    "hardswish": "mad t, a, #0.16666667, #0.5; max t, t, #0; min t, t, #1; mul y, a, t",
    "softplus": "mul t, a, {beta}; exp u, t; log1p u, u; div u, u, {beta}; lt v, {threshold}, t; "
    "select y, v, a, u",
    "elu": "mul t, a, {input_scale}; expm1 t, t; mul t, t, {alpha}; le u, a, #0; select t, u, t, a; "
    "mul y, t, {scale}",
    # losses
    "squared_error": "sub t, a, b; mul y, t, t",
    "squared_error_backward": "sub t, b, c; mul t, t, #2; mul y, a, t",
    "logistic_error": "lt t, a, #0; sub u, #1, b; select t, t, b, u; abs u, a; mul u, u, t; "
    "eq v, t, #0; select u, v, #0, u; abs t, a; neg t, t; exp t, t; log1p t, t; add y, t, u",
    "logistic_error_backward": "sigmoid t, b; sub t, t, c; mul y, a, t",
}

MASK_RULES = {
    "eq": "eq y, a, b",
    "ne": "eq t, a, b; eq y, t, #0",
    "lt": "lt y, a, b",
    "le": "le y, a, b",
    "gt": "lt y, b, a",
    "ge": "le y, b, a",
    "bitwise_and": "mul y, a, b",
    "bitwise_or": "max y, a, b",
    "bitwise_xor": "eq t, a, b; eq y, t, #0",
    "logical_and": "mul y, a, b",
    "logical_or": "max y, a, b",
    "logical_xor": "eq t, a, b; eq y, t, #0",
    "logical_not": "eq y, a, #0",
    "bitwise_not": "eq y, a, #0",
    "where": "select y, a, b, c",
}
"""Ops on bools, of which each is a word, 1 or 0: compiled calls have bytes for them, and none of these."""
