"""What the command line does, as functions: one module per command, of the same name as in `cli`.

Nothing is imported here: a function `run` in this package would hide the module `run`.
"""
