"""Operators that the frameworks themselves name: any callable of theirs, and every entry of their databases."""
