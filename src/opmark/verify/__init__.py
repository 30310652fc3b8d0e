"""Compare outputs and gradients with the float64 reference."""
