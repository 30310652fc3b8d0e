"""PARAM's workloads.pytorch.resnet: the network as an operator."""

from opmark.interop.param.lib.operator import register_operator
from opmark.interop.param.lib.pytorch.operator_impl import TorchOperator

register_operator("pytorch.model.resnet", TorchOperator("pytorch.model.resnet"))
