// The inverse of the normal distribution's cumulative distribution function, after Wichura, Algorithm AS241: The
// Percentage Points of the Normal Distribution (Applied Statistics 37, 1988).
#ifndef NORMAL_QUANTILE_GLSL
#define NORMAL_QUANTILE_GLSL
#include "logarithm.glsl"
#include "special.glsl"

float ndtrif(float p) {
    if (is_nan(p) || p < 0.0 || p > 1.0) return not_a_number();
    if (p == 0.0 || p == 1.0) return p == 0.0 ? -infinity() : infinity();
    const float q = p - 0.5;
    if (abs(q) <= 0.425) {
        const float r = 0.180625 - q * q;
        float above = 2.50908092873e3;
        above = above * r + 3.34305755836e4;
        above = above * r + 6.72657709270e4;
        above = above * r + 4.59219539315e4;
        above = above * r + 1.37316937655e4;
        above = above * r + 1.97159095031e3;
        above = above * r + 1.33141667892e2;
        above = above * r + 3.38713287280;
        float below = 5.22649527885e3;
        below = below * r + 2.87290857357e4;
        below = below * r + 3.93078958001e4;
        below = below * r + 2.12137943016e4;
        below = below * r + 5.39419602142e3;
        below = below * r + 6.87187007492e2;
        below = below * r + 4.23133307016e1;
        below = below * r + 1.0;
        return q * above / below;
    }
    float r = sqrt(-logf(q <= 0.0 ? p : 1.0 - p));
    float above, below;
    if (r <= 5.0) {
        r -= 1.6;
        above = 7.74545014278e-4;
        above = above * r + 2.27238449893e-2;
        above = above * r + 2.41780725177e-1;
        above = above * r + 1.27045825245;
        above = above * r + 3.64784832476;
        above = above * r + 5.76949722146;
        above = above * r + 4.63033784616;
        above = above * r + 1.42343711075;
        below = 1.05075007164e-9;
        below = below * r + 5.47593808500e-4;
        below = below * r + 1.51986665636e-2;
        below = below * r + 1.48103976427e-1;
        below = below * r + 6.89767334985e-1;
        below = below * r + 1.67638483018;
        below = below * r + 2.05319162664;
        below = below * r + 1.0;
    } else {
        r -= 5.0;
        above = 2.01033439929e-7;
        above = above * r + 2.71155556874e-5;
        above = above * r + 1.24266094739e-3;
        above = above * r + 2.65321895266e-2;
        above = above * r + 2.96560571829e-1;
        above = above * r + 1.78482653992;
        above = above * r + 5.46378491116;
        above = above * r + 6.65790464350;
        below = 2.04426310339e-15;
        below = below * r + 1.42151175832e-7;
        below = below * r + 1.84631831751e-5;
        below = below * r + 7.86869131146e-4;
        below = below * r + 1.48753612909e-2;
        below = below * r + 1.36929880923e-1;
        below = below * r + 5.99832206556e-1;
        below = below * r + 1.0;
    }
    return q < 0.0 ? -above / below : above / below;
}
#endif
