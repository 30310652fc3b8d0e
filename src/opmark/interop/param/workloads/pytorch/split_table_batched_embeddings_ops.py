"""PARAM's workloads.pytorch.split_table_batched_embeddings_ops: lookups in several tables, with or without fbgemm."""

from __future__ import annotations

from typing import Any

from opmark.interop.param.arguments import Draw
from opmark.interop.param.calls import BAGS
from opmark.interop.param.expansion import generate_lookups, iterate_lookups
from opmark.interop.param.lib.data import DataGenerator, register_data_generator
from opmark.interop.param.lib.iterator import PointIterator, register_config_iterator
from opmark.interop.param.lib.operator import register_operator
from opmark.interop.param.lib.pytorch.operator_impl import TorchOperator


class SplitTableBatchedEmbeddingBagsCodegenInputIterator(PointIterator):
    points = staticmethod(iterate_lookups)


class SplitTableBatchedEmbeddingBagsCodegenInputDataGenerator(DataGenerator):
    """Describes lookups by their sizes; a worker draws the indices, where PARAM returns tensors."""

    def get_data(self, config: dict[str, Any], device: str) -> tuple[list[Any], dict[str, Any]]:
        return generate_lookups(config, Draw(f"0|{config}"))


register_config_iterator(f"{BAGS}InputIterator", SplitTableBatchedEmbeddingBagsCodegenInputIterator)
register_data_generator(f"{BAGS}InputDataGenerator", SplitTableBatchedEmbeddingBagsCodegenInputDataGenerator)
register_operator(BAGS, TorchOperator(BAGS))
