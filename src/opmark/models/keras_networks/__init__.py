"""Networks of the zoo in Keras, on TensorFlow. Only workers import what is in here.

A layer bears the name of its module in the torch network, whose weights it gets (`keras_program`).
"""
