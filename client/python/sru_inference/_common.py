"""What the two clients share."""

from __future__ import annotations

from typing import Any, Sequence, Tuple, Union

from . import details_pb2
from ._channels import Channels
from ._connection import Address, Connection, Options
from .errors import DeadlineExceededError, InferenceError


class ClientBase:
    """The options of Client and aio.Client."""

    _grpc: Any  # the module that opens channels

    def __init__(
        self,
        address: Address = "localhost:50051",
        *,
        timeout: float = 10.0,
        stream_timeout: float = 300.0,
        max_attempts: int = 4,
        initial_backoff: float = 0.1,
        max_backoff: float = 2.0,
        max_message_bytes: int = 64 << 20,
        only_serving: bool = True,
        tls: bool = False,
        tls_ca: Union[str, None] = None,
        tls_cert: Union[str, None] = None,
        tls_key: Union[str, None] = None,
        tls_server_name: str = "",
        token: str = "",
        token_file: Union[str, None] = None,
        token_without_tls: bool = False,
        channel_options: Sequence[Tuple[str, Any]] = (),
    ) -> None:
        self._connection = Connection(
            Options(
                address=address,
                timeout=timeout,
                stream_timeout=stream_timeout,
                max_attempts=max_attempts,
                initial_backoff=initial_backoff,
                max_backoff=max_backoff,
                max_message_bytes=max_message_bytes,
                only_serving=only_serving,
                tls=tls,
                tls_ca=tls_ca,
                tls_cert=tls_cert,
                tls_key=tls_key,
                tls_server_name=tls_server_name,
                token=token,
                token_file=token_file,
                token_without_tls=token_without_tls,
                channel_options=tuple(channel_options),
            )
        )
        self._channels = Channels(self._connection, self._grpc)


def serving_status(message: details_pb2.HealthCheckResponse) -> str:
    return details_pb2.HealthCheckResponse.ServingStatus.Name(message.status)


def not_ready(target: str, timeout: float, why: Union[str, InferenceError]) -> DeadlineExceededError:
    """The error of a wait_ready() in vain; `why` is what a health check says."""
    if isinstance(why, InferenceError):
        return DeadlineExceededError(f"{target} is not ready within {timeout:g} s: {why.message}")
    return DeadlineExceededError(f"{target} is not ready within {timeout:g} s: its health is {why}")
