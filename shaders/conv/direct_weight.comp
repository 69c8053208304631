#version 450
// The gradient of filters without a matrix of unrolled windows: an invocation sums up ROWS rows of FILTERS filters over
// its share of the output pixels of all images, four neighbours at a time. A workgroup adds up the sums of its
// invocations, in their order, and stores them in a slot of its own; conv/sum.comp adds up the slots.
//
// Grid: slots in x, blocks of filters in y, channels and rows of filters in z.
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "divide.glsl"
#define UNROLL(i, n) [[unroll]] for (int i = 0; i < (n); ++i)
layout(constant_id = 0) const int FILTERS = 8;
layout(constant_id = 1) const int ROWS = 3;
layout(constant_id = 2) const int kernel_w = 3;
layout(constant_id = 3) const int stride_w = 1;
layout(constant_id = 4) const int dilation_w = 1;
layout(constant_id = 5) const int padding_w = 0;
layout(constant_id = 6) const uint G_VECTORS = 0;  // the gradient is read four elements at a time, no quad is short
layout(constant_id = 7) const uint X_VECTORS = 0;  // so is the image, where the quad's own pixels lie
layout(constant_id = 8) const uint VOLUME = 0;     // images or filters are deep
layout(constant_id = 9) const uint SIZE = 64;      // invocations
layout(constant_id = 10) const uint AT_ONCE = 16;   // sums that the invocations exchange at a time
layout(constant_id = 11) const uint APART = 1;     // rows end with a shorter quad, which has a loop of its own
layout(local_size_x_id = 9) in;
layout(binding = 0) restrict readonly buffer G { float g[]; };
layout(binding = 0) restrict readonly buffer G4 { vec4 g4[]; };
layout(binding = 1) restrict readonly buffer X { float x[]; };
layout(binding = 1) restrict readonly buffer X4 { vec4 x4[]; };
layout(binding = 2) restrict writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint kernel_d, kernel_h, stride_d, stride_h, dilation_d, dilation_h;
    int padding_d, padding_h;
    uint depth, height, width, out_depth, out_height, out_width;
    uint images, groups, channels, filters, blocks;  // channels, filters and blocks of filters of a group
    uint g_offset, x_offset, slot;  // elements of a slot
} p;

const int SPAN = 3 * stride_w + (kernel_w - 1) * dilation_w + 1;  // elements of a row that four output pixels meet
const int COUNT = FILTERS * ROWS * kernel_w;
const uint PARTS = AT_ONCE * 4 <= SIZE ? 4 : AT_ONCE * 2 <= SIZE ? 2 : 1;  // of the invocations, whose sums are added up side by side
const uint PITCH = PARTS > 1 ? SIZE + 1 : SIZE;  // against bank conflicts
shared float partial[PITCH * AT_ONCE];
shared float totals[PARTS * AT_ONCE];

// What does not change from quad to quad.
uint group, first, channel, a, b;  // of what the workgroup sums up: the first of the filters, and the row in them
uint g_start, g_image, x_start, x_image;
uint filter_at[FILTERS];

float sum[COUNT];

// Four neighbouring output pixels: the image, the row in it, and the quad in the row.
struct Quad {
    uint image, plane, line, at;
};

// Quad number `at`, of `per_row` in a row.
Quad quad_of(uint at, uint per_row) {
    const uvec2 line = divided(at, per_row);
    const uvec2 plane = divided(line.x, p.out_height);
    if (VOLUME == 0) return Quad(plane.x, 0, plane.y, line.y);
    const uvec2 image = divided(plane.x, p.out_depth);
    return Quad(image.x, image.y, plane.y, line.y);
}

// The quad that lies `step` behind another one: additions with carries, instead of divisions.
Quad behind(Quad quad, Quad step, uint per_row) {
    Quad next = Quad(quad.image + step.image, quad.plane + step.plane, quad.line + step.line, quad.at + step.at);
    const bool line = next.at >= per_row;
    next.at -= line ? per_row : 0;
    next.line += line ? 1 : 0;
    const bool plane = next.line >= p.out_height;
    next.line -= plane ? p.out_height : 0;
    if (VOLUME == 0) {
        next.image += plane ? 1 : 0;
        return next;
    }
    next.plane += plane ? 1 : 0;
    const bool image = next.plane >= p.out_depth;
    next.plane -= image ? p.out_depth : 0;
    next.image += image ? 1 : 0;
    return next;
}

