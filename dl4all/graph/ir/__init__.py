"""Graphs: their nodes, their text, and what must hold for each."""
