"""How long work will take, and devices on a virtual clock."""
