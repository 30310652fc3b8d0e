"""The zoo: every model by name, without importing a framework."""
