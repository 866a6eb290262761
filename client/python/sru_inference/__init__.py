"""A client for the SRU inference server.

    import sru_inference

    with sru_inference.Client("localhost:50051") as client:
        print(client.classify(["Who wrote Hamlet ?"])[0].label)

Client is for threads, aio.Client for asyncio; they have the same methods. Columns is for corpora. errors.py has what
they raise, results.py what they return, v1 the generated messages of the contract.
"""

from . import aio, errors, results, v1
from ._connection import read_package_file
from ._requests import Chunk, PassageTags, Query, Sampling
from ._spans import traceparent
from .client import Client, TextStream
from .columns import Columns
from .errors import *
from .local_server import LocalServer, local_server

__version__ = read_package_file("VERSION").strip()

__all__ = ["Chunk", "Client", "Columns", "LocalServer", "PassageTags", "Query", "Sampling", "TextStream", "local_server", "traceparent"]
__all__ += ["aio", "errors", "results", "v1", *errors.__all__]
