"""Records of what ran when a profile was active, shown as a table or as a trace."""
