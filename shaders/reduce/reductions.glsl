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
#define WIDE_MOMENTS 9

#if KIND == SUM || KIND == PRODUCT || KIND == LARGEST || KIND == SMALLEST
const uint WORDS = 1;
struct State {
    float value;
};

State unpack(uint words[WORDS]) {
    return State(uintBitsToFloat(words[0]));
}

uint[WORDS] packed(State s) {
    return uint[WORDS](floatBitsToUint(s.value));
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

State unpack(uint words[WORDS]) {
    return State(words[0]);
}

uint[WORDS] packed(State s) {
    return uint[WORDS](s.count);
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

State unpack(uint words[WORDS]) {
    return State(uintBitsToFloat(words[0]), words[1]);
}

uint[WORDS] packed(State s) {
    return uint[WORDS](floatBitsToUint(s.value), s.index);
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

#if KIND == MOMENTS || KIND == WIDE_MOMENTS
// Count, mean and sum of squared deviations from the mean, after Welford; merged after Chan et al. The elements come as
// quarters, so that the difference of any two is finite.
//
// WIDE_MOMENTS, for the root of the variance: squares have twice the range of exponents, more than a float has. So three
// sums are kept, of deviations scaled down, as they are, and scaled up; what is too small for one of them and counts
// nevertheless is in the next (Blue, A portable Fortran program to find the Euclidean norm of a vector, 1978).
const float QUARTER = 0.25;
#if KIND == MOMENTS
#define SQUARES float
const uint WORDS = 3;

float products(float a, float b) {
    return a * b;
}

float squares_of(vec4 x) {
    return dot(x, x);
}
#else
#define SQUARES vec3
const uint WORDS = 5;
const vec3 SCALES = vec3(5.16987882845642e-26, 1.0, 9.223372036854775808e18);  // powers of 2: -84, 0 and 63
const float SMALL = 1e-30;  // from this sum of squares on, those of deviations scaled up are not needed

vec3 products(float a, float b) {
    return (SCALES * a) * (SCALES * b);
}

vec3 squares_of(vec4 x) {
    const vec4 low = x * SCALES.x, high = x * SCALES.z;
    return vec3(dot(low, low), dot(x, x), dot(high, high));
}
#endif
struct State {
    float count, mean;
    SQUARES squares;
};

#if KIND == MOMENTS
State unpack(uint words[WORDS]) {
    return State(uintBitsToFloat(words[0]), uintBitsToFloat(words[1]), uintBitsToFloat(words[2]));
}

uint[WORDS] packed(State s) {
    return uint[WORDS](floatBitsToUint(s.count), floatBitsToUint(s.mean), floatBitsToUint(s.squares));
}
#else
State unpack(uint words[WORDS]) {
    return State(uintBitsToFloat(words[0]), uintBitsToFloat(words[1]),
        uintBitsToFloat(uvec3(words[2], words[3], words[4])));
}

uint[WORDS] packed(State s) {
    const uvec3 squares = floatBitsToUint(s.squares);
    return uint[WORDS](floatBitsToUint(s.count), floatBitsToUint(s.mean), squares.x, squares.y, squares.z);
}
#endif

State start() {
    return State(0.0, 0.0, SQUARES(0.0));
}

State merge(State a, State b) {
    if (b.count == 0.0) return a;
    if (a.count == 0.0) return b;
    const float count = a.count + b.count;
    const float delta = b.mean - a.mean;
    const float share = b.count / count;
    return State(count, a.mean + delta * share, a.squares + b.squares + products(delta, delta) * (a.count * share));
}

State take(State s, float x, uint index) {
    const float count = s.count + 1.0;
    const float delta = x - s.mean;
    const float mean = s.mean + delta / count;
    return State(count, mean, s.squares + products(delta, x - mean));
}

State four(vec4 x, uint index) {
    const float mean = ((x.x + x.y) + (x.z + x.w)) * 0.25;
    return State(4.0, mean, squares_of(x - mean));
}

// exp(), log() and 0 / 0 of special values are undefined on some drivers.
float mean_square(State s, float squares, float correction) {
    const float degrees = max(s.count - correction, 0.0);
    if (degrees == 0.0) return squares > 0.0 ? infinity() : not_a_number();
    return squares / degrees;
}

#if KIND == MOMENTS
float variance(State s, float correction) {
    return mean_square(s, s.squares, correction) / (QUARTER * QUARTER);
}
#else
float deviation(State s, float correction) {
    float squares = s.squares.y, scale = QUARTER;
    if (is_inf(squares)) {
        squares = s.squares.x;
        scale = QUARTER * SCALES.x;
    } else if (squares < SMALL) {
        squares = s.squares.z;
        scale = QUARTER * SCALES.z;
    }
    return sqrt(mean_square(s, squares, correction)) / scale;
}
#endif
#endif

#if KIND == LOGSUMEXP
// The sum of exp(element - high), where high is the largest element so far.
const uint WORDS = 2;
struct State {
    float high, sum;
};

State unpack(uint words[WORDS]) {
    return State(uintBitsToFloat(words[0]), uintBitsToFloat(words[1]));
}

uint[WORDS] packed(State s) {
    return uint[WORDS](floatBitsToUint(s.high), floatBitsToUint(s.sum));
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

#if KIND != MOMENTS && KIND != WIDE_MOMENTS && KIND != LOGSUMEXP
State four(vec4 x, uint index) {
    const State low = merge(take(start(), x.x, index), take(start(), x.y, index + 1));
    return merge(low, merge(take(start(), x.z, index + 2), take(start(), x.w, index + 3)));
}
#endif
