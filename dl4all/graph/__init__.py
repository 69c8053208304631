"""The graph compiler: traces a function, makes its graph smaller, plans its memory, and replays it."""

from dl4all.graph.ir.parser import parse_graph
from dl4all.graph.ir.text import print_graph
from dl4all.graph.ir.verifier import verify
from dl4all.graph.run.picture import show

__all__ = ["parse_graph", "print_graph", "show", "verify"]
