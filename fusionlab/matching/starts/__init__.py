"""Where matching by weights starts from; each start is a function in a file of its own, found by name."""
