"""Kernels of the user's own, beside the same computation in ops and in NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, FallbackError, GradientError, ShaderError, ShapeError
from dl4all.graph.run.compiled import CompileWarning
from tests.conftest import need, parameter

GROUP = 64
GPUS = [parameter(name) for name in ("vulkan:0", "kompute:0")]
SCALED_PRODUCT = """
layout(local_size_x_id = 0) in;
layout(binding = 0) readonly buffer A { float a[]; };
layout(binding = 1) readonly buffer B { float b[]; };
layout(binding = 2) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { uint n; float scale; };

void main() {
    const uint i = gl_GlobalInvocationID.x;
    if (i < n) y[i] = scale * max(a[i] * b[i], 0.0);
}
"""
SUM_AND_DIFFERENCE = """
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { float a[]; };
layout(binding = 1) readonly buffer B { float b[]; };
layout(binding = 2) writeonly buffer P { float p[]; };
layout(binding = 3) writeonly buffer M { float m[]; };
layout(push_constant) uniform Push { uint n; };

void main() {
    const uint i = gl_GlobalInvocationID.x;
    if (i < n) { p[i] = a[i] + b[i]; m[i] = a[i] - b[i]; }
}
"""
HISTOGRAM = """
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) buffer Counts { uint counts[]; };
layout(push_constant) uniform Push { int n; uvec2 range; };

void main() {
    const uint i = gl_GlobalInvocationID.x;
    if (i < n && x[i] >= range.x && x[i] < range.y) atomicAdd(counts[x[i] - range.x], 1);
}
"""


def elements(*arguments: Any) -> int:
    """Workgroups for each element of the first argument."""
    count: int = arguments[0].numel()
    return -(-count // GROUP)


def scaled_product(**options: Any) -> Any:
    given: dict[str, Any] = {
        "name": "scaled_product",
        "outputs": lambda a, b, scale: [(a.shape, a.dtype)],
        "groups": elements,
        "push": lambda a, b, scale: [("uint", a.numel()), ("float", scale)],
        "constants": {0: GROUP},
        "host": lambda a, b, scale: scale * np.maximum(a * b, 0),
        "grad": lambda g, a, b, scale: (g * b * (a * b > 0) * scale, g * a * (a * b > 0) * scale, None),
    }
    return dl.kernel(SCALED_PRODUCT, **{**given, **options})


def sum_and_difference(**options: Any) -> Any:
    return dl.kernel(
        SUM_AND_DIFFERENCE,
        name="sum_and_difference",
        outputs=lambda a, b: [(a.shape, a.dtype), (a.shape, a.dtype)],
        groups=elements,
        push=lambda a, b: [("uint", a.numel())],
        host=lambda a, b: (a + b, a - b),
        **options,
    )


def in_ops(a: Any, b: Any, scale: float) -> Any:
    return dl.relu(a * b) * scale


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(1,), (131,), (7, 13), (0, 3), ()])
def test_it_computes_what_ops_compute(device: str, shape: tuple[int, ...], dtype: str) -> None:
    a, b = (dl.randn(*shape, device=device).to(dtype=dtype) for _ in range(2))
    got = scaled_product()(a, b, 1.5)
    assert (got.shape, got.dtype) == (shape, a.dtype)
    expected = in_ops(a.float(), b.float(), 1.5)
    tolerance = {"float32": 1e-6, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
    np.testing.assert_allclose(got.float().numpy(), expected.numpy(), rtol=tolerance, atol=1e-6)


def test_views_are_read_from_their_first_element_on(device: str) -> None:
    a = dl.randn(9, 14, device=device)[2:, ::3]
    b = dl.randn(14, 9, device=device).T[2:, ::3]
    got = scaled_product()(a, b.contiguous(), 2.0), scaled_product()(a.contiguous()[1:], b[1:], 2.0)
    np.testing.assert_allclose(got[0].numpy(), in_ops(a, b, 2.0).numpy(), rtol=1e-6)
    np.testing.assert_allclose(got[1].numpy(), in_ops(a[1:], b[1:], 2.0).numpy(), rtol=1e-6)


def test_gradients_are_those_of_grad(device: str) -> None:
    a, b = (dl.randn(5, 7, device=device).requires_grad_() for _ in range(2))
    got = dl.autograd.grad((scaled_product()(a, b, 3.0) ** 2).sum(), [a, b], create_graph=True)
    expected = dl.autograd.grad((in_ops(a, b, 3.0) ** 2).sum(), [a, b], create_graph=True)
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-5)
    second = [dl.autograd.grad((g[0] ** 2).sum(), a)[0] for g in (got, expected)]
    np.testing.assert_allclose(second[0].numpy(), second[1].numpy(), rtol=1e-5)


def test_grad_may_take_the_result_and_several_gradients(device: str) -> None:
    kept: dict[str, Any] = {}

    def gradient(g: Any, a: Any, b: Any, result: Any) -> Any:
        kept["result"] = [one.numpy() for one in result]
        return g[0] + g[1], g[0] - g[1]

    a, b = (dl.randn(70, device=device).requires_grad_() for _ in range(2))
    total, difference = sum_and_difference(grad=gradient)(a, b)
    (total * 2 + difference * 5).sum().backward()
    assert [set(one.grad.tolist()) for one in (a, b)] == [{7.0}, {-3.0}]
    np.testing.assert_array_equal(kept["result"], [total.detach().numpy(), difference.detach().numpy()])
    a.grad = None
    sum_and_difference(grad=gradient)(a, b)[1].sum().backward()  # of the other output there is none
    assert set(a.grad.tolist()) == {1.0}


def test_outputs_begin_with_a_value_and_uint_reads_any_words(device: str) -> None:
    kernel = dl.kernel(
        HISTOGRAM,
        name="histogram",
        outputs=lambda x, first, last: [((last - first,), dl.int32)],
        groups=elements,
        push=lambda x, first, last: [("int", x.numel()), ("uint", 0), ("uint", first), ("uint", last)],
        host=lambda x, first, last: np.bincount(x, minlength=last)[first:last],
        init_value=0,
    )
    x = dl.randint(0, 10, (500,), device=device).to(dtype=dl.int32)
    expected = np.bincount(x.numpy(), minlength=10)
    for _ in range(2):
        np.testing.assert_array_equal(kernel(x, 2, 9).numpy(), expected[2:9])


COPY = """#version 450
{extension}
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X {{ {kind} x[]; }};
layout(binding = 1) writeonly buffer Y {{ {kind} y[]; }};
layout(push_constant) uniform Push {{ uint n; }};

