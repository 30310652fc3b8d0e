"""Comparison of two sides: what they are, where their code comes from, and how they are measured in turns."""
