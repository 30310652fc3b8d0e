"""Kinds of charts, one file each: how large the picture is and what stands where."""
