"""Records in, records out. Append-only: nothing that was written is ever changed or removed."""
