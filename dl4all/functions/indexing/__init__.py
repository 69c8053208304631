"""Reading and writing by indices, composed of ops."""