void main() {{
    const uint i = gl_GlobalInvocationID.x;
    if (i < n) y[n - 1 - i] = x[i];
}}
"""
BYTES, HALVES = "GL_EXT_shader_8bit_storage", "GL_EXT_shader_16bit_storage"


@pytest.mark.parametrize("name", GPUS)
@pytest.mark.parametrize(
    ("kind", "dtype", "extension", "feature"),
    [
        ("int", "int32", "", ""),
        ("uint", "int32", "", ""),
        ("int8_t", "int8", BYTES, "storage8"),
        ("uint8_t", "uint8", BYTES, "storage8"),
        ("uint8_t", "bool", BYTES, "storage8"),
        ("int16_t", "int16", HALVES, "storage16"),
        ("float16_t", "float16", HALVES, "storage16"),
        ("int64_t", "int64", "GL_ARB_gpu_shader_int64", "int64"),
    ],
)
def test_elements_of_each_type(name: str, kind: str, dtype: str, extension: str, feature: str) -> None:
    need(name)
    if feature and feature not in dl.device(name).features:
        pytest.skip(f"{name} has no {feature}")
    reversing = dl.kernel(
        COPY.format(kind=kind, extension=f"#extension {extension} : require" if extension else ""),
        name="reversing",
        outputs=lambda x: [(x.shape, x.dtype)],
        groups=elements,
        push=lambda x: [("uint", x.numel())],
    )
    x = dl.tensor(np.random.default_rng(0).integers(0, 100, 131).astype(dtype), device=name)
    np.testing.assert_array_equal(reversing(x).numpy(), x.numpy()[::-1])


def test_compiled_calls_replay_it(device: str) -> None:
    kernel = scaled_product()
    step = dl.compile(lambda a, b: (kernel(a + 1, b, 2.0) * 3).sum())
    for _ in range(6):
        a, b = dl.randn(50, 3, device=device).requires_grad_(), dl.randn(50, 3, device=device)
        step(a, b).backward()
        (expected,) = dl.autograd.grad((in_ops(a + 1, b, 2.0) * 3).sum(), a)
        np.testing.assert_allclose(a.grad.numpy(), expected.numpy(), rtol=1e-5)
    assert len(step.specializations) == 1


def test_vmap_calls_it_for_each_sample(device: str) -> None:
    a, b = dl.randn(3, 5, device=device), dl.randn(5, device=device)
    total, difference = dl.vmap(sum_and_difference(), in_dims=(0, None))(a, b)
    np.testing.assert_array_equal(total.numpy(), (a + b).numpy())
    np.testing.assert_array_equal(difference.numpy(), (a - b).numpy())


def test_it_is_in_profiles_by_its_name(device: str) -> None:
    with dl.profile() as profile:
        scaled_product()(dl.ones(3, device=device), dl.ones(3, device=device), 1.0).numpy()
    assert sum(event.kind == "kernel" and "scaled_product" in event.name for event in profile.events) == 1


def test_without_a_gradient_backward_says_so(device: str) -> None:
    a = dl.ones(3, device=device).requires_grad_()
    with pytest.raises(GradientError, match=r"\[scaled_product\] has no gradient; give .*grad="):
        scaled_product(grad=None)(a, a, 1.0).sum().backward()
    with pytest.raises(GradientError, match=r"a gradient for each of 3 arguments.*got 1"):
        scaled_product(grad=lambda g, a, b, scale: g)(a, a, 1.0).sum().backward()


def test_the_cpu_needs_a_function_of_arrays() -> None:
    x = dl.ones(3, device="cpu")
    with pytest.raises(ArgumentError, match=r"\[scaled_product\] runs on devices with shaders.*host="):
        scaled_product(host=None)(x, x, 1.0)
    with pytest.raises(ShapeError, match=r"host returned an array of shape \(2,\), and outputs says \(3,\)"):
        scaled_product(host=lambda a, b, scale: a[:2])(x, x, 1.0)
    with pytest.raises(ArgumentError, match="host must return 1 arrays, got 2"):
        scaled_product(host=lambda a, b, scale: (a, b))(x, x, 1.0)


def test_errors_of_the_compiler_show_the_users_line() -> None:
    with pytest.raises(ShaderError) as caught:
        dl.kernel(
            """
