// A logsumexp as the sum of two floats: of large scores, one alone has no digits left for the logarithm of the sum.
#ifndef LOGSUMEXP_GLSL
#define LOGSUMEXP_GLSL
#include "math/exponential.glsl"
#include "math/logarithm.glsl"

// Of exponentials of differences from `maximum`, whose sum is `sum`; -inf if there are none.
vec2 logsumexp_parts(float maximum, float sum) {
    if (sum == 0.0) return vec2(-infinity(), 0.0);
    const float log_sum = logf(sum);
    precise float whole = maximum + log_sum;
    precise float added = whole - maximum;
    precise float rest = log_sum - added;
    return vec2(whole, rest);
}
#endif
