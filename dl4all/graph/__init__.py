"""The graph compiler: traces a function, makes its graph smaller, plans its memory, and replays it."""

from dl4all.graph.parser import parse_graph
from dl4all.graph.picture import show
from dl4all.graph.text import print_graph
from dl4all.graph.verifier import verify

__all__ = ["parse_graph", "print_graph", "show", "verify"]
