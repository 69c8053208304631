#version 450
#extension GL_GOOGLE_include_directive : require
// Copies g to p.
#define CONSTANTS
#include "optim/parameter.glsl"

void change(inout Element e) {
    e.p = e.g;
}
