// The functions that an expression calls: each family has a define.
#ifdef EXPONENTIAL
#include "exponential.glsl"
#endif
#ifdef LOGARITHM
#include "logarithm.glsl"
#endif
#ifdef TRIGONOMETRY
#include "trigonometry.glsl"
#endif
#ifdef ERROR_FUNCTION
#include "error_function.glsl"
#endif
#ifdef POWER
#include "power.glsl"
#endif
#ifdef REMAINDER
#include "remainder.glsl"
#endif
#include "special.glsl"
#ifdef INT64
#include "int64.glsl"
#endif
