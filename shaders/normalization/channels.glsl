// What belongs to the channels, p.channels of them, that the elements of a row have: those of a row's elements lie side
// by side if ALONG is set. Otherwise p.each elements have the same one after another. With ALONG, channels and offsets
// are counted in VALUEs (rows.glsl).
#include "divide.glsl"

layout(constant_id = 0) const uint ALONG = 0;

// Of the row's first element. A row holds all elements of its channels.
uint channel_of(uint start) {
    return (ALONG != 0 ? start : start * WIDTH / p.each) % p.channels;
}

#define OF_CHANNEL(data, offset, channel, i) \
    (ALONG != 0 ? data[offset + channel + i] : VALUE(ONE_OF(data, offset + channel + divided(i * WIDTH, p.each).x)))
