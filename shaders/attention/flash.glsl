// What the shaders of attention share: a workgroup takes ROWS rows of one side, queries or keys, with LANES invocations
// for each, and goes through the other side in tiles of TILE, so that no more of the scores than that is ever kept.
// Invocation `lane` of a row keeps the results of columns lane, lane + LANES, ...: DEPTH of them at a time.
#include "math/exponential.glsl"
#include "math/logarithm.glsl"
const uint ROWS = 8;
const uint LANES = 16;
const uint TILE = 32;
const uint WIDTH = LANES * DEPTH;
layout(local_size_x = 128) in;
shared float tile[ROWS * TILE];

float minus_infinity() {
    return -infinity();
}
