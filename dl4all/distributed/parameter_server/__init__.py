"""Asynchronous training: servers that keep parameters, and clients that ask for them and send gradients."""
