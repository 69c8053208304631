// The states of reductions, by KIND: start() is the empty State, take() adds an element with its index, merge() joins two
// states, packed() and unpack() store them as WORDS words, and four() is the state of four neighbours. Extremes and their
// indices do not depend on the order of take() and merge(); sums do, and the order is always the same.
#include "math/special.glsl"
#define SUM 0
#define PRODUCT 1
#define COUNT 2
#define LARGEST 3
#define SMALLEST 4
#define ARGMAX 5
#define ARGMIN 6
#define MOMENTS 7
#define LOGSUMEXP 8

#if KIND == SUM || KIND == PRODUCT || KIND == LARGEST || KIND == SMALLEST
const uint WORDS = 1;
struct State {
    float value;
};

State unpack(uvec3 words) {
    return State(uintBitsToFloat(words.x));
}

uvec3 packed(State s) {
    return uvec3(floatBitsToUint(s.value), 0, 0);
}
#endif

#if KIND == SUM
State start() {
    return State(0.0);
}

State merge(State a, State b) {
    return State(a.value + b.value);
}
#elif KIND == PRODUCT
State start() {
    return State(1.0);
}

State merge(State a, State b) {
    return State(a.value * b.value);
}
#elif KIND == LARGEST
State start() {
    return State(-infinity());
}

// max() may drop a nan, and does so on some drivers.
State merge(State a, State b) {
    return b.value <= a.value || is_nan(a.value) ? a : b;
}
#elif KIND == SMALLEST
State start() {
    return State(infinity());
}

State merge(State a, State b) {
    return b.value >= a.value || is_nan(a.value) ? a : b;
}
#endif

#if KIND == SUM || KIND == PRODUCT || KIND == LARGEST || KIND == SMALLEST
State take(State s, float x, uint index) {
    return merge(s, State(ELEMENT(x)));
}
#endif

#if KIND == COUNT
const uint WORDS = 1;
struct State {
    uint count;
};

State unpack(uvec3 words) {
    return State(words.x);
}

uvec3 packed(State s) {
    return uvec3(s.count, 0, 0);
}

State start() {
    return State(0);
}

State merge(State a, State b) {
    return State(a.count + b.count);
}

State take(State s, float x, uint index) {
    return State(s.count + (x == 0.0 ? 0 : 1));
}
#endif

#if KIND == ARGMAX || KIND == ARGMIN
const uint WORDS = 2;
struct State {
    float value;
    uint index;  // of the first element with that value; NONE for an empty state
};
const uint NONE = 0xffffffffu;

State unpack(uvec3 words) {
    return State(uintBitsToFloat(words.x), words.y);
}

uvec3 packed(State s) {
    return uvec3(floatBitsToUint(s.value), s.index, 0);
}

State start() {
    return State(0.0, NONE);
}

State merge(State a, State b) {
    if (b.index == NONE) return a;
    if (a.index == NONE) return b;
    const bool a_nan = is_nan(a.value), b_nan = is_nan(b.value);
    if (a_nan || b_nan) return a_nan && (!b_nan || a.index < b.index) ? a : b;
    if (a.value == b.value) return a.index < b.index ? a : b;
#if KIND == ARGMAX
    return a.value > b.value ? a : b;
#else
    return a.value < b.value ? a : b;
#endif
}

State take(State s, float x, uint index) {
    return merge(s, State(x, index));
}
#endif

#if KIND == MOMENTS
// Count, mean and sum of squared deviations from the mean, after Welford; merged after Chan et al.
const uint WORDS = 3;
struct State {
    float count, mean, squares;
};

State unpack(uvec3 words) {
    return State(uintBitsToFloat(words.x), uintBitsToFloat(words.y), uintBitsToFloat(words.z));
}

uvec3 packed(State s) {
    return uvec3(floatBitsToUint(s.count), floatBitsToUint(s.mean), floatBitsToUint(s.squares));
}

State start() {
    return State(0.0, 0.0, 0.0);
}

State merge(State a, State b) {
    if (b.count == 0.0) return a;
    if (a.count == 0.0) return b;
    const float count = a.count + b.count;
    const float delta = b.mean - a.mean;
    const float share = b.count / count;
    return State(count, a.mean + delta * share, a.squares + b.squares + delta * delta * a.count * share);
}

State take(State s, float x, uint index) {
    const float count = s.count + 1.0;
    const float delta = x - s.mean;
    const float mean = s.mean + delta / count;
    return State(count, mean, s.squares + delta * (x - mean));
}

State four(vec4 x, uint index) {
    const float mean = ((x.x + x.y) + (x.z + x.w)) * 0.25;
    const vec4 delta = x - mean;
    return State(4.0, mean, dot(delta, delta));
}

// exp(), log() and 0 / 0 of special values are undefined on some drivers.
float variance(State s, float correction) {
    const float degrees = max(s.count - correction, 0.0);
    if (degrees == 0.0) return s.squares > 0.0 ? infinity() : not_a_number();
    return s.squares / degrees;
}
#endif

#if KIND == LOGSUMEXP
// The sum of exp(element - high), where high is the largest element so far.
const uint WORDS = 2;
struct State {
    float high, sum;
};

State unpack(uvec3 words) {
    return State(uintBitsToFloat(words.x), uintBitsToFloat(words.y));
}

uvec3 packed(State s) {
    return uvec3(floatBitsToUint(s.high), floatBitsToUint(s.sum), 0);
}

State start() {
    return State(-infinity(), 0.0);
}

State merge(State a, State b) {
    if (is_nan(a.high) || b.high == -infinity() || a.high == infinity() && !is_nan(b.high)) return a;
    if (is_nan(b.high) || a.high == -infinity() || b.high == infinity()) return b;
    const float scale = exp(-abs(a.high - b.high));
    return b.high <= a.high ? State(a.high, a.sum + b.sum * scale) : State(b.high, a.sum * scale + b.sum);
}

State take(State s, float x, uint index) {
    return merge(s, State(x, 1.0));
}

// If the largest element is nan or infinite, the sum does not matter.
State four(vec4 x, uint index) {
    const float left = x.y <= x.x || is_nan(x.x) ? x.x : x.y;
    const float right = x.w <= x.z || is_nan(x.z) ? x.z : x.w;
    const float high = right <= left || is_nan(left) ? left : right;
    const vec4 each = exp(x - high);
    return State(high, (each.x + each.y) + (each.z + each.w));
}

float logarithm(State s) {
    return is_finite(s.high) ? s.high + log(s.sum) : s.high;
}
#endif

#if KIND != MOMENTS && KIND != LOGSUMEXP
State four(vec4 x, uint index) {
    const State low = merge(take(start(), x.x, index), take(start(), x.y, index + 1));
    return merge(low, merge(take(start(), x.z, index + 2), take(start(), x.w, index + 3)));
}
#endif
