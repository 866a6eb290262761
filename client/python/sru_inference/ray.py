"""Ray Data: a Dataset with the answers as columns beside its own.

    from sru_inference.ray import infer

    labelled = infer(ray.data.read_parquet("questions"), "text", outputs=["label"], address="sru-server:50051")

model_repository= in place of address= starts a server on each node, with flags= if given, which all actors of the node share and
which ends with the last of them. Further options are those of Columns (model=, parameters=, token=, ...).
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Tuple, Union

import pyarrow as pa
import ray.data

from ._engine import make_columns


class Infer:
    """For Dataset.map_batches(Infer, fn_constructor_kwargs={"column": "text", "address": ...}, batch_format="pyarrow", ...)"""

    def __init__(self, column: str, **options: Any) -> None:
        self._column, self._columns = column, make_columns(**options)

    def __call__(self, batch: pa.Table) -> pa.Table:
        for name, values in self._columns(batch[self._column]).items():
            batch = batch.append_column(name, values)
        return batch


def infer(dataset: ray.data.Dataset, column: str, *, outputs: Sequence[str] = ("label",),
          concurrency: Union[int, Tuple[int, int]] = 2, batch_size: int = 4096, num_cpus: float = 0.5,
          ray_remote_args: Optional[Dict[str, Any]] = None, **options: Any) -> ray.data.Dataset:  # fmt: skip
    """`dataset` with a column for each of `outputs`, the names of docs/open_inference.md's tensors.

    concurrency: actors, or the fewest and the most of them, as in ray.data.llm. num_cpus: of each, less than 1, since an actor
    mostly waits for a server. ray_remote_args: further arguments of map_batches."""
    options["outputs"] = tuple(outputs)
    make_columns(**options)  # what is wrong with them is said here, not by an actor
    fewest, most = concurrency if isinstance(concurrency, tuple) else (concurrency, concurrency)
    return dataset.map_batches(
        Infer, fn_constructor_args=(column,), fn_constructor_kwargs=options, batch_format="pyarrow", batch_size=batch_size,
        zero_copy_batch=True, compute=ray.data.ActorPoolStrategy(min_size=fewest, max_size=most), num_cpus=num_cpus,
        **(ray_remote_args or {}),
    )  # fmt: skip
