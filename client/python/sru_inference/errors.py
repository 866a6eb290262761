"""What goes wrong with a call: one class for each gRPC status code, all of them InferenceErrors.

Arguments that cannot be sent at all (a text that is not Unicode, an array of the wrong shape) are ValueError or
TypeError; they name the argument, and nothing was sent.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Optional, Tuple, Type

import grpc

from . import details_pb2

DETAILS_KEY = "grpc-status-details-bin"
REQUEST_ID_KEY = "x-request-id"


class InferenceError(Exception):
    """A call that failed.

    code: the gRPC status code.
    message: the server's words, which name the field, what was expected and what was found.
    retry_after: seconds after which the server asks to be called again; None if it does not say.
    request_id: the id of the call in the server's log; "" if the call has none.
    """

    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN

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

    code = grpc.StatusCode.INVALID_ARGUMENT


class NotFoundError(InferenceError):
    """There is no such model or version."""

    code = grpc.StatusCode.NOT_FOUND


class FailedPreconditionError(InferenceError):
    """The model cannot do what is asked; a call for another task names both tasks."""

    code = grpc.StatusCode.FAILED_PRECONDITION


class ResourceExhaustedError(InferenceError):
    """The server has too much work: call again after `retry_after` seconds, if it says so. Without it, the call
    alone is too large."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class MessageTooLargeError(ResourceExhaustedError):
    """The request or the answer has more bytes than one side accepts. Calling again does not help; a smaller call,
    the client's `max_message_bytes` or the server's --max_message_bytes does."""


class UnauthenticatedError(InferenceError):
    """The server requires a token, or a different one."""

    code = grpc.StatusCode.UNAUTHENTICATED


class PermissionDeniedError(InferenceError):
    """A proxy in front of the server refuses the call."""

    code = grpc.StatusCode.PERMISSION_DENIED


class UnavailableError(InferenceError):
    """There is no connection, the TLS handshake fails, or no server serves, after all attempts."""

    code = grpc.StatusCode.UNAVAILABLE


class DeadlineExceededError(InferenceError):
    """The call's timeout passed, here or on the server."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED


class CancelledError(InferenceError):
    """The call was cancelled."""

    code = grpc.StatusCode.CANCELLED


class AbortedError(InferenceError):
    """A model's files changed while they were loaded; call again."""

    code = grpc.StatusCode.ABORTED


class UnimplementedError(InferenceError):
    """The server does not have this method: it is older than this package, or the port is another one (admin)."""

    code = grpc.StatusCode.UNIMPLEMENTED


class InternalError(InferenceError):
    """A mistake in the server."""

    code = grpc.StatusCode.INTERNAL


_CLASSES: Dict[grpc.StatusCode, Type[InferenceError]] = {
    kind.code: kind
    for kind in (
        InvalidArgumentError,
        NotFoundError,
        FailedPreconditionError,
        ResourceExhaustedError,
        UnauthenticatedError,
        PermissionDeniedError,
        UnavailableError,
        DeadlineExceededError,
        CancelledError,
        AbortedError,
        UnimplementedError,
        InternalError,
    )
}


def request_id(metadata: Optional[Iterable[Tuple[str, Any]]]) -> str:
    """The request id in what a server sent back."""
    for key, value in metadata or ():
        if key == REQUEST_ID_KEY:
            return str(value)
    return ""


def _retry_after(metadata: Optional[Iterable[Tuple[str, Any]]]) -> Optional[float]:
    for key, value in metadata or ():
        if key != DETAILS_KEY:
            continue
        status = details_pb2.Status()
        try:
            status.ParseFromString(value)
            for detail in status.details:
                if detail.type_url.endswith("/google.rpc.RetryInfo"):
                    info = details_pb2.RetryInfo()
                    info.ParseFromString(detail.value)
                    return info.retry_delay.seconds + info.retry_delay.nanos * 1e-9
        except Exception:  # google.protobuf.message.DecodeError; what a proxy adds must not hide the error itself
            return None
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
