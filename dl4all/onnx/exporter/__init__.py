"""The export of modules: a call is recorded, written as nodes, and made open in its sizes."""
