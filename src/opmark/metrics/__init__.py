"""Cost x measurement -> values with units, computed when read: a wrong formula is repaired without measuring again."""
