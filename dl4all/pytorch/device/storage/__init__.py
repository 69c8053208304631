"""Storages of PyTorch's tensors on ``dlall``: their memory, layouts and exchange with dl4all's tensors."""
