"""PARAM's lib.pytorch: running configs with torch. The work is done in opmark's workers."""
