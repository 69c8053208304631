"""The pass that puts the instruction for products of four bytes into a shader."""

from __future__ import annotations

import numpy as np
import pytest

from dl4all.errors import ShaderError
from dl4all.ops.linalg.integer_product import ROWS, TILES
from dl4all.runtime import spirv
from dl4all.runtime.spirv.integer_dots import BIT_FIELD_INSERT, S_DOT, SU_DOT, with_integer_dots
from dl4all.runtime.spirv.parser import parse


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_each_product_becomes_the_instruction(dtype: str) -> None:
    key = np.dtype(dtype)
    for shaders, place in ((ROWS, (8, 4, key)), (ROWS, (64, 1, key)), (TILES, (key,))):
        module, plain = (spirv.load(shaders[(*place, dot)]) for dot in (True, False))
        ops = parse(module.code)
        assert not ops[BIT_FIELD_INSERT]
        assert len(ops[S_DOT if dtype == "int8" else SU_DOT]) > 0
        assert {"DotProduct", "DotProductInput4x8BitPacked"} <= set(module.interface.capabilities)
        assert not {S_DOT, SU_DOT} & parse(plain.code).keys()
        assert module.interface.bindings == plain.interface.bindings


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(ShaderError, match="SPIR-V"):
        with_integer_dots(b"\0" * 32, signed=True)
