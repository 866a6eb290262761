"""What goes wrong with a call: one class for each gRPC status code, all of them InferenceErrors.

Arguments that cannot be sent at all (a text that is not Unicode, an array of the wrong shape) are ValueError or
TypeError; they name the argument, and nothing was sent.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, Optional, Sequence, Tuple, Type

import grpc

from . import details_pb2

__all__ = [
    "AbortedError", "CancelledError", "DeadlineExceededError", "FailedPreconditionError",
    "InferenceError", "InternalError", "InvalidArgumentError", "MessageTooLargeError", "NotFoundError",
    "PermissionDeniedError", "ResourceExhaustedError", "UnauthenticatedError", "UnavailableError",
    "UnimplementedError",
]  # fmt: skip

DETAILS_KEY = "grpc-status-details-bin"
REQUEST_ID_KEY = "x-request-id"
_CLASSES: Dict[grpc.StatusCode, Type[InferenceError]] = {}


class InferenceError(Exception):
    """A call that failed.

    code: the gRPC status code.
    message: the server's words, which name the field, what was expected and what was found.
    retry_after: seconds after which the server asks to be called again; None if it does not say.
    request_id: the id of the call in the server's log; "" if the call has none.
    """

    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN

    def __init_subclass__(cls) -> None:
        """The name says the code: NotFoundError is NOT_FOUND."""
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__[: -len("Error")]).upper()
        if name in grpc.StatusCode.__members__:
            cls.code = grpc.StatusCode[name]
            _CLASSES.setdefault(cls.code, cls)

    def __init__(
        self,
        message: str,
        code: Optional[grpc.StatusCode] = None,
        retry_after: Optional[float] = None,
        request_id: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after = retry_after
        self.request_id = request_id
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"


class InvalidArgumentError(InferenceError):
    """A field is wrong; the message names it."""


class NotFoundError(InferenceError):
    """There is no such model or version."""


class FailedPreconditionError(InferenceError):
    """The model cannot do what is asked; a call for another task names both tasks."""


class ResourceExhaustedError(InferenceError):
    """The server has too much work: call again after `retry_after` seconds, if it says so. Without it, the call
    alone is too large."""


class MessageTooLargeError(ResourceExhaustedError):
    """The request or the answer has more bytes than one side accepts. Calling again does not help; a smaller call,
    the client's `max_message_bytes` or the server's --max_message_bytes does."""


class UnauthenticatedError(InferenceError):
    """The server requires a token, or a different one."""


class PermissionDeniedError(InferenceError):
    """A proxy in front of the server refuses the call."""


class UnavailableError(InferenceError):
    """There is no connection, the TLS handshake fails, or no server serves, after all attempts."""


class DeadlineExceededError(InferenceError):
    """The call's timeout passed, here or on the server."""


class CancelledError(InferenceError):
    """The call was cancelled."""


class AbortedError(InferenceError):
    """A model's files changed while they were loaded; call again."""


class UnimplementedError(InferenceError):
    """The server does not have this method: it is older than this package, or the port is another one (admin)."""


class InternalError(InferenceError):
    """A mistake in the server."""


def request_id(metadata: Optional[Iterable[Tuple[str, Any]]]) -> str:
    """The request id in what a server sent back."""
    return str(dict([*(metadata or ())]).get(REQUEST_ID_KEY, ""))


def _retry_after(metadata: Iterable[Tuple[str, Any]]) -> Optional[float]:
    try:
        for detail in details_pb2.Status.FromString(dict([*metadata]).get(DETAILS_KEY, b"")).details:
            if detail.type_url.endswith("/google.rpc.RetryInfo"):
                delay = details_pb2.RetryInfo.FromString(detail.value).retry_delay
                return float(delay.seconds + delay.nanos * 1e-9)
    except Exception:  # google.protobuf's DecodeError; what a proxy adds must not hide the error itself
        pass
    return None


def from_rpc(error: Any) -> InferenceError:
    """The InferenceError for a grpc.RpcError, which is also its __cause__."""
    code = error.code() or grpc.StatusCode.UNKNOWN
    message = error.details() or ""
    trailing = error.trailing_metadata() or ()
    kind = _CLASSES.get(code, InferenceError)
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in message:
        kind = MessageTooLargeError
        message += "; the limits are max_message_bytes of this client and --max_message_bytes of the server"
    result = kind(message, code, _retry_after(trailing), request_id(trailing))
    result.__cause__ = error
    return result


def result_of(call: Any) -> Any:
    """The response to a call that was started as a future."""
    try:
        return call.result()
    except grpc.FutureCancelledError:
        raise CancelledError("the call was cancelled") from None
    except grpc.RpcError as error:
        raise from_rpc(error) from error


def renumbered(error: InferenceError, rows: Sequence[int]) -> InferenceError:
    """The error of a call with some of the caller's sequences: `rows` are their indices in the caller's list, one of
    which the message names now."""

    def row(found: re.Match[str]) -> str:
        index = int(found[2])
        return f"{found[1]}{rows[index] if index < len(rows) else index}"

    error.message = re.sub(r"^((?:input )?\w+\[)(\d+)", row, error.message)
    error.args = (error.message,)
    return error
