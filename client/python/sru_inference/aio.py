"""The client for asyncio: as Client, with `await`, `async for` and `async with`.

    async with sru_inference.aio.Client("localhost:50051") as client:
        response = await client.classify(["Who wrote Hamlet ?"])

A client belongs to the event loop that runs at its first call.
"""

from __future__ import annotations

import asyncio
import collections
import time
from typing import (
    Any,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Deque,
    Iterable,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Union,
)

import grpc
import grpc.aio

from . import _requests, details_pb2, results
from ._common import ClientBase, not_ready, serving_status
from ._requests import Chunk, Query, Sampling, SequenceInput
from ._resume import Call, Resumption
from .errors import CancelledError, InferenceError, InternalError, from_rpc, request_id as request_id_of
from .v1 import admin_pb2, inference_pb2 as pb

# What grpc.aio says when it could not write because the call had ended.
LOST_STATUS = "Internal error from Core"
MOST_OPENINGS = 8


class TextStream(AsyncIterator[results.GeneratedText]):
    """The texts of a generate() as they come. Iterate over it with `async for`; cancel() ends it early, and so does
    leaving an `async with` block or cancelling the task."""

    def __init__(self, start: Callable[[pb.GenerateRequest], Any], resumption: Resumption) -> None:
        self._start = start
        self._resumption = resumption
        self._next: Optional[Call] = resumption.first()
        self._call: Any = None
        self._cancelled = asyncio.Event()

    async def __anext__(self) -> results.GeneratedText:
        while True:
            if self._call is None:
                if self._next is None:
                    raise StopAsyncIteration
                if self._next.wait:
                    await self._wait(self._next.wait)
                if self._cancelled.is_set():
                    raise CancelledError("the caller has cancelled the call")
                self._call = self._start(self._next.request)
            error: Optional[InferenceError] = None
            try:
                message = await self._call.read()
            except grpc.RpcError as raised:
                error, message = from_rpc(raised), grpc.aio.EOF
            except asyncio.CancelledError:
                if not self._cancelled.is_set():  # the task
                    self.cancel()
                    raise
                error, message = CancelledError("the caller has cancelled the call"), grpc.aio.EOF
            if message is grpc.aio.EOF:
                self._ended(error)
                continue
            try:
                wanted = self._resumption.take(message)
            except InferenceError:
                self.cancel()
                raise
            if self._resumption.complete:
                self._call.cancel()
                self._ended(None)
            if wanted:
                return results.generated_text(message)

    async def _wait(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._cancelled.wait(), seconds)
        except asyncio.TimeoutError:
            pass

    def _ended(self, error: Optional[InferenceError]) -> None:
        self._call = self._next = None
        self._next = self._resumption.ended(error)

    def cancel(self) -> None:
        """Ends the call. The next item is a CancelledError, unless the texts are complete."""
        self._cancelled.set()
        if self._call is not None:
            self._call.cancel()

    async def __aenter__(self) -> TextStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()


