"""Groups of processes: who they are, and how arrays of the host get from one to another."""
