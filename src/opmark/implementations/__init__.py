"""Tables of how other frameworks compute the operators of the catalogue, one package per framework.

Every module of these packages that has `IMPLEMENTATIONS` is found (entry points `opmark.implementations`): a mapping of
an operator's name to an `Implementation`, or to a tuple of several. An implementation builds what the framework's
backend wants: a `Function` for one that compiles or differentiates functions, a `Graph` for ONNX, a launch for an eager
one. A framework is imported only inside the function that builds.
"""
