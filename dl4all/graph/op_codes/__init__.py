"""Op codes: a graph as a stream of instructions for one interpreter kernel."""
