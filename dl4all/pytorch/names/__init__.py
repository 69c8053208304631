"""Modules of PyTorch's at the top level: ``dl4all.cuda`` is ``dl4all.pytorch.names.cuda``."""
