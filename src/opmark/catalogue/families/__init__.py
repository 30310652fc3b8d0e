"""Operators named by the frameworks themselves: any of their callables, and every entry of their databases."""
