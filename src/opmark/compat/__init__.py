"""The command lines and Python calls of other systems, thin: what they ask for is done by opmark."""
