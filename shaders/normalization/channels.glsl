// Values of the channels, of which there are p.channels, for the elements of a row. With ADJACENT each element has its
// own channel, and channels and offsets are in units of VALUE (rows.glsl). Otherwise p.channel_elements consecutive
// elements share a channel.
#include "divide.glsl"

layout(constant_id = 0) const uint ADJACENT = 0;

// The channel of the row's first element. A row holds all elements of its channels.
uint channel_of(uint start) {
    return (ADJACENT != 0 ? start : start * WIDTH / p.channel_elements) % p.channels;
}

#define OF_CHANNEL(data, offset, channel, i) \
    (ADJACENT != 0 ? data[offset + channel + i] \
                   : VALUE(ONE_OF(data, offset + channel + divided(i * WIDTH, p.channel_elements).x)))
