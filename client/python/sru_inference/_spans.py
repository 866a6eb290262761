"""The trace that a call is part of: the headers of W3C Trace Context, by which a server's spans become children of the caller's.

With opentelemetry-api installed, each call is a CLIENT span below the current one. Nothing needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import re
from typing import Any, Dict, Iterator, Tuple

try:
    from opentelemetry import context as _context, propagate, trace
except ImportError:
    trace = None  # type: ignore[assignment]

_TRACEPARENT = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_given: contextvars.ContextVar[str] = contextvars.ContextVar("traceparent", default="")


@contextlib.contextmanager
def traceparent(header: str) -> Iterator[None]:
    """Calls that begin in this block are sent with the header `traceparent`, for programs that trace without opentelemetry:
    "00-" + trace id + "-" + id of the caller's span + "-01" (sampled) or "-00"."""
    if not _TRACEPARENT.fullmatch(header):
        raise ValueError(f'traceparent: expected "00-" + 32 + "-" + 16 + "-" + 2 lower-case hexadecimal digits, found {header!r}')
    token = _given.set(header)
    try:
        yield
    finally:
        _given.reset(token)


class Trace:
    """Where a call stands in a trace: below the current span, or what traceparent() says."""

    def __init__(self) -> None:
        self.given = _given.get()
        self.context: Any = None if self.given or trace is None else _context.get_current()

    def headers(self) -> Tuple[Tuple[str, str], ...]:
        if self.given:
            return (("traceparent", self.given),)
        if self.context is None:
            return ()
        carrier: Dict[str, str] = {}
        propagate.inject(carrier, self.context)
        return tuple((name.lower(), value) for name, value in carrier.items())


class CallSpan(Trace):
    """A span of a call with this request. In a `with` block it is that of the block."""

    def __init__(self, request: Any, parent: Trace) -> None:
        self.given, self.context, self._span = parent.given, parent.context, None
        if self.context is None:
            return
        file = request.DESCRIPTOR.file
        method = f"{file.package}.{next(iter(file.services_by_name), '')}/{request.DESCRIPTOR.name[:-len('Request')]}"
        attributes = {"rpc.system.name": "grpc", "rpc.method": method}
        kind = trace.SpanKind.CLIENT
        self._span = trace.get_tracer("sru_inference").start_span(method, self.context, kind, attributes)
        self.context = trace.set_span_in_context(self._span, self.context)

    def end(self, error: str) -> None:
        if self._span is not None:
            if error not in ("", "OK"):
                self._span.set_status(trace.StatusCode.ERROR, error)
            self._span.end()

    def __enter__(self) -> CallSpan:
        return self

    def __exit__(self, _: Any, error: Any, __: Any) -> None:
        self.end("" if error is None else f"{type(error).__name__}: {error}")

    def end_with(self, call: Any) -> None:
        """It ends when this call of gRPC does."""
        if self._span is not None:
            call.add_done_callback(self._done)

    def _done(self, call: Any) -> None:
        code = call.code()
        if inspect.iscoroutine(code):  # of grpc.aio
            asyncio.ensure_future(self._await(code))
        else:
            self.end(code.name)

    async def _await(self, code: Any) -> None:
        self.end((await code).name)
