// Winograd's convolution with 3x3 filters (Lavin and Gray, 2016): TILE x TILE results come from a tile of
// SIDE x SIDE elements of the image, SIDE = TILE + 2, as an elementwise product of transformed tiles and
// filters, summed over the channels, and transformed back. A transform multiplies by a small matrix from both
// sides; the functions here multiply one column by it. The gradient of the filters takes two transposed
// transforms.
//
// The matrices follow from SIDE - 1 points and one at infinity (interpolation after Toom and Cook): 0 and +-1
// for TILE 2, and 0, +-3/4 and +-3/2 for TILE 4. These numbers are exact in float32, and the errors are a
// third of those with the usual +-1 and +-2 (docs/performance.md).
#extension GL_EXT_control_flow_attributes : require
#define UNROLL(i, n) [[unroll]] for (int i = 0; i < (n); ++i)
#define SIDE (TILE + 2)
#define NAN uintBitsToFloat(0x7fc00000)

#if TILE == 4
const float P = 0.75, PP = P * P;
const float Q = 1.5, QQ = Q * Q;
const float BY_P = 0.5 / (PP * (PP - QQ)), BY_Q = 0.5 / (QQ * (QQ - PP));

void transform_image(inout float d[SIDE]) {
    const float even_p = d[4] - QQ * d[2], odd_p = d[3] - QQ * d[1];
    const float even_q = d[4] - PP * d[2], odd_q = d[3] - PP * d[1];
    d[0] = even_q - QQ * (d[2] - PP * d[0]);
    d[5] = d[5] - PP * d[3] - QQ * odd_q;
    d[1] = even_p + P * odd_p;
    d[2] = even_p - P * odd_p;
    d[3] = even_q + Q * odd_q;
    d[4] = even_q - Q * odd_q;
}

void transform_filter(float g0, float g1, float g2, out float u[SIDE]) {
    const float even_p = BY_P * (g0 + PP * g2), odd_p = BY_P * P * g1;
    const float even_q = BY_Q * (g0 + QQ * g2), odd_q = BY_Q * Q * g1;
    u[0] = g0 / (PP * QQ);
    u[1] = even_p + odd_p;
    u[2] = even_p - odd_p;
    u[3] = even_q + odd_q;
    u[4] = even_q - odd_q;
    u[5] = g2;
}

void transform_result(float m[SIDE], out float y[TILE]) {
    const float even_p = m[1] + m[2], odd_p = P * (m[1] - m[2]);
    const float even_q = m[3] + m[4], odd_q = Q * (m[3] - m[4]);
    y[0] = m[0] + even_p + even_q;
    y[1] = odd_p + odd_q;
    y[2] = PP * even_p + QQ * even_q;
    y[3] = PP * odd_p + QQ * odd_q + m[5];
}

// From the gradient of a result, in the first elements, to the gradient of the product.
void transform_gradient(inout float d[SIDE]) {
    const float even_p = d[0] + PP * d[2], odd_p = P * (d[1] + PP * d[3]);
    const float even_q = d[0] + QQ * d[2], odd_q = Q * (d[1] + QQ * d[3]);
    d[5] = d[3];
    d[1] = even_p + odd_p;
    d[2] = even_p - odd_p;
    d[3] = even_q + odd_q;
    d[4] = even_q - odd_q;
}

// From the gradient of a transformed filter to the gradient of the filter.
void transform_back(float u[SIDE], out float g[3]) {
    const float even_p = BY_P * (u[1] + u[2]), odd_p = BY_P * P * (u[1] - u[2]);
    const float even_q = BY_Q * (u[3] + u[4]), odd_q = BY_Q * Q * (u[3] - u[4]);
    g[0] = u[0] / (PP * QQ) + even_p + even_q;
    g[1] = odd_p + odd_q;
    g[2] = PP * even_p + QQ * even_q + u[5];
}
#else
void transform_image(inout float d[SIDE]) {
    const float odd = d[1];
    d[0] = d[0] - d[2];
    d[3] = d[3] - odd;
    d[1] = d[2] + odd;
    d[2] = d[2] - odd;
}

void transform_filter(float g0, float g1, float g2, out float u[SIDE]) {
    const float even = 0.5 * (g0 + g2), odd = 0.5 * g1;
    u[0] = g0;
    u[1] = even + odd;
    u[2] = even - odd;
    u[3] = g2;
}

void transform_result(float m[SIDE], out float y[TILE]) {
    y[0] = m[0] + m[1] + m[2];
    y[1] = m[1] - m[2] + m[3];
}

void transform_gradient(inout float d[SIDE]) {
    d[3] = d[1];
    d[2] = d[0] - d[1];
    d[1] = d[0] + d[1];
}

void transform_back(float u[SIDE], out float g[3]) {
    const float even = 0.5 * (u[1] + u[2]);
    g[0] = u[0] + even;
    g[1] = 0.5 * (u[1] - u[2]);
    g[2] = u[3] + even;
}
#endif
