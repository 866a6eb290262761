"""What the two clients share."""

from __future__ import annotations

import sys
import time
import types
from typing import Any, Callable, Dict, Optional, Sequence, Tuple, Type, TypeVar, Union

from . import _requests, results
from ._channels import Channels
from ._connection import Address, Connection
from ._resume import Call, Resumption
from ._spans import CallSpan, Trace
from .errors import DeadlineExceededError, InferenceError
from .v1 import inference_pb2 as pb

Result = TypeVar("Result")
Self = TypeVar("Self")


class Closable:
    """What the end of `with` closes."""

    close: Callable[..., None]

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ClientBase:
    """The options of Client and aio.Client."""

    _call: Any
    _grpc: Any  # the module that opens channels
    _text_stream: Any  # what generate() returns

    def __init__(self, address: Address = "localhost:50051", *, timeout: float = 10.0,
            stream_timeout: float = 300.0, max_attempts: int = 4, initial_backoff: float = 0.1,
            max_backoff: float = 2.0, max_message_bytes: int = 64 << 20, only_serving: bool = True,
            tls: bool = False, tls_ca: Optional[str] = None, tls_cert: Optional[str] = None,
            tls_key: Optional[str] = None, tls_server_name: str = "", token: str = "",
            token_file: Optional[str] = None, token_without_tls: bool = False,
            channel_options: Sequence[Tuple[str, Any]] = ()) -> None:  # fmt: skip
        arguments = {name: value for name, value in locals().items() if name != "self"}
        arguments["channel_options"] = tuple(channel_options)
        self._connection = Connection(types.SimpleNamespace(**arguments))
        self._channels = Channels(self._connection, self._grpc)

    # A copy, perhaps in another process, opens channels of its own.
    def __getstate__(self) -> Dict[str, Any]:
        return dict(vars(self._connection.options))

    def __setstate__(self, options: Dict[str, Any]) -> None:
        ClientBase.__init__(self, **options)

    def _send(
        self, kind: Type[Any], arguments: Dict[str, Any], read: Callable[[Any, str], Result]
    ) -> Result:
        """Calls the method whose request is a `kind` with a method's arguments."""
        request = _requests.of_arguments(kind, arguments)
        stub = self._channels.get().inference
        return self._called(stub, request, read, arguments["timeout"], arguments["request_id"])

    def _ask(self, request: Any, read: Callable[[Any, str], Result], timeout: Optional[float],
             request_id: str, stub: str = "inference") -> Result:  # fmt: skip
        """Calls a method of any server, whether it serves or not."""
        stubs = self._channels.get(any_server=True)
        return self._called(getattr(stubs, stub), request, read, timeout, request_id)

    def _called(
        self, stub: Any, request: Any, read: Callable[[Any, str], Result], *options: Any
    ) -> Result:
        method = getattr(stub, type(request).__name__[: -len("Request")])
        result: Result = self._call(method, request, read, *options)  # of aio.Client: to be awaited
        return result

    def _generate(self, request: pb.GenerateRequest, timeout: Optional[float], request_id: str) -> Any:
        seconds = self._connection.timeout(timeout, stream=True)
        self._connection.metadata(request_id)  # is it valid?
        deadline = None if seconds is None else time.monotonic() + seconds
        trace = Trace()

        def start(part: pb.GenerateRequest) -> Any:
            span = CallSpan(part, trace)
            call = self._channels.get().inference.Generate(
                part,
                timeout=None if deadline is None else max(0.001, deadline - time.monotonic()),
                metadata=self._connection.metadata(request_id, span),
            )
            span.end_with(call)
            return call

        return self._text_stream(start, Resumption(request, self._connection.options.max_attempts), deadline)


class TextStreamBase:
    """What the text streams of the two clients share."""

    def __init__(
        self, start: Callable[[pb.GenerateRequest], Any], resumption: Resumption, deadline: Optional[float]
    ) -> None:
        self._start = start
        self._resumption = resumption
        self._deadline = deadline  # of time.monotonic(); None = no end
        self._next: Optional[Call] = resumption.first()
        self._call: Any = None
        self._cancelled = self._new_event()

    _new_event: Any  # makes what tells others that the caller has cancelled

    def _take(self, message: pb.GenerateResponse) -> Optional[results.GeneratedText]:
        """What the caller gets of a message; None if it is not for the caller."""
        try:
            wanted = self._resumption.take(message)
        except InferenceError:
            self.cancel()
            raise
        if self._resumption.complete:
            self._call.cancel()
            self._ended(None)
        return results.generated_text(message) if wanted else None

    def _ended(self, error: Optional[InferenceError]) -> None:
        self._call = self._next = None
        following = self._resumption.ended(error)
        if following is not None and self._deadline is not None:
            left = max(0.0, self._deadline - time.monotonic())
            following = following._replace(wait=min(following.wait, left))
        self._next = following

    def cancel(self) -> None:
        """Ends the call. The next item is a CancelledError, unless the texts are complete."""
        self._cancelled.set()
        call = self._call
        if call is not None:
            call.cancel()


def not_ready(target: str, timeout: float, why: Union[str, InferenceError]) -> DeadlineExceededError:
    """The error of a wait_ready() in vain; `why` is what a health check says."""
    reason = why.message if isinstance(why, InferenceError) else f"its health is {why}"
    return DeadlineExceededError(f"{target} is not ready within {timeout:g} s: {reason}")


class Progress:
    """A line on stderr, if that is a terminal and the work takes longer than two seconds."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        shows = sys.stderr is not None and sys.stderr.isatty()
        self._first = self._next = self._begin + 2 if shows else float("inf")

    def show(self, text: Callable[[float], str]) -> None:
        """text: of the seconds since the beginning."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + 0.5
            print(f"\r{text(now - self._begin)} ", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._next > self._first:
            print(file=sys.stderr)
