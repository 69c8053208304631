// The tiling of flash.comp and flash_backward.comp. A workgroup takes ROWS rows of one side, queries or keys, with
// LANES invocations for each, and goes through the rows of the other side in tiles of TILE rows: of the scores, only
// ROWS * TILE are stored at a time. Invocation `lane` of a row computes the columns lane, lane + LANES, ..., DEPTH of
// them at a time.
#include "logsumexp.glsl"
const uint ROWS = 8;
const uint LANES = 16;
const uint TILE = 32;
const uint WIDTH = LANES * DEPTH;
layout(local_size_x = 128) in;
shared float tile[ROWS * TILE];

float minus_infinity() {
    return -infinity();
}
