"""Steps of optimizers on a device and on the host."""
