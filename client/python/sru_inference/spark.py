"""Spark: a DataFrame with the answers as columns beside its own.

    from sru_inference.spark import infer

    labelled = infer(df, "text", outputs={"label": "string", "probabilities": "array<float>"}, address="sru-server:50051")

    classify = predict_batch_udf(make_predict_fn("label", address="sru-server:50051"), return_type=StringType(), batch_size=4096)

model_repository= in place of address= starts a server on each node, with flags= if given, which all tasks of the node share and
which ends with the last of Spark's workers there. Further options are those of Columns (model=, parameters=, token=, ...).
"""

from __future__ import annotations

import functools
import pickle
from typing import Any, Callable, Dict, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, functions

from ._engine import make_columns
from .columns import Columns


@functools.lru_cache(maxsize=8)
def _kept(pickled: bytes) -> Columns:
    """Of a worker process, which Spark keeps for many tasks, and which so keeps its connections."""
    columns: Columns = pickle.loads(pickled)
    return columns


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type that Spark has for it: lists of one size are lists."""
    is_list = pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)
    return pa.list_(_plain(kind.value_type)) if is_list else kind


def infer(frame: DataFrame, column: str, *, outputs: Dict[str, str], **options: Any) -> DataFrame:
    """`frame` with a column for each of `outputs`: the types of Spark by the names of docs/open_inference.md's tensors."""
    if column not in frame.columns or set(outputs) & set(frame.columns):
        raise ValueError(f"expected a frame with a column {column} and without {', '.join(outputs)}, found {', '.join(frame.columns)}")
    pickled = pickle.dumps(make_columns(outputs=tuple(outputs), **options))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            answers = _kept(pickled)(batch.column(column))
            arrays = batch.columns + [answers[name].cast(_plain(answers[name].type)) for name in outputs]
            yield pa.RecordBatch.from_arrays(arrays, names=[*batch.schema.names, *outputs])

    added = [functions.lit(None).cast(kind).alias(name) for name, kind in outputs.items()]
    return frame.mapInArrow(run, frame.select("*", *added).schema)


def make_predict_fn(output: str = "label", **options: Any) -> Callable[[], Callable[[Any], Any]]:
    """For pyspark.ml.functions.predict_batch_udf: answers a column of texts with numbers, strings, or arrays of one size."""
    columns = make_columns(outputs=(output,), **options)
    return lambda: lambda texts: columns(texts)[output]
