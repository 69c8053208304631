#version 450
#extension GL_GOOGLE_include_directive : require
// Exponential moving average p of g.
#define CONSTANTS float weight;
#include "parameter.glsl"

void change(inout Element e) {
    e.p += c.weight * (e.g - e.p);
}
