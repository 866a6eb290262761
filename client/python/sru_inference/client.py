"""The client for threads; aio.py has the same for asyncio."""

from __future__ import annotations

import contextlib
import functools
import itertools
import queue
import threading
from typing import (
    Any, Callable, Iterable, Iterator, Mapping, Optional, Sequence, Tuple, Union,
)  # fmt: skip

import grpc

from . import _requests, details_pb2, results
from ._common import ClientBase, Closable, Result, TextStreamBase, not_ready
from ._parts import Parts, in_order
from ._requests import Chunk, Query, Sampling, SequenceInput
from ._spans import CallSpan, Trace
from .errors import CancelledError, InferenceError, InternalError, from_rpc, request_id as request_id_of, result_of
from .v1 import admin_pb2, inference_pb2 as pb


class TextStream(TextStreamBase, Iterator[results.GeneratedText]):
    """The texts of a generate() as they come. Iterate over it; cancel() ends it early, from any thread, and so does
    leaving a `with` block or dropping it. One thread at a time may iterate."""

    _new_event = threading.Event

    def __next__(self) -> results.GeneratedText:
        while True:
            if self._call is None:
                if self._next is None:
                    raise StopIteration
                if self._cancelled.wait(self._next.wait) if self._next.wait else self._cancelled.is_set():
                    raise CancelledError("the caller has cancelled the call")
                self._call = self._start(self._next.request)
                if self._cancelled.is_set():  # between the check and the start
                    self._call.cancel()
            error: Optional[InferenceError] = None
            try:
                message = next(self._call, None)
            except grpc.RpcError as raised:
                error, message = from_rpc(raised), None
            if message is None:
                self._ended(error)
                continue
            text = self._take(message)
            if text is not None:
                return text

    def __enter__(self) -> TextStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()


