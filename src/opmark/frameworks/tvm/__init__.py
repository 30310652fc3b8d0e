"""Schedules with knobs for TVM, its own tuner, and code for other machines.

TVM itself is a backend for ONNX graphs (`frameworks/onnx/tvm.py`): plain `tvm-cpu` compiles a graph with TVM's default
schedules. Here operators are written as tensor expressions, whose loops are arranged by a configuration.

knobs.py         the knobs of each schedule, for CPUs and for GPUs; nothing here imports TVM
expressions.py   operators as tensor expressions
schedules/       the loops of an expression, arranged by a configuration: cpu.py, cuda.py
operators.py     the operators with a schedule: expression, spaces, schedules
program.py       an operator and a configuration: what an implementation builds
targets.py       code for any target of TVM
board.py         the backend of a board, through TVM's RPC
metaschedule.py  TVM's own tuner, in a process that can be killed, and its database
"""
