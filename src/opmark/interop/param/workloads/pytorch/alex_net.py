"""PARAM's workloads.pytorch.alex_net: the network as an operator."""

from opmark.interop.param.lib.operator import register_operator
from opmark.interop.param.lib.pytorch.operator_impl import TorchOperator

register_operator("pytorch.model.alex_net", TorchOperator("pytorch.model.alex_net"))
