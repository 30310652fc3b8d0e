"""MXNet: functions of mxnet.nd."""
