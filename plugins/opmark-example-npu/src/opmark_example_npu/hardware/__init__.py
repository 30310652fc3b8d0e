"""What the maker publishes of the chip: every `*.yaml` here is read, by the entry-point group `opmark.hardware`."""
