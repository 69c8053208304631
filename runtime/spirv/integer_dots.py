"""Rewrites a shader so that it multiplies integers of 8 bits, four in a word, by the instruction for them.

The compilers of some distributions are older than GLSL's extension for it (GL_EXT_integer_dot_product). A
shader says ``bitfieldInsert(a, b, 0, 32)``, which is of no other use, where it means the sum of the products
of the four signed bytes of a and those of b, of which the latter may have no sign.

Source: SPIR-V extension SPV_KHR_integer_dot_product,
https://github.khronos.org/SPIRV-Registry/extensions/KHR/SPV_KHR_integer_dot_product.html.
"""

from __future__ import annotations

import struct

from dl4all.runtime.spirv.instructions import instruction, instructions
from dl4all.runtime.spirv.parser import HEADER_WORDS, SpirvOp, parse

EXTENSION = b"SPV_KHR_integer_dot_product\0"
CAPABILITIES = 6018, 6019  # DotProductInput4x8BitPacked, DotProduct
OP_EXTENSION, BIT_FIELD_INSERT, S_DOT, SU_DOT = 10, 201, 4450, 4452
PACKED = 0  # the format of four bytes in a word


def with_integer_dots(code: bytes, *, signed: bool) -> bytes:
    """The module with the instruction in the place of what stands for it.

    Args:
        code: of the module.
        signed: whether the second operand's bytes have a sign.
    """
    parse(code)  # refuses what is no whole module
    words = struct.unpack(f"<{len(code) // 4}I", code)
    name = EXTENSION.ljust(-(-len(EXTENSION) // 4) * 4, b"\0")
    extension = instruction(OP_EXTENSION, *struct.unpack(f"<{len(name) // 4}I", name))
    made = list(words[:HEADER_WORDS])
    for capability in CAPABILITIES:
        made += instruction(SpirvOp.CAPABILITY, capability)
    declares = False
    for opcode, at, end in instructions(words):
        if opcode != SpirvOp.CAPABILITY and not declares:
            made += extension
            declares = True
        if opcode == BIT_FIELD_INSERT:
            type, result, a, b, _, _ = words[at + 1 : end]
            made += instruction(S_DOT if signed else SU_DOT, type, result, a, b, PACKED)
        else:
            made += words[at:end]
    return struct.pack(f"<{len(made)}I", *made)
