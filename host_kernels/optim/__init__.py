"""Steps of optimizers, and the norm of all gradients."""
