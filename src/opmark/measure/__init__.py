"""A launch and a clock in, samples out. Knows no operator and no framework."""
