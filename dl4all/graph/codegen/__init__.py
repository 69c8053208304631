"""Code generation: kernels, as GLSL, for nodes that passes have made of several."""