// Add what the first `pixels` of the four from `column` on contribute. Loads come from valid addresses and are
// replaced where there is nothing to read: no load is behind a branch.
void add(Quad quad, uint column, uint pixels) {
    const uint from = g_start + quad.image * g_image + (quad.plane * p.out_height + quad.line) * p.out_width + column;
    uint slice = x_start + quad.image * x_image;
    bool in_planes = true;
    if (VOLUME != 0) {
        const uint d = quad.plane * p.stride_d + a * p.dilation_d - p.padding_d;  // negative ones wrap to large numbers
        in_planes = d < p.depth;
        slice += min(d, p.depth - 1) * (p.height * p.width);
    }
    const uint top = quad.line * p.stride_h + b * p.dilation_h - p.padding_h;
    const uint left = column * stride_w - padding_w;
    float span[ROWS * SPAN];
    UNROLL(r, ROWS) {
        const uint h = top + r * p.dilation_h;
        const bool in_rows = in_planes && h < p.height;
        const uint row = slice + min(h, p.height - 1) * p.width;
        UNROLL(v, stride_w) {
            if (X_VECTORS != 0) {
                const uint at = column * stride_w + 4 * v;
                const vec4 vector = x4[row / 4 + min(at, p.width - 4) / 4];
                UNROLL(i, 4) {
                    const int to = padding_w + 4 * v + i;
                    if (to < SPAN) span[r * SPAN + min(to, SPAN - 1)] = in_rows && at < p.width ? vector[i] : 0.0;
                }
            }
        }
        UNROLL(i, SPAN) {
            if (X_VECTORS == 0 || i < padding_w || i >= padding_w + 4 * stride_w) {
                const float value = x[row + min(left + i, p.width - 1)];
                span[r * SPAN + i] = in_rows && left + i < p.width ? value : 0.0;
            }
        }
    }
    UNROLL(f, FILTERS) {
        vec4 gradient;
        if (G_VECTORS != 0) {
            gradient = g4[from / 4 + filter_at[f]];
        } else {
            UNROLL(e, 4) gradient[e] = g[from + filter_at[f] + min(e, pixels - 1)];
        }
        UNROLL(r, ROWS) UNROLL(c, kernel_w) UNROLL(e, 4) {
            const float term = gradient[e] * span[r * SPAN + c * dilation_w + e * stride_w];
            sum[(f * ROWS + r) * kernel_w + c] += e < pixels ? term : 0.0;
        }
    }
}

// Add up the sums of all invocations from number `from` on, and store them.
void exchange(uint from) {
    const uint lane = gl_LocalInvocationID.x;
    if (from >= COUNT) return;
    UNROLL(i, int(AT_ONCE)) partial[i * PITCH + lane] = sum[min(from + i, COUNT - 1)];
    barrier();
    for (uint t = lane; t < AT_ONCE * PARTS; t += SIZE) {
        float total = 0.0;
        const uint at = t % AT_ONCE * PITCH + t / AT_ONCE * (SIZE / PARTS);
        for (uint i = 0; i < SIZE / PARTS; ++i) total += partial[at + i];
        totals[t] = total;
    }
    barrier();
    for (uint i = lane; i < AT_ONCE && from + i < COUNT; i += SIZE) {
        float total = 0.0;
        for (uint part = 0; part < PARTS; ++part) total += totals[part * AT_ONCE + i];
        const uint f = first + (from + i) / (ROWS * kernel_w);
        const uint row = ((group * p.filters + f) * p.channels + channel) * p.kernel_d + a;
        const uint tap = b * kernel_w + (from + i) % (ROWS * kernel_w);
        if (f < p.filters) y[gl_WorkGroupID.x * p.slot + row * p.kernel_h * kernel_w + tap] = total;
    }
}

void main() {
    const uint pixels = p.out_depth * p.out_height * p.out_width;
    const uint volume = p.depth * p.height * p.width;
    const uint portions = p.kernel_h / ROWS;
    group = gl_WorkGroupID.y / p.blocks;
    first = gl_WorkGroupID.y % p.blocks * FILTERS;
    b = gl_WorkGroupID.z % portions * ROWS;
    a = gl_WorkGroupID.z / portions % p.kernel_d;
    channel = gl_WorkGroupID.z / portions / p.kernel_d;
    g_start = p.g_offset + group * p.filters * pixels;
    g_image = p.groups * p.filters * pixels;
    x_start = p.x_offset + (group * p.channels + channel) * volume;
    x_image = p.groups * p.channels * volume;
    UNROLL(f, FILTERS) filter_at[f] = min(first + f, p.filters - 1) * pixels / (G_VECTORS != 0 ? 4 : 1);
    UNROLL(i, COUNT) sum[i] = 0.0;

    const uint lines = p.images * p.out_depth * p.out_height;
    const uint invocations = gl_NumWorkGroups.x * SIZE;
    const uint whole = p.out_width / 4;
    const uint per_row = G_VECTORS != 0 || APART != 0 ? whole : (p.out_width + 3) / 4;
    if (per_row > 0) {
        const Quad step = quad_of(invocations, per_row);
        Quad quad = quad_of(gl_GlobalInvocationID.x, per_row);
        for (uint at = gl_GlobalInvocationID.x; at < lines * per_row; at += invocations) {
            add(quad, quad.at * 4, G_VECTORS != 0 || APART != 0 ? 4 : min(4, p.out_width - quad.at * 4));
            quad = behind(quad, step, per_row);
        }
    }
    if (G_VECTORS == 0 && APART != 0 && p.out_width % 4 != 0) {
        for (uint at = gl_GlobalInvocationID.x; at < lines; at += invocations) {
            add(quad_of(at, 1), whole * 4, p.out_width % 4);
        }
    }
    exchange(0);
    exchange(AT_ONCE);
    exchange(2 * AT_ONCE);
    exchange(3 * AT_ONCE);
    exchange(4 * AT_ONCE);
}
