"""The command line: each command parses its flags, calls one function and prints the result."""
