"""Beam: a ModelHandler for RunInference, whose elements are Arrow arrays of texts, or Arrow tables with a column of them.

    from sru_inference.beam import ModelHandler

    tables = pipeline | beam.io.ReadFromParquetBatched("questions.parquet")
    answers = tables | RunInference(ModelHandler(column="text", outputs=["label"], address="sru-server:50051"))

An element is thousands of rows, so that Beam's own work for each of its elements does not count. model_repository= in place of address=
starts a server on each machine, with flags= if given, which all its workers share and which ends with the last of them. Further
options are those of Columns (model=, parameters=, token=, ...); servers of others that speak the Open Inference Protocol work as well.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Optional, Sequence, Union

import pyarrow as pa
from apache_beam.ml.inference import base

from ._engine import make_columns
from .columns import Columns

Element = Union[pa.Array, pa.ChunkedArray, pa.Table]


class ModelHandler(base.ModelHandler[Element, base.PredictionResult, Columns]):
    """The result of an element is a PredictionResult: `example` is the element, `inference` has an Arrow array for each of `outputs`,
    the names of docs/open_inference.md's tensors."""

    def __init__(
        self, *, column: Optional[str] = None, outputs: Sequence[str] = ("label",), **options: Any
    ) -> None:
        super().__init__(min_batch_size=1, max_batch_size=1)  # an element is a batch
        self._column = column
        self._columns = make_columns(outputs=tuple(outputs), **options)

    def load_model(self) -> Columns:
        return self._columns

    def run_inference(
        self, batch: Sequence[Element], model: Columns, inference_args: Optional[Dict[str, Any]] = None
    ) -> Iterable[base.PredictionResult]:
        for element in batch:
            texts = element if self._column is None else element[self._column]
            yield base.PredictionResult(element, model(texts))

    def get_num_bytes(self, batch: Sequence[Element]) -> int:
        return sum(element.nbytes for element in batch)  # Beam itself would pickle them all to know

    def get_metrics_namespace(self) -> str:
        return "SruRunInference"
