"""The starts of matching by weights; each is a function in a file of its own, found by name."""
