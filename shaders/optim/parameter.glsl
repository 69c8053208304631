// What every kernel of an optimizer works on: element i of a parameter p, its gradient g, and the
// optimizer's state s, which holds STATES values for each element, one after another for all elements.
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer Gradient { float g_data[]; };
#if STATES > 0
layout(binding = 1) buffer State { float s[]; };
layout(binding = 2) buffer Parameter { float p[]; };
#else
layout(binding = 1) buffer Parameter { float p[]; };
#endif
