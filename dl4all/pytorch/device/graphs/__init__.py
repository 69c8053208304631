"""Graphs of ``torch.compile`` as functions of dl4all: their parts, layouts and calls."""
