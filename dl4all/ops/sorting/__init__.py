"""Order on devices: keys, sorting, selection along rows, and the positions of what is not 0."""
