"""Which device gets which modules: what can be cut, what the parts cost, and the best cuts."""
