"""Requests that are too large for one call: cut into several, whose answers become one."""

from __future__ import annotations

import collections
import re
from concurrent import futures
from typing import (
    Any, Callable, Deque, Dict, Generator, Iterable, List, NamedTuple, Optional, Tuple, TypeVar,
)  # fmt: skip

from . import results
from .errors import InferenceError, InvalidArgumentError, ResourceExhaustedError, from_rpc, renumbered

Result = TypeVar("Result")

MOST_SEQUENCES = 1024  # the default of --max_sequences_per_request
IN_FLIGHT = 4
PER_SEQUENCE = ("sequences", "states", "target_prefixes")
# The part of a server's error that says how many sequences or tokens a call may have, and
# which flag of the server sets that limit.
_LIMIT = re.compile(r"expected at most (\d+|that) \(--max_(sequences_per_request|queue_tokens)\)")


class Part(NamedTuple):
    """`request` has the sequences from `start` to before `stop`. alone: no other part is sent with
    it, so that a server that refuses it is busy with the calls of others."""

    start: int
    stop: int
    request: Any
    alone: bool = False


class Parts:
    """left: parts that are to be sent. Whoever gets one of started() says how it ends.
    options: of each call. in_flight: most calls at a time."""

    def __init__(self, request: Any, timeout: Optional[float], metadata: Any) -> None:
        self.options: Dict[str, Any] = {"timeout": timeout, "metadata": metadata}
        self.in_flight = IN_FLIGHT
        self.left: Deque[Part] = collections.deque()
        self._calls: Deque[Tuple[Part, Any]] = collections.deque()
        self._done: List[Tuple[int, Any]] = []
        self._request = request
        self._cut(Part(0, len(getattr(request, "sequences", ())), request), MOST_SEQUENCES)

    def _cut(self, part: Part, most: int) -> None:
        """Puts a part back, in pieces of at most `most` sequences."""
        count = part.stop - part.start
        if count <= most:
            self.left.appendleft(part)
            return
        fields = {field.name: value for field, value in part.request.ListFields()}
        lists = {name: fields.pop(name) for name in PER_SEQUENCE if name in fields}
        pieces = []
        for start in range(0, count, most):
            stop = min(start + most, count)
            of_piece = {name: values[start:stop] for name, values in lists.items()}
            piece = type(part.request)(**fields, **of_piece)
            pieces.append(Part(part.start + start, part.start + stop, piece))
        self.left.extendleft(reversed(pieces))

    def started(
        self, start: Callable[..., Any]
    ) -> Generator[Tuple[Part, Any], None, None]:
        """Each part whose answer is to be waited for, with its call; None, where the caller is to
        make it, since it is the only one that runs. `start` starts the others."""
        try:
            while self.left or self._calls:
                if not self.left or len(self._calls) >= self.in_flight:
                    yield self._calls.popleft()
                    continue
                part = self.left.popleft()
                part = part._replace(alone=self.in_flight == 1 or part.request is self._request)
                more = self.left or self._calls
                self._calls.append((part, start(part.request, **self.options) if more else None))
        finally:
            for _, call in self._calls:
                call and call.cancel()

    def done(self, part: Part, response: Any) -> None:
        if part.request is not self._request:
            response.results  # made while other calls are on their way
        self._done.append((part.start, response))

    def failed(self, part: Part, raised: Exception) -> None:
        """Puts the part back, in smaller pieces if it was too large, or raises the error."""
        error = raised if isinstance(raised, InferenceError) else from_rpc(raised)
        count = part.stop - part.start
        limit = _LIMIT.search(error.message) if isinstance(error, InvalidArgumentError) else None
        exhausted = isinstance(error, ResourceExhaustedError)
        if exhausted and error.retry_after is not None and not part.alone:
            self.in_flight = max(1, self.in_flight // 2)
            self.left.appendleft(part)
        elif count > 1 and (limit or exhausted and error.retry_after is None):
            most = int(limit[1]) if limit and limit[2] == "sequences_per_request" else count
            self._cut(part, max(1, most if most < count else -(-count // 2)))
        else:
            raise renumbered(error, range(part.start, part.stop)) if count else error

    def result(self) -> Any:
        responses = [response for _, response in sorted(self._done, key=lambda one: one[0])]
        return responses[0] if len(responses) == 1 else results.joined(responses)


def in_order(
    calls: Iterable[Callable[[], Result]], in_flight: int
) -> Generator[Result, None, None]:
    """What the calls return, in their order. `in_flight` run at a time, in threads. After an error,
    or when the caller needs no more, nobody waits for the others."""
    running: Deque[futures.Future[Result]] = collections.deque()
    pool = futures.ThreadPoolExecutor(in_flight)
    try:
        for call in calls:
            running.append(pool.submit(call))
            if len(running) > in_flight:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
