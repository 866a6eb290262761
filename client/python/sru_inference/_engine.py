"""What the adapters of Spark, Ray and Beam share."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Optional, Sequence, Tuple

from .columns import Columns
from .local_server import local_server


@dataclasses.dataclass(frozen=True)
class LocalAddress:
    """The address of this node's own server, whichever node calls it."""

    model_repository: str
    flags: Tuple[str, ...]

    def __call__(self) -> str:
        return local_server(self.model_repository, *self.flags).address


def make_columns(*, address: Any = None, model_repository: Optional[str] = None,
                 flags: Sequence[str] = (), **options: Any) -> Columns:  # fmt: skip
    """Not connected yet, so that it can be sent to a worker. options: of Columns."""
    if (address is None) == (model_repository is None):
        expected = "address= (of servers that run) or model_repository= (a server on each node)"
        raise ValueError(f"expected {expected}, and not both")
    if model_repository is not None:  # workers may run in other folders
        address = LocalAddress(os.path.abspath(model_repository), tuple(flags))
    return Columns(address, **options)
