"""What the command line does, as functions: one module per command, of the same name."""
