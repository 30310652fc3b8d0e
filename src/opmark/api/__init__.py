"""The commands of opmark as functions: one module per command, with the same name and the same defaults.

Import from the modules: names of this package would be shadowed by its modules (`run` is a module and a function).
"""
