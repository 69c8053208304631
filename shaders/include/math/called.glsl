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
#ifdef GAMMA
#include "gamma.glsl"
#endif
#ifdef INVERSE_ERROR_FUNCTION
#include "inverse_error_function.glsl"
#endif
#ifdef NORMAL_QUANTILE
#include "normal_quantile.glsl"
#endif
#ifdef POWER
#include "power.glsl"
#endif
#ifdef REMAINDER
#include "remainder.glsl"
#endif
#include "special.glsl"
#ifdef ROUNDED
#include "../halves.glsl"
#endif
#ifdef INT64
#include "int64.glsl"
#endif
