"""A call becomes a graph: what it asks of its device, and what of Python's state it depended on."""
