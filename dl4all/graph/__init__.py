"""The graph compiler: traces a function, makes its graph smaller, plans its memory, and replays it."""
