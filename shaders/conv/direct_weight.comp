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
const uint SIZE = 32;
layout(local_size_x = SIZE) in;
layout(constant_id = 0) const int FILTERS = 8;
layout(constant_id = 1) const int ROWS = 3;
layout(constant_id = 2) const int kernel_w = 3;
layout(constant_id = 3) const int stride_w = 1;
layout(constant_id = 4) const int dilation_w = 1;
layout(constant_id = 5) const uint VECTORS = 0;  // the gradient is read four elements at a time
layout(binding = 0) restrict readonly buffer G { float g[]; };
layout(binding = 0) restrict readonly buffer G4 { vec4 g4[]; };
layout(binding = 1) restrict readonly buffer X { float x[]; };
layout(binding = 2) restrict writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint kernel_d, kernel_h, stride_d, stride_h, dilation_d, dilation_h;
    int padding_d, padding_h, padding_w;
    uint depth, height, width, out_depth, out_height, out_width;
    uint images, groups, channels, filters, blocks;  // channels, filters and blocks of filters of a group
    uint g_offset, x_offset, slot;  // elements of a slot
} p;

const int SPAN = 3 * stride_w + (kernel_w - 1) * dilation_w + 1;  // elements of a row that four output pixels meet
const int COUNT = FILTERS * ROWS * kernel_w;
shared float partial[SIZE * COUNT];

void main() {
    const uint lane = gl_LocalInvocationID.x;
    const uint quads_per_row = (p.out_width + 3) / 4;
    const uint lines = p.out_height * p.out_depth;
    const uint pixels = lines * p.out_width;
    const uint plane = p.depth * p.height * p.width;
    const uint group = gl_WorkGroupID.y / p.blocks;
    const uint first = gl_WorkGroupID.y % p.blocks * FILTERS;
    const uint portions = p.kernel_h / ROWS;
    const uint b = gl_WorkGroupID.z % portions * ROWS;
    const uint a = gl_WorkGroupID.z / portions % p.kernel_d;
    const uint channel = gl_WorkGroupID.z / portions / p.kernel_d;
    uint filter_at[FILTERS];
    UNROLL(f, FILTERS) filter_at[f] = p.g_offset + (group * p.filters + min(first + f, p.filters - 1)) * pixels;

    float sum[COUNT];
    UNROLL(i, COUNT) sum[i] = 0.0;
    const uint quads = quads_per_row * lines * p.images;
    for (uint at = gl_GlobalInvocationID.x; at < quads; at += gl_NumWorkGroups.x * SIZE) {
        const uvec2 quad = divided(at, quads_per_row);  // the row among the rows of all images, and the position in it
        const uvec2 image_line = divided(quad.x, lines);
        const uvec2 line = divided(image_line.y, p.out_height);
        const uint image = image_line.x, column = quad.y * 4;
        const uint from = image * p.groups * p.filters * pixels + image_line.y * p.out_width + column;
        vec4 gradient[FILTERS];
        UNROLL(f, FILTERS) {
            if (VECTORS != 0) {
                gradient[f] = g4[(from + filter_at[f]) / 4];
            } else {
                UNROLL(e, 4) gradient[f][e] = g[from + filter_at[f] + min(e, p.out_width - 1 - column)];
            }
        }
        const uint d = line.x * p.stride_d + a * p.dilation_d - p.padding_d;  // negative ones wrap to large numbers
        const int left = int(column) * stride_w - p.padding_w;
        const uint start = p.x_offset + ((image * p.groups + group) * p.channels + channel) * plane;
        UNROLL(r, ROWS) {
            const uint h = line.y * p.stride_h + (b + r) * p.dilation_h - p.padding_h;
            // Loads from a valid address and a select: no load is behind a branch.
            float span[SPAN];
            UNROLL(i, SPAN) {
                const bool inside = d < p.depth && h < p.height && uint(left + i) < p.width;
                const float value = x[inside ? start + (d * p.height + h) * p.width + uint(left + i) : p.x_offset];
                span[i] = inside ? value : 0.0;
            }
            UNROLL(f, FILTERS) UNROLL(c, kernel_w) UNROLL(e, 4) {
                const float term = gradient[f][e] * span[c * dilation_w + e * stride_w];
                sum[(f * ROWS + r) * kernel_w + c] += VECTORS != 0 || column + e < p.out_width ? term : 0.0;
            }
        }
    }

    UNROLL(i, COUNT) partial[lane * COUNT + i] = sum[i];
    barrier();
    for (uint i = lane; i < COUNT; i += SIZE) {
        float total = 0.0;
        for (uint other = 0; other < SIZE; ++other) total += partial[other * COUNT + i];
        const uint f = first + i / (ROWS * kernel_w);
        const uint row = ((group * p.filters + f) * p.channels + channel) * p.kernel_d + a;
        const uint tap = b * kernel_w + i % (ROWS * kernel_w);
        if (f < p.filters) y[gl_WorkGroupID.x * p.slot + row * p.kernel_h * kernel_w + tap] = total;
    }
}