layout(local_size_x = 64) in;
layout(binding = 0) writeonly buffer Y { float y[]; };
void main() {
    y[0] = undeclared_name;
}
""",
            name="mistaken",
            outputs=lambda x: [(x.shape, x.dtype)],
            groups=lambda x: 1,
        )
    source = Path(__file__).read_text().splitlines()
    line = next(n for n, text in enumerate(source, 1) if text == "    y[0] = undeclared_name;")
    assert f"line 5 ({__file__}:{line}): y[0] = undeclared_name;" in str(caught.value)
    assert ".comp:" not in str(caught.value)  # of a file that is gone


READS_TOO_MUCH = SCALED_PRODUCT.replace("readonly buffer B", "buffer B")
WRITES_NOTHING = SCALED_PRODUCT.replace("writeonly buffer Y", "readonly buffer Y").replace(
    "y[i] =", "float t ="
)
INTS = SCALED_PRODUCT.replace("{ float a[]; }", "{ int a[]; }").replace("a[i]", "float(a[i])")


@pytest.mark.parametrize("name", GPUS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"glsl": READS_TOO_MUCH}, r"binding 1 takes tensor 1, which a kernel must not change.*readonly"),
        ({"glsl": WRITES_NOTHING}, r"binding 2 takes output 0, and the buffer is readonly"),
        ({"glsl": INTS}, r"binding 0 is a buffer of int, for int32, and tensor 0 is float32"),
        ({"glsl": SUM_AND_DIFFERENCE}, r"has 4 buffers, and the call passes 2 tensors and 1 outputs"),
        ({"push": None}, r"push constants are \(uint, float\), and push returns \(\)"),
        ({"push": lambda a, b, s: [("float", 1), ("float", s)]}, r"push returns \(float, float\)"),
        (
            {"push": lambda a, b, s: [("uint", -1), ("float", s)]},
            "a push constant must be at least 0, got -1",
        ),
        ({"push": lambda a, b, s: [a.numel(), s]}, r"push must return pairs such as \('uint', n\)"),
        ({"outputs": lambda a, b, s: a.shape}, r"outputs must return a list of \(shape, dtype\) pairs"),
        ({"outputs": lambda a, b, s: [((-1,), a.dtype)]}, "a size of an output must be"),
        ({"outputs": lambda a, b, s: [(a.shape, "float31")]}, "float31"),
        ({"groups": lambda a, b, s: (1, 1, 1, 1)}, "workgroups along 1 to 3 axes"),
        ({"groups": lambda a, b, s: 0.5}, "a number of workgroups must be an int"),
        ({"groups": lambda a, b, s: 2**31}, "more than .* can start at once"),
        ({"constants": {0: 64, 1: 2}}, r"has specialization constants \[0\]"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, change: dict[str, Any], message: str) -> None:
    need(name)
    given = dict(change)
    glsl = given.pop("glsl", SCALED_PRODUCT)
    options: dict[str, Any] = {
        "outputs": lambda a, b, scale: [(a.shape, a.dtype)],
        "groups": elements,
        "push": lambda a, b, scale: [("uint", a.numel()), ("float", scale)],
        "constants": {0: GROUP} if "local_size_x_id" in glsl else {},
    }
    kernel = dl.kernel(glsl, name="refused", **{**options, **given})
    x = dl.ones(3, device=name)
    with pytest.raises(dl.Dl4allError, match=message):
        kernel(x, x, 1.0)


def test_declarations_are_checked() -> None:
    with pytest.raises(ArgumentError, match=r"\[kernel\] expected a name of letters, digits and _"):
        scaled_product(name="a/b")
    with pytest.raises(ArgumentError, match=r"constants must have the ids 0, 1, 2, ..., got \[1\]"):
        scaled_product(constants={1: 64})
    with pytest.raises(DTypeError, match="expected a tensor among its arguments"):
        scaled_product()(1.0, 2.0, 3.0)


@pytest.mark.parametrize("name", GPUS)
def test_a_kernel_that_the_driver_refuses_runs_on_the_host(name: str) -> None:
    """A workgroup of more invocations than any device has."""
    need(name)
    x = dl.randn(20, device=name)
    kernel = scaled_product(constants={0: 2**20})
    dl.fallback.reset()
    with dl.fallback.policy("silent"):
        np.testing.assert_allclose(kernel(x, x, 2.0).numpy(), (x * x * 2).numpy(), rtol=1e-6)
    assert [(row.op, row.calls) for row in dl.fallback.report()] == [("scaled_product", 1)]
    with dl.fallback.policy("error"), pytest.raises(FallbackError, match="scaled_product"):
        kernel(x, x, 2.0)


@pytest.mark.filterwarnings(f"error::{CompileWarning.__module__}.CompileWarning")
def test_a_kernel_of_other_values_is_traced_anew(device: str) -> None:
    """Values that the kernel's functions see beside tensors are guarded as any of Python's."""
    scale = {"value": 2.0}
    kernel = dl.kernel(
        SCALED_PRODUCT,
        name="of_closure",
        outputs=lambda a, b: [(a.shape, a.dtype)],
        groups=elements,
        push=lambda a, b: [("uint", a.numel()), ("float", scale["value"])],
        constants={0: GROUP},
        host=lambda a, b: scale["value"] * np.maximum(a * b, 0),
    )
    step = dl.compile(lambda a: kernel(a, a))
    x = dl.randn(10, device=device)
    for value in (2.0, 2.0, 2.0, 5.0, 5.0, 5.0, 2.0):
        scale["value"] = value
        np.testing.assert_allclose(step(x).numpy(), (x * x * value).numpy(), rtol=1e-6)