class Client(ClientBase, Closable):
    """Calls the servers at an address.

    address: "HOST:PORT", or any other target of gRPC; several addresses as ["10.0.0.1:50051", "10.0.0.2:50051"], or
        "dns:///NAME:PORT" for a name with several. Calls go in turn to all of them that serve.
    timeout: seconds for a call, all attempts included, if the call does not say otherwise; math.inf = no end. The
        server drops work that it cannot finish in time.
    stream_timeout: the same for generate() and encode_stream().
    max_attempts: of a call that finds no connection or a server that shuts down, 1 to 5; 1 = no retry. All methods
        but load_model() and unload_model(), which are never retried, only read.
    initial_backoff, max_backoff: seconds between them.
    max_message_bytes: the largest answer that is accepted. Token vectors of long texts are large.
    only_serving: whether calls go only to servers whose health service says that they serve. Questions about the
        server (models, model, health, load_model, unload_model) go to any.
    tls: use TLS, as any of the following does, too.
    tls_ca: a PEM file of the authorities to trust (None = those that the system trusts).
    tls_cert, tls_key: PEM files of this client's certificate and its key, for servers that ask for one (mutual TLS).
    tls_server_name: if it is not the host in the address.
    token, token_file: what to send as a bearer token. The file is read again every 10 s. Without TLS the token is
        sent only to an address of this machine, unless token_without_tls says that something else encrypts.
    channel_options: further arguments of the gRPC channel. ("grpc.keepalive_time_ms", 30000) pings a silent server
        after 30 s in place of 1.5 s; without an answer within 6 s the connection ends, and calls go to other servers.

    A sequence is a text (str), a list of words, a list or an integer array of token ids [length], or a float array
    of features [frames, feature_size]. `model` may be left out when the server has one for the call; version 0 is
    the latest. `priority` is "low", "normal" or "high". `unknown` says what becomes of a word, character or byte that
    the vocabulary does not have: "refuse" (the call fails), "skip" or "replace"; "" is the model's own choice.
    `request_id` is sent along and appears in the server's log. So is the trace of the current span of opentelemetry, if that
    is installed, or what traceparent() says.

    classify, tag, encode, score, translate, tokenize and detokenize take lists of any length: one that is too long for
    a call, or for what the server lets wait, goes as several, of which each has the timeout. The answer is one; its
    times are sums. A version that is loaded meanwhile answers the calls that are left: name one where that matters.

    Every method raises an InferenceError (errors.py), and ValueError or TypeError for arguments that cannot be sent.
    Connects with the first call. Thread-safe: share one client, since each has connections of its own. Not across
    os.fork(): a client that has made no call yet works in the child, any other raises RuntimeError there. gRPC
    itself wants its first call after the fork, so make clients in the worker processes.
    """

    _grpc = grpc
    _text_stream = TextStream

    def close(self) -> None:
        """Ends the calls that are running. Calls from now on raise RuntimeError."""
        for stubs in self._channels.close().values():
            stubs.channel.close()

    def _call(self, method: Any, request: Any, read: Callable[[Any, str], Result],
            timeout: Optional[float], request_id: str) -> Result:  # fmt: skip
        """Makes a call, or several where the request is too large for one, and returns what `read` makes of the
        response and of the request id that the server has sent."""
        span = CallSpan(request, Trace())
        metadata = self._connection.metadata(request_id, span)
        parts = Parts(request, self._connection.timeout(timeout), metadata)
        with span, contextlib.closing(parts.started(method.future)) as started:
            for part, call in started:
                try:
                    if call is None:  # which costs less than a future
                        response, call = method.with_call(part.request, **parts.options)
                    else:
                        response = result_of(call)
                except (grpc.RpcError, InferenceError) as error:
                    parts.failed(part, error)
                else:
                    sent = request_id_of(call.initial_metadata()) if request_id else ""
                    parts.done(part, read(response, sent))
        result: Result = parts.result()
        return result

    # The methods below that return what _call() and _generate() do are those of aio.Client, too.
    # Their arguments have the names of the request's fields.

    def classify(self, sequences: Iterable[SequenceInput], *, model: str = "", version: int = 0,
            top_k: int = 0, truncate: bool = False, skip_empty: bool = False, unknown: str = "",
            priority: str = "", timeout: Optional[float] = None, request_id: str = ""
    ) -> results.Response[results.Classification]:  # fmt: skip
        """Labels with probabilities for each sequence.

        top_k: how many labels, the most probable first; 0 = all.
        truncate: cut sequences that are too long instead of refusing them.
        skip_empty: a text without tokens has no labels instead of failing the call.
        """
        return self._send(pb.ClassifyRequest, locals(), results.classifications)

    def tag(self, sequences: Iterable[SequenceInput], *, model: str = "", version: int = 0,
            top_k: int = 1, truncate: bool = False, skip_empty: bool = False, unknown: str = "",
            priority: str = "", timeout: Optional[float] = None, request_id: str = ""
    ) -> results.Response[results.Tagging]:  # fmt: skip
        """Labels with probabilities for each token of each sequence.

        top_k: how many labels per token, the most probable first; at most 128.
        truncate: cut sequences that are too long instead of refusing them.
        skip_empty: a text without tokens has no tokens in its answer instead of failing the call.
        """
        return self._send(pb.TagRequest, locals(), results.taggings)

    def encode(self, sequences: Iterable[SequenceInput], *, model: str = "", version: int = 0,
            pooling: str = "default", normalize: bool = False, precision: str = "float32",
            truncate: bool = False, skip_empty: bool = False, unknown: str = "", priority: str = "",
            timeout: Optional[float] = None, request_id: str = ""
    ) -> results.Encodings:  # fmt: skip
        """A float32 array for each sequence: [width], or with pooling "none" [tokens, width].

        pooling: "default" (the model's own), or another one by its name, such as "none" or "max".
        normalize: scale each vector to length 1.
        precision: "float32", "float16" or "bfloat16", to which values are rounded on the wire.
        skip_empty: a text without tokens has the shape [0], or [0, width], instead of failing the call.
            encode(...).array() is all of them as one array.
        """
        read = functools.partial(results.encodings, precision=precision)
        return self._send(pb.EncodeRequest, locals(), read)

    def score(self, sequences: Iterable[SequenceInput], *, model: str = "", version: int = 0,
            states: Iterable[bytes] = (), return_states: bool = False,
            token_log_probs: bool = False, top_candidates: int = 0, token_texts: bool = False,
            skip_empty: bool = False, unknown: str = "", priority: str = "",
            timeout: Optional[float] = None, request_id: str = ""
    ) -> results.Response[results.Score]:  # fmt: skip
        """How probable each sequence is.

        states: none, or one for each sequence: b"" where it begins, or the `state` of a score that it goes on from.
        top_candidates: for each token, how many that might have stood in its place; at most 128.
        token_texts: what a user reads for each token.
        """
        return self._send(pb.ScoreRequest, locals(), results.scores)

    def tokenize(self, sequences: Iterable[SequenceInput], *, model: str = "", version: int = 0,
            unknown: str = "", timeout: Optional[float] = None, request_id: str = ""
    ) -> results.Tokenizations:  # fmt: skip
        """The tokens of each sequence, texts or words, with their ids and where they stand; nothing is computed."""
        return self._send(pb.TokenizeRequest, locals(), results.tokenizations)

    def detokenize(self, sequences: Iterable[Sequence[int]], *, model: str = "", version: int = 0,
            timeout: Optional[float] = None, request_id: str = ""
    ) -> results.Response[str]:  # fmt: skip
        """The text that each list of token ids stands for: the opposite of tokenize()."""
        return self._send(pb.DetokenizeRequest, locals(), results.texts)

    def generate(self, prompt: SequenceInput = "", *, model: str = "", version: int = 0,
            state: bytes = b"", sampling: Union[Sampling, Mapping[str, Any], None] = None,
            max_new_tokens: int = 0, min_new_tokens: int = 0, stop: Iterable[str] = (),
            stop_token_ids: Iterable[int] = (), num_samples: int = 0, token_log_probs: bool = False,
            top_candidates: int = 0, return_state: bool = False, echo: bool = False,
            token_texts: bool = False, unknown: str = "", priority: str = "",
            timeout: Optional[float] = None, request_id: str = "") -> TextStream:  # fmt: skip
        """A text that goes on from a prompt, piece by piece as it is made: `for piece in client.generate(...):
        print(piece.text)`.

        prompt: may be empty with a state only.
        state: of an earlier score or generate, to go on from.
        sampling: a Sampling, or a dict of its fields; None = the most probable token each time.
        max_new_tokens: 0 = as many as the server allows.
        stop, stop_token_ids: end the text before one of these.
        echo: begin with the prompt.
        token_texts: what a user reads for each token.

        If the server has to stop in the middle because it shuts down, the text goes on at another one, without a
        token lost or repeated, as long as not `max_attempts` calls in a row bring no token.
        """
        arguments = {**locals(), "prompt": None, "sampling": None}
        request = _requests.of_arguments(pb.GenerateRequest, arguments)
        if not state or len(prompt):
            _requests.fill_sequence(request.prompt, prompt, "prompt")
        if sampling is not None:
            _requests.fill_sampling(request.sampling, sampling)
        stream: TextStream = self._generate(request, timeout, request_id)
        return stream

    def encode_stream(self, chunks: Iterable[Union[Chunk, SequenceInput]], *, model: str = "",
            version: int = 0, state: bytes = b"", return_state: bool = False,
            normalize: bool = False, precision: str = "float32", unknown: str = "",
            priority: str = "", timeout: Optional[float] = None, request_id: str = ""
    ) -> Iterator[results.EncodedChunk]:  # fmt: skip
        """Token vectors of one long sequence that comes in chunks, one item per chunk, in order; with a
        unidirectional model.

        chunks: sequences of one form throughout, or Chunks. The next one is taken when the answer to the one before
            has been.
        state: of an earlier stream, to go on from.
        return_state: one more item at the end, without values, has the state after all chunks.
        """
        start = _requests.of_arguments(pb.EncodeStreamStart, locals())
        seconds = self._connection.timeout(timeout, stream=True)
        self._connection.metadata(request_id)  # is it valid?
        trace = Trace()

        def stream() -> Iterator[results.EncodedChunk]:
            call: Any = None
            requests: queue.SimpleQueue[Optional[pb.EncodeStreamRequest]] = queue.SimpleQueue()
            try:
                for index, chunk in enumerate(
                    itertools.chain(chunks, [Chunk(return_state=True)] if return_state else [])
                ):
                    request = _requests.stream_chunk(chunk, index)
                    if call is None:
                        request.start.CopyFrom(start)
                        method = self._channels.get().inference.EncodeStream
                        span = CallSpan(request, trace)
                        metadata = self._connection.metadata(request_id, span)
                        call = method(iter(requests.get, None), timeout=seconds, metadata=metadata)
                        span.end_with(call)
                    requests.put(request)
                    response = next(call, None)
                    if response is None:
                        raise InternalError(f"the call has ended without an answer to chunks[{index}]")
                    yield results.encoded_chunk(response, precision)
                requests.put(None)
                if call is not None and next(call, None) is not None:
                    raise InternalError("the call goes on after the answers to all chunks")
            except grpc.RpcError as error:
                raise from_rpc(error) from error
            finally:
                requests.put(None)
                if call is not None:
                    call.cancel()

        return stream()

    def answer(self, queries: Iterable[Union[Query, Tuple[str, Sequence[str]]]], *, model: str = "",
            version: int = 0, top_n: int = 1, max_answer_tokens: int = 0,
            one_per_passage: bool = False, no_overlap: bool = False, unknown: str = "",
            priority: str = "", timeout: Optional[float] = None, request_id: str = ""
    ) -> results.Response[results.QueryAnswers]:  # fmt: skip
        """The spans of passages that answer questions.

        queries: each a question and a list of passages, or a Query.
        top_n: how many spans for each, of all its passages together.
        one_per_passage: at most the best of each passage.
        no_overlap: leave out what overlaps a better one.
        """
        return self._send(pb.AnswerRequest, locals(), results.answers)

    def translate(self, sequences: Iterable[SequenceInput], *, model: str = "", version: int = 0,
            beam_size: int = 0, num_hypotheses: int = 0, length_penalty: str = "",
            alpha: Optional[float] = None, word_penalty: Optional[float] = None,
            max_new_tokens: int = 0, max_length_factor: float = 0,
            target_prefixes: Iterable[str] = (), return_alignment: bool = False,
            return_hard_alignment: bool = False, return_token_log_probs: bool = False,
            truncate: bool = False, unknown: str = "", priority: str = "",
            timeout: Optional[float] = None, request_id: str = ""
    ) -> results.Response[results.Translation]:  # fmt: skip
        """The most probable translations of each sequence; zeros stand for the model's own values.

        beam_size: 1 = greedy.
        num_hypotheses: how many to return.
        length_penalty: "gnmt", "power" or "none".
        alpha: its strength.
        word_penalty: what each token takes from the score.
        max_length_factor: most tokens for each token of the source.
        target_prefixes: none, or for each sequence what its translation begins with.
        """
        read = functools.partial(results.translations, alignment=return_alignment)
        return self._send(pb.TranslateRequest, locals(), read)

    def translate_all(self, texts: Iterable[SequenceInput], *, batch: int = 16, in_flight: int = 4,
            **arguments: Any) -> Iterator[str]:  # fmt: skip
        """The best translation of each of any number of texts, in order. `in_flight` calls of `batch` texts run at a
        time; `arguments` are those of translate()."""
        _requests.check_calls(texts, batch, in_flight)
        remaining = iter(texts)
        parts = iter(lambda: list(itertools.islice(remaining, batch)), [])
        calls = (functools.partial(self.translate, part, **arguments) for part in parts)
        for response in in_order(calls, in_flight):
            for translation in response:
                yield translation.text

    def models(self, *, timeout: Optional[float] = None, request_id: str = "") -> results.Models:
        """All loaded models, and the states of all versions."""
        return self._ask(pb.ListModelsRequest(), results.models, timeout, request_id)

    def model(self, name: str = "", version: int = 0, *, timeout: Optional[float] = None,
            request_id: str = "") -> results.ModelInfo:  # fmt: skip
        """One loaded model; the name may be left out when there is one."""
        request = pb.GetModelRequest(model=_requests.text(name, "name"), version=version)
        return self._ask(request, results.model, timeout, request_id)

    def load_model(self, name: str, *, timeout: Optional[float] = None, request_id: str = ""
            ) -> Tuple[results.ModelStatus, ...]:  # fmt: skip
        """Loads the versions of a model and returns their states; the address must be the server's
        --admin_listen. Takes as long as the model needs: set the timeout accordingly."""
        request = admin_pb2.LoadModelRequest(model=_requests.text(name, "name"))
        return self._ask(request, results.statuses, timeout, request_id, "admin")

    def unload_model(
        self, name: str, *, timeout: Optional[float] = None, request_id: str = ""
    ) -> None:
        """Unloads a model; the address must be the server's --admin_listen. NotFoundError if it is
        not loaded."""
        request = admin_pb2.UnloadModelRequest(model=_requests.text(name, "name"))
        return self._ask(request, lambda *_: None, timeout, request_id, "admin")

    def health(self, service: str = "", *, timeout: Optional[float] = None) -> str:
        """One of "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN" and "UNKNOWN", as grpc.health.v1
        defines them.

        service: "" is the server as a whole. NotFoundError if the server knows no such service.
        """
        request = details_pb2.HealthCheckRequest(service=_requests.text(service, "service"))
        return self._ask(request, results.serving_status, timeout, "", "health")

    def wait_ready(self, timeout: float = 30.0) -> None:
        """Waits until a server is connected and serves, so that the first call does not have to.
        DeadlineExceededError, with the reason, if none does within `timeout` seconds."""
        ready = grpc.channel_ready_future(self._channels.get().channel)
        try:
            ready.result(timeout=self._connection.timeout(timeout))
        except grpc.FutureTimeoutError:
            ready.cancel()
            why: Union[str, InferenceError]
            try:
                why = self.health(timeout=1)
            except InferenceError as error:
                why = error
            raise not_ready(self._connection.target, timeout, why) from None