class Client(ClientBase):
    """As sru_inference.Client, whose arguments and methods it has. Not thread-safe, as nothing of asyncio is."""

    _grpc = grpc.aio

    async def close(self) -> None:
        """Ends the calls that are running. Calls from now on raise RuntimeError."""
        for stubs in self._channels.close().values():
            await stubs.channel.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _call(self, method: Any, request: Any, timeout: Optional[float], request_id: str) -> Tuple[Any, str]:
        call = method(
            request,
            timeout=self._connection.timeout(timeout),
            metadata=self._connection.metadata(request_id),
        )
        try:
            response = await call
        except grpc.RpcError as error:
            raise from_rpc(error) from error
        return response, request_id_of(await call.initial_metadata()) if request_id else ""

    async def classify(
        self,
        sequences: Iterable[SequenceInput],
        *,
        model: str = "",
        version: int = 0,
        top_k: int = 0,
        truncate: bool = False,
        skip_empty: bool = False,
        priority: str = "",
        timeout: Optional[float] = None,
        request_id: str = "",
    ) -> results.Response[results.Classification]:
        """As Client.classify()."""
        request = _requests.classify(sequences, model, version, top_k, truncate, skip_empty, priority)
        response, sent_id = await self._call(self._channels.get().inference.Classify, request, timeout, request_id)
        return results.classifications(response, sent_id)

    async def encode(
        self,
        sequences: Iterable[SequenceInput],
        *,
        model: str = "",
        version: int = 0,
        pooling: str = "default",
        normalize: bool = False,
        precision: str = "float32",
        truncate: bool = False,
        skip_empty: bool = False,
        priority: str = "",
        timeout: Optional[float] = None,
        request_id: str = "",
    ) -> results.Encodings:
        """As Client.encode()."""
        request = _requests.encode(
            sequences, model, version, pooling, normalize, precision, truncate, skip_empty, priority
        )
        response, sent_id = await self._call(self._channels.get().inference.Encode, request, timeout, request_id)
        return results.encodings(response, sent_id, precision)

    async def score(
        self,
        sequences: Iterable[SequenceInput],
        *,
        model: str = "",
        version: int = 0,
        states: Iterable[bytes] = (),
        return_states: bool = False,
        token_log_probs: bool = False,
        top_candidates: int = 0,
        skip_empty: bool = False,
        priority: str = "",
        timeout: Optional[float] = None,
        request_id: str = "",
    ) -> results.Response[results.Score]:
        """As Client.score()."""
        request = _requests.score(
            sequences, model, version, states, return_states, token_log_probs, top_candidates, skip_empty, priority
        )
        response, sent_id = await self._call(self._channels.get().inference.Score, request, timeout, request_id)
        return results.scores(response, sent_id)

    def generate(
        self,
        prompt: SequenceInput = "",
        *,
        model: str = "",
        version: int = 0,
        state: bytes = b"",
        sampling: Union[Sampling, Mapping[str, Any], None] = None,
        max_new_tokens: int = 0,
        min_new_tokens: int = 0,
        stop: Iterable[str] = (),
        stop_token_ids: Iterable[int] = (),
        num_samples: int = 0,
        token_log_probs: bool = False,
        top_candidates: int = 0,
        return_state: bool = False,
        echo: bool = False,
        token_texts: bool = False,
        priority: str = "",
        timeout: Optional[float] = None,
        request_id: str = "",
    ) -> TextStream:
        """As Client.generate()."""
        request = _requests.generate(
            prompt,
            model,
            version,
            state,
            sampling,
            max_new_tokens,
            min_new_tokens,
            stop,
            stop_token_ids,
            num_samples,
            token_log_probs,
            top_candidates,
            return_state,
            echo,
            token_texts,
            priority,
        )
        seconds = self._connection.timeout(timeout, stream=True)
        self._connection.metadata(request_id)  # is it valid?
        deadline = None if seconds is None else time.monotonic() + seconds

        def start(part: pb.GenerateRequest) -> Any:
            return self._channels.get().inference.Generate(
                part,
                timeout=None if deadline is None else max(0.001, deadline - time.monotonic()),
                metadata=self._connection.metadata(request_id),
            )

        return TextStream(start, Resumption(request, self._connection.options.max_attempts))

    async def encode_stream(
        self,
        chunks: Union[AsyncIterable[Union[Chunk, SequenceInput]], Iterable[Union[Chunk, SequenceInput]]],
        *,
        model: str = "",
        version: int = 0,
        state: bytes = b"",
        return_state: bool = False,
        normalize: bool = False,
        precision: str = "float32",
        priority: str = "",
        timeout: Optional[float] = None,
        request_id: str = "",
    ) -> AsyncIterator[results.EncodedChunk]:
        """As Client.encode_stream()."""
        start = _requests.stream_start(model, version, precision, normalize, state, priority)
        seconds = self._connection.timeout(timeout, stream=True)
        metadata = self._connection.metadata(request_id)
        call: Any = None
        index = 0
        try:
            async for chunk in _chain(chunks, [Chunk(return_state=True)] if return_state else []):
                request = _requests.stream_chunk(chunk, index)
                if call is None:
                    request.start.CopyFrom(start)
                    call, response = await self._open_stream(request, seconds, metadata)
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
                if _details(error) != LOST_STATUS or opening == MOST_OPENINGS:
                    raise
            await asyncio.sleep(0.001 * opening)  # a busy machine would lose the same race again

    async def answer(
        self,
        queries: Iterable[Union[Query, Tuple[str, Sequence[str]]]],
        *,
        model: str = "",
        version: int = 0,
        top_n: int = 1,
        max_answer_tokens: int = 0,
        one_per_passage: bool = False,
        no_overlap: bool = False,
        priority: str = "",
        timeout: Optional[float] = None,
        request_id: str = "",
    ) -> results.Response[results.QueryAnswers]:
        """As Client.answer()."""
        request = _requests.answer(
            queries, model, version, top_n, max_answer_tokens, one_per_passage, no_overlap, priority
        )
        response, sent_id = await self._call(self._channels.get().inference.Answer, request, timeout, request_id)
        return results.answers(response, sent_id)

    async def translate(
        self,
        sequences: Iterable[SequenceInput],
        *,
        model: str = "",
        version: int = 0,
        beam_size: int = 0,
        num_hypotheses: int = 0,
        length_penalty: str = "",
        alpha: Optional[float] = None,
        max_new_tokens: int = 0,
        target_prefixes: Iterable[str] = (),
        return_alignment: bool = False,
        truncate: bool = False,
        priority: str = "",
        timeout: Optional[float] = None,
        request_id: str = "",
    ) -> results.Response[results.Translation]:
        """As Client.translate()."""
        request = _requests.translate(
            sequences,
            model,
            version,
            beam_size,
            num_hypotheses,
            length_penalty,
            alpha,
            max_new_tokens,
            target_prefixes,
            return_alignment,
            truncate,
            priority,
        )
        response, sent_id = await self._call(self._channels.get().inference.Translate, request, timeout, request_id)
        return results.translations(response, sent_id, return_alignment)

    async def translate_all(
        self,
        texts: Union[AsyncIterable[SequenceInput], Iterable[SequenceInput]],
        *,
        batch: int = 16,
        in_flight: int = 4,
        **arguments: Any,
    ) -> AsyncIterator[str]:
        """As Client.translate_all()."""
        calls: Deque[asyncio.Task[results.Response[results.Translation]]] = collections.deque()
        part: List[SequenceInput] = []
        try:
            async for text in _chain(texts, [None]):
                if text is not None:
                    part.append(text)
                    if len(part) < batch:
                        continue
                if part:
                    calls.append(asyncio.ensure_future(self.translate(part, **arguments)))
                    part = []
                while calls and (text is None or len(calls) > in_flight):
                    for translation in await calls.popleft():
                        yield translation.text
        finally:
            for call in calls:
                call.cancel()

    async def models(self, *, timeout: Optional[float] = None, request_id: str = "") -> results.Models:
        """As Client.models()."""
        stubs = self._channels.get(any_server=True)
        return results.models(
            (await self._call(stubs.inference.ListModels, pb.ListModelsRequest(), timeout, request_id))[0]
        )

    async def model(
        self, name: str = "", version: int = 0, *, timeout: Optional[float] = None, request_id: str = ""
    ) -> results.ModelInfo:
        """As Client.model()."""
        request = pb.GetModelRequest(model=_requests.text(name, "name"), version=version)
        stubs = self._channels.get(any_server=True)
        return results.model_info((await self._call(stubs.inference.GetModel, request, timeout, request_id))[0].model)

    async def load_model(
        self, name: str, *, timeout: Optional[float] = None, request_id: str = ""
    ) -> Tuple[results.ModelStatus, ...]:
        """As Client.load_model()."""
        request = admin_pb2.LoadModelRequest(model=_requests.text(name, "name"))
        stubs = self._channels.get(any_server=True)
        return results.statuses((await self._call(stubs.admin.LoadModel, request, timeout, request_id))[0].statuses)

    async def unload_model(self, name: str, *, timeout: Optional[float] = None, request_id: str = "") -> None:
        """As Client.unload_model()."""
        request = admin_pb2.UnloadModelRequest(model=_requests.text(name, "name"))
        await self._call(self._channels.get(any_server=True).admin.UnloadModel, request, timeout, request_id)

    async def health(self, service: str = "", *, timeout: Optional[float] = None) -> str:
        """As Client.health()."""
        request = details_pb2.HealthCheckRequest(service=_requests.text(service, "service"))
        return serving_status((await self._call(self._channels.get(any_server=True).health, request, timeout, ""))[0])

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
    try:
        await call.write(request)
    except (asyncio.InvalidStateError, grpc.RpcError):
        pass  # the call has ended; reading says how
    return await call.read()


def _details(error: Any) -> str:
    return str(error.details())


async def _chain(values: Any, more: Iterable[Any]) -> AsyncIterator[Any]:
    if hasattr(values, "__aiter__"):
        async for value in values:
            yield value
    else:
        for value in values:
            yield value
    for value in more:
        yield value
