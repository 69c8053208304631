"""Reading and writing by indices, concatenation, padding, changes in place."""
