"""Parameter groups, options, hooks and saved state of optimizers."""
