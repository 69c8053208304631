"""What devices are asked for while a function runs, told to who listens."""
