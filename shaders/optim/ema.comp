#version 450
#extension GL_GOOGLE_include_directive : require
// A moving average p of g: it goes a part of the way.
#define CONSTANTS float weight;
#include "parameter.glsl"

void change(inout Element e) {
    e.p += c.weight * (e.g - e.p);
}
