"""Follows a Generate call to its end, although servers may end it before (client/resume_generate.h is the same in
C++).

A server that drains or has lost its devices ends Generate with UNAVAILABLE, after it has sent the state of each
text. Here the texts go on from these states in further calls, without a token lost or repeated. This part makes no
calls: the client asks it which one comes next, so that both clients share it and tests can play any server.
"""

from __future__ import annotations

import random
from typing import List, NamedTuple, Optional

import grpc

from .errors import InferenceError, InternalError
from .v1 import inference_pb2 as pb

LONGEST_WAIT = 5.0


class Call(NamedTuple):
    """A call to make, after `wait` seconds."""

    request: pb.GenerateRequest
    wait: float = 0.0


class _Sample:
    """One text of the request, over all calls."""

    def __init__(self) -> None:
        self.done = False
        self.state: Optional[bytes] = None
        # Whether the present call has sent something of it and no state since: then there is nothing to go on from.
        self.open = False
        self.prompt_tokens = 0
        self.generated_tokens = 0  # up to the state


class Resumption:
    """What one request needs. Use: first(), then for each call take() its messages and ended().

    Gives up after `max_attempts` calls in a row that brought no token. A call that goes on from a state and is
    refused as too much (RESOURCE_EXHAUSTED) counts as one, after the wait that the server asks for. A request that
    samples without a seed gets a random one, so that a text that goes on elsewhere is the same text. With
    max_new_tokens 0 the server's limit counts from each interruption. Not thread-safe.
    """

    def __init__(self, request: pb.GenerateRequest, max_attempts: int) -> None:
        self._request = request
        self._max_attempts = max_attempts
        self._greedy = not request.sampling.temperature > 0
        if not self._greedy and not request.sampling.HasField("seed"):
            request.sampling.seed = random.getrandbits(53)  # readers of JSON keep 53 bits of a number
        self._samples: List[_Sample] = [_Sample() for _ in range(max(1, request.num_samples))]
        self._version = request.version
        self._resumed = False
        self._in_vain = 0
        # Of the present call: samples from _first_wanted on are those of the whole from _first_index on.
        self._first_wanted = 0
        self._first_index = 0
        self._num_samples = len(self._samples)
        self._made_progress = False
        # Whether all that is wanted of the present call is there: it may be cancelled.
        self.complete = False

    def first(self) -> Call:
        return Call(self._request)

    def take(self, message: pb.GenerateResponse) -> bool:
        """Changes a message as if one server had answered the whole request; whether it is for the caller.
        InternalError if it makes no sense."""
        number = message.sample
        if not 0 <= number < self._num_samples:
            raise InternalError(f"the answer has sample {number} of {self._num_samples}")
        if number < self._first_wanted:
            return False
        message.sample = self._first_index + number - self._first_wanted
        sample = self._samples[message.sample]
        if sample.done:
            raise InternalError(f"sample {number} goes on after its finish_reason")
        self._version = message.version
        self._made_progress = self._made_progress or bool(message.token_ids)
        if message.finish_reason:
            sample.done = True
            if sample.state is not None:
                message.prompt_tokens = sample.prompt_tokens
            message.generated_tokens += sample.generated_tokens
            self.complete = self._first_wanted > 0
            return True
        sample.open = True
        if message.state:
            sample.open = False
            if sample.state is None:
                sample.prompt_tokens = message.prompt_tokens
            sample.generated_tokens += message.generated_tokens
            sample.state = message.state
            for field in ("state", "prompt_tokens", "generated_tokens"):
                message.ClearField(field)
            return bool(message.text or message.token_ids)
        return True

    def ended(self, error: Optional[InferenceError]) -> Optional[Call]:
        """After the present call has ended: the next one, or None when the texts are complete. Raises `error` if
        nothing can go on. A call that was cancelled because it is complete has no error."""
        unfinished = next((index for index, sample in enumerate(self._samples) if not sample.done), None)
        wait = 0.0
        if error is None:
            if unfinished is None:
                return None
            first = self._first_index
            indices = range(first, first + self._num_samples - self._first_wanted)
            missing = next((index for index in indices if not self._samples[index].done), None)
            if missing is not None:
                number = missing - first + self._first_wanted
                raise InternalError(f"the call has ended, but sample {number} has no finish_reason")
        else:
            refused = (
                self._resumed and error.retry_after is not None and error.code == grpc.StatusCode.RESOURCE_EXHAUSTED
            )
            if error.code != grpc.StatusCode.UNAVAILABLE and not refused:
                raise error
            if unfinished is None:
                return None
            self._in_vain = 0 if self._made_progress else self._in_vain + 1
            nothing_to_go_on_from = any(sample.open and not sample.done for sample in self._samples)
            if nothing_to_go_on_from or self._in_vain >= self._max_attempts or self._max_attempts == 1:
                raise error
            if refused:
                wait = min(max(error.retry_after or 0.0, 0.001), LONGEST_WAIT)
        self._resumed = True
        return Call(self._rest_of(unfinished), wait)

    def _rest_of(self, index: int) -> pb.GenerateRequest:
        sample = self._samples[index]
        request = pb.GenerateRequest()
        request.CopyFrom(self._request)
        request.version = self._version
        # The tokens of a sample depend on its number, so those before it are asked for as well.
        self._first_wanted = 0 if self._greedy else index
        self._first_index = index
        self._num_samples = self._first_wanted + 1
        self._made_progress = self.complete = False
        request.num_samples = self._num_samples
        if sample.state is not None:
            request.ClearField("prompt")
            request.echo = False
            request.state = sample.state
            request.min_new_tokens = max(0, self._request.min_new_tokens - sample.generated_tokens)
            if self._request.max_new_tokens > 0:
                request.max_new_tokens -= sample.generated_tokens
                if request.max_new_tokens <= 0:
                    raise InternalError(
                        f"the server has generated {sample.generated_tokens} of {self._request.max_new_tokens} tokens, "
                        "but gave no finish_reason"
                    )
        return request
