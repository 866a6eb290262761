"""The channels of a client, opened when they are first needed. For both kinds of client."""

from __future__ import annotations

import os
import threading
import types
from typing import Any, Dict

from . import details_pb2, open_inference_pb2
from ._connection import Connection
from .v1 import admin_pb2_grpc, inference_pb2_grpc
from .v1._service import service

HEALTH_METHOD = "/grpc.health.v1.Health/Check"
OPEN_INFERENCE, *_ = service(open_inference_pb2, "GRPCInferenceService", "inference")


class Stubs:
    """A channel and what is called through it."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.inference: Any = inference_pb2_grpc.InferenceServiceStub(channel)
        self.admin: Any = admin_pb2_grpc.AdminServiceStub(channel)
        self.open_inference: Any = OPEN_INFERENCE(channel)
        request, response = details_pb2.HealthCheckRequest, details_pb2.HealthCheckResponse
        check = channel.unary_unary(HEALTH_METHOD, request.SerializeToString, response.FromString)
        self.health = types.SimpleNamespace(HealthCheck=check)


class Channels:
    """One channel to servers that serve, and one to any server, to ask it how it is. Thread-safe.

    Channels do not survive a fork: gRPC's threads and connections stay with the parent, and a child that used them
    would wait for ever. So a client that has opened one is refused in the child.
    """

    def __init__(self, connection: Connection, grpc: Any) -> None:
        """grpc: the module grpc or grpc.aio, which opens the channels."""
        self._connection = connection
        self._grpc = grpc
        self._lock = threading.Lock()
        self._open: Dict[bool, Stubs] = {}
        self._process = 0  # that has opened channels
        self.closed = False

    def get(self, any_server: bool = False) -> Stubs:
        if self._process not in (0, os.getpid()):
            raise RuntimeError(
                "the client was used before os.fork(): gRPC cannot go on in the child, which needs a client of its own"
            )
        with self._lock:
            if self.closed:
                raise RuntimeError("the client is closed")
            self._process = os.getpid()
            stubs = self._open.get(any_server)
            if stubs is None:
                connection = self._connection
                options = connection.channel_options(connection.options.only_serving and not any_server)
                if connection.credentials is None:
                    channel = self._grpc.insecure_channel(connection.target, options)
                else:
                    channel = self._grpc.secure_channel(connection.target, connection.credentials, options)
                stubs = self._open[any_server] = Stubs(channel)
            return stubs

    def close(self) -> Dict[bool, Stubs]:
        """What is to be closed. Calls from now on are refused."""
        with self._lock:
            self.closed = True
            stubs, self._open = self._open, {}
            return stubs if self._process == os.getpid() else {}  # to close the parent's would disturb it
