"""What devices have done: counters, rates, profiles, and what other processes may read of them."""
