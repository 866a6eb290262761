"""The client for asyncio: as Client, with `await`, `async for` and `async with`.

    async with sru_inference.aio.Client("localhost:50051") as client:
        response = await client.classify(["Who wrote Hamlet ?"])

A client belongs to the event loop that runs at its first call.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
from typing import (
    TYPE_CHECKING, Any, AsyncIterable, AsyncIterator, Callable, Coroutine, Deque, Iterable, List,
    Optional, TypeVar, Union,
)  # fmt: skip

import grpc
import grpc.aio

from . import _requests, client as blocking, results
from ._common import ClientBase, TextStreamBase, not_ready
from ._parts import Parts
from ._requests import Chunk, SequenceInput
from ._spans import CallSpan, Trace
from .errors import CancelledError, InferenceError, InternalError, from_rpc, request_id as request_id_of
from .v1 import inference_pb2 as pb

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")
Item = TypeVar("Item")
Items = Union[AsyncIterable[Item], Iterable[Item]]
Result = TypeVar("Result")
Method = TypeVar("Method", bound=Callable[..., Any])

# What grpc.aio says when it could not write because the call had ended.
LOST_STATUS = "Internal error from Core"
MOST_OPENINGS = 8

_CLOSED = "the client was closed"


def _is_cancelled() -> bool:
    """Whether somebody has cancelled the task that runs, not its call only. Python 3.10 does not say."""
    task: Any = asyncio.current_task()
    return not hasattr(task, "cancelling") or task.cancelling() > 0


class TextStream(TextStreamBase, AsyncIterator[results.GeneratedText]):
    """The texts of a generate() as they come. Iterate over it with `async for`; cancel() ends it early, and so does
    leaving an `async with` block or cancelling the task."""

    _new_event = asyncio.Event

    async def __anext__(self) -> results.GeneratedText:
        while True:
            if self._call is None:
                if self._next is None:
                    raise StopAsyncIteration
                if self._next.wait:
                    with contextlib.suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(self._cancelled.wait(), self._next.wait)
                if self._cancelled.is_set():
                    raise CancelledError("the caller has cancelled the call")
                self._call = self._start(self._next.request)
            error: Optional[InferenceError] = None
            try:
                message = await self._call.read()
            except grpc.RpcError as raised:
                error, message = from_rpc(raised), grpc.aio.EOF
            except asyncio.CancelledError:
                if not self._cancelled.is_set() and _is_cancelled():  # the task
                    self.cancel()
                    raise
                reason = "the caller has cancelled the call" if self._cancelled.is_set() else _CLOSED
                error, message = CancelledError(reason), grpc.aio.EOF
            if message is grpc.aio.EOF:
                self._ended(error)
                continue
            text = self._take(message)
            if text is not None:
                return text

    async def __aenter__(self) -> TextStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()


def _awaited(
    method: Callable[Concatenate[Any, P], Result],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, Result]]:
    """A method of the other client for this one, whose _call() is to be awaited."""

    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        pending: Any = method(self, *args, **kwargs)
        result: Result = await pending
        return result

    return _named_as(method, call)


def _streamed(method: Callable[Concatenate[Any, P], Any]) -> Callable[Concatenate[Any, P], TextStream]:
    """The same for the method that makes a stream of texts."""

    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> TextStream:
        stream: TextStream = method(self, *args, **kwargs)
        return stream

    return _named_as(method, call)


def _named_as(method: Callable[..., Any], call: Method) -> Method:
    """`call` with the name and the signature of `method`."""
    functools.update_wrapper(call, method)
    call.__module__ = __name__
    call.__doc__ = f"As {method.__qualname__}()."
    return call


class Client(ClientBase):
    """As sru_inference.Client, whose arguments and methods it has. Not thread-safe, as nothing of asyncio is."""

    _grpc = grpc.aio
    _text_stream = TextStream

    async def close(self) -> None:
        """Ends the calls that are running. Calls from now on raise RuntimeError."""
        for stubs in self._channels.close().values():
            await stubs.channel.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _call(self, method: Any, request: Any, read: Callable[[Any, str], Any],
                    timeout: Optional[float], request_id: str) -> Any:  # fmt: skip
        span = CallSpan(request, Trace())
        metadata = self._connection.metadata(request_id, span)
        parts = Parts(request, self._connection.timeout(timeout), metadata)
        try:
            with span, contextlib.closing(parts.started(method)) as started:
                for part, call in started:
                    try:
                        call = call or method(part.request, **parts.options)
                        response = await call
                    except grpc.RpcError as error:
                        parts.failed(part, error)
                    else:
                        sent = request_id_of(await call.initial_metadata()) if request_id else ""
                        parts.done(part, read(response, sent))
        except asyncio.CancelledError:
            if not self._channels.closed or _is_cancelled():
                raise
            raise CancelledError(_CLOSED) from None
        return parts.result()

    classify = _awaited(blocking.Client.classify)
    tag = _awaited(blocking.Client.tag)
    encode = _awaited(blocking.Client.encode)
    score = _awaited(blocking.Client.score)
    tokenize = _awaited(blocking.Client.tokenize)
    detokenize = _awaited(blocking.Client.detokenize)
    generate = _streamed(blocking.Client.generate)
    answer = _awaited(blocking.Client.answer)
    translate = _awaited(blocking.Client.translate)
    models = _awaited(blocking.Client.models)
    model = _awaited(blocking.Client.model)
    load_model = _awaited(blocking.Client.load_model)
    unload_model = _awaited(blocking.Client.unload_model)
    health = _awaited(blocking.Client.health)

    async def encode_stream(self, chunks: Items[Union[Chunk, SequenceInput]], *, model: str = "",
            version: int = 0, state: bytes = b"", return_state: bool = False,
            normalize: bool = False, precision: str = "float32", unknown: str = "",
            priority: str = "", timeout: Optional[float] = None, request_id: str = ""
    ) -> AsyncIterator[results.EncodedChunk]:  # fmt: skip
        """As Client.encode_stream()."""
        start = _requests.of_arguments(pb.EncodeStreamStart, locals())
        seconds = self._connection.timeout(timeout, stream=True)
        span: Any = None
        call: Any = None
        index = 0
        try:
            async for chunk in _chain(chunks, [Chunk(return_state=True)] if return_state else []):
                request = _requests.stream_chunk(chunk, index)
                if call is None:
                    request.start.CopyFrom(start)
                    span = CallSpan(request, Trace())
                    metadata = self._connection.metadata(request_id, span)
                    call, response = await self._open_stream(request, seconds, metadata)
                    span.end_with(call)
                else:
                    response = await _exchange(call, request)
                if response is grpc.aio.EOF:
                    raise InternalError(f"the call has ended without an answer to chunks[{index}]")
                yield results.encoded_chunk(response, precision)
                index += 1
            if call is not None:
                await call.done_writing()
                if await call.read() is not grpc.aio.EOF:
                    raise InternalError("the call goes on after the answers to all chunks")
        except grpc.RpcError as error:
            raise from_rpc(error) from error
        except asyncio.CancelledError:
            if not self._channels.closed or _is_cancelled():
                raise
            raise CancelledError(_CLOSED) from None
        finally:
            if call is not None:
                call.cancel()

    async def _open_stream(self, request: pb.EncodeStreamRequest, seconds: Optional[float], metadata: Any) -> Any:
        """(call, first response). A server may refuse a call before it has read anything. If gRPC learns of that
        while it writes, it forgets why, so the call is made again: it only reads."""
        opening = 0
        while True:
            opening += 1
            call = self._channels.get().inference.EncodeStream(timeout=seconds, metadata=metadata)
            try:
                return call, await _exchange(call, request)
            except grpc.RpcError as error:
                if error.details() != LOST_STATUS or opening == MOST_OPENINGS:
                    raise
            await asyncio.sleep(0.001 * opening)  # a busy machine would lose the same race again

    async def translate_all(
        self, texts: Items[SequenceInput], *, batch: int = 16, in_flight: int = 4, **arguments: Any
    ) -> AsyncIterator[str]:
        """As Client.translate_all()."""
        _requests.check_calls(texts, batch, in_flight)
        calls: Deque[asyncio.Task[results.Response[results.Translation]]] = collections.deque()
        part: List[SequenceInput] = []
        try:
            async for text in _chain(texts, [_END]):
                if text is not _END:
                    part.append(text)
                    if len(part) < batch:
                        continue
                if part:
                    calls.append(asyncio.ensure_future(self.translate(part, **arguments)))
                    part = []
                while calls and (text is _END or len(calls) >= in_flight):
                    for translation in await calls.popleft():
                        yield translation.text
        finally:
            for call in calls:
                call.cancel()

    async def wait_ready(self, timeout: float = 30.0) -> None:
        """Waits until a server is connected and serves."""
        channel = self._channels.get().channel
        try:
            await asyncio.wait_for(channel.channel_ready(), self._connection.timeout(timeout))
        except asyncio.TimeoutError:
            why: Union[str, InferenceError]
            try:
                why = await self.health(timeout=1)
            except InferenceError as error:
                why = error
            raise not_ready(self._connection.target, timeout, why) from None


async def _exchange(call: Any, request: pb.EncodeStreamRequest) -> Any:
    """The answer to a request of a stream; EOF if the call has ended well."""
    with contextlib.suppress(asyncio.InvalidStateError, grpc.RpcError):  # the call has ended; reading says how
        await call.write(request)
    return await call.read()


_END: Any = object()  # after the last text; None is a mistake of the caller


async def _chain(values: Any, more: Iterable[Any]) -> AsyncIterator[Any]:
    if hasattr(values, "__aiter__"):
        async for value in values:
            yield value
    else:
        for value in values:
            yield value
    for value in more:
        yield value
