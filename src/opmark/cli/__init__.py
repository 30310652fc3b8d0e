"""One thin file a command: parse, call `opmark.api`, print."""
