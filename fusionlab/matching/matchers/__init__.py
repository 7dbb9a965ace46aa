"""Ways of matching; each is a function with options of its own, in a file of its own, found by the options' class."""
