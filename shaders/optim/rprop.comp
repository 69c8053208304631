#version 450
#extension GL_GOOGLE_include_directive : require
// Rprop. The state: the gradient before, and the size of the step.
#define CONSTANTS float direction, decrease, increase, smallest, largest;
#include "parameter.glsl"

void change(inout Element e) {
    const float g = c.direction * e.g;
    const float product = g * e.s[0];
    const float factor = product > 0.0 ? c.increase : product < 0.0 ? c.decrease : 1.0;
    const float size = clamp(e.s[1] * factor, c.smallest, c.largest);
    const float kept = product < 0.0 ? 0.0 : g;
    e.p -= kept > 0.0 ? size : kept < 0.0 ? -size : 0.0;
    e.s[0] = kept;
    e.s[1] = size;
}
