"""Arguments of ops that are no tensors of one device and dtype, and NumPy's names of parameters."""
