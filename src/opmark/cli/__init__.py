"""The command line, one module per command: parse options, call `opmark.api`, print."""
