// What a kernel does with each element of an operand before it uses it: nothing, unless PROLOGUE is defined. A shader that
// includes this has declared its push constants and buffers, and SOURCE(i), which is element i of the operand; it reads
// prologue(i) instead. With SOURCE_FOURS these are vec4s, and i counts these.
//
//  PROLOGUE       statements that return the element: of x0, x1, ..., the elements of the sources
//  PROLOGUE_PUSH  push constants behind those of the shader and of its epilogue; may be empty
//  SOURCES        how many sources there are, 1 to 4; they are floats. Source 0 takes the operand's place, and the others
//                 are bound from FIRST_SOURCE on
//  SOURCE0, ...   where in a source the element of the operand lies:
//      ELEMENT    where it lies in the operand
//      ONE        at 0
//      CYCLIC     at i % p.cycle1
//      BLOCKS     at i / p.length1 % p.cycle1, the same for all of a vec4
//      DIVIDED    at its place in the operand / p.length1 % p.cycle1
//                 Lengths and cycles are in PROLOGUE_PUSH. Source 0 is the one or the other of the first two.
#ifdef PROLOGUE
#include "math/called.glsl"
#include "divide.glsl"

#if SOURCE_FOURS
#define SOURCE_VALUE vec4
#define SOURCE_DIVIDED(n, i) vec4(SOURCE_AT(n, 4 * (i)), SOURCE_AT(n, 4 * (i) + 1), \
                                  SOURCE_AT(n, 4 * (i) + 2), SOURCE_AT(n, 4 * (i) + 3))
#else
#define SOURCE_VALUE float
#define SOURCE_DIVIDED(n, i) SOURCE_AT(n, i)
#endif
#define SOURCE_AT(n, at) source##n[divided(divided(at, p.length##n).x, p.cycle##n).y]
#define SOURCE_ELEMENT(n, i) source##n[i]
#define SOURCE_CYCLIC(n, i) source##n[divided(i, p.cycle##n).y]
#define SOURCE_BLOCKS(n, i) SOURCE_VALUE(source##n[divided(divided(i, p.length##n).x, p.cycle##n).y])
#define SOURCE_ONE(n, i) SOURCE_VALUE(source##n[0])
#define DATA_ELEMENT SOURCE_VALUE
#define DATA_CYCLIC SOURCE_VALUE
#define DATA_ONE float
#define DATA_BLOCKS float
#define DATA_DIVIDED float
#define FIRST_ELEMENT(i) SOURCE(i)
#define FIRST_ONE(i) SOURCE(0)
#define PASTE_PLACE(a, b) a##b
#define JOIN_PLACE(a, b) PASTE_PLACE(a, b)
#define READ_SOURCE(n, i) JOIN_PLACE(SOURCE_, SOURCE##n)(n, i)
#define DECLARE_SOURCE(n) \
    layout(binding = FIRST_SOURCE + n - 1) readonly buffer Source##n { JOIN_PLACE(DATA_, SOURCE##n) source##n[]; };

#if SOURCES > 1
DECLARE_SOURCE(1)
#endif
#if SOURCES > 2
DECLARE_SOURCE(2)
#endif
#if SOURCES > 3
DECLARE_SOURCE(3)
#endif

// OF_SOURCES(f): f(n) for each source.
#if SOURCES == 1
#define OF_SOURCES(f) f(0)
#elif SOURCES == 2
#define OF_SOURCES(f) f(0), f(1)
#elif SOURCES == 3
#define OF_SOURCES(f) f(0), f(1), f(2)
#else
#define OF_SOURCES(f) f(0), f(1), f(2), f(3)
#endif
#define SOURCE_PARAMETER(n) const float x##n
#define SOURCE_PARAMETER4(n) const vec4 x##n
#define SOURCE_X(n) x##n.x
#define SOURCE_Y(n) x##n.y
#define SOURCE_Z(n) x##n.z
#define SOURCE_W(n) x##n.w

float prologue_of(OF_SOURCES(SOURCE_PARAMETER)) {
    PROLOGUE
}

vec4 prologue_of(OF_SOURCES(SOURCE_PARAMETER4)) {
    return vec4(prologue_of(OF_SOURCES(SOURCE_X)), prologue_of(OF_SOURCES(SOURCE_Y)),
                prologue_of(OF_SOURCES(SOURCE_Z)), prologue_of(OF_SOURCES(SOURCE_W)));
}

SOURCE_VALUE prologue(const uint i) {
    const SOURCE_VALUE x0 = JOIN_PLACE(FIRST_, SOURCE0)(i);
#if SOURCES > 1
    const SOURCE_VALUE x1 = READ_SOURCE(1, i);
#endif
#if SOURCES > 2
    const SOURCE_VALUE x2 = READ_SOURCE(2, i);
#endif
#if SOURCES > 3
    const SOURCE_VALUE x3 = READ_SOURCE(3, i);
#endif
#define SOURCE_NAME(n) x##n
    return prologue_of(OF_SOURCES(SOURCE_NAME));
}
#else
#define prologue(i) SOURCE(i)
#endif
