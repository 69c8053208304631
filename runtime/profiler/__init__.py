"""What ran when: recorded while a profile is active, shown as a table or as a trace."""
