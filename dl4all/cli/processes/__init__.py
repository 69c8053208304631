"""Commands that start several processes."""
