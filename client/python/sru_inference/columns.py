"""Columns of texts of any length: for corpora, and for the engines that hold them.

    columns = sru_inference.Columns("10.0.0.1:50051", model="trec", outputs=["label", "logits"])
    columns(["Who wrote Hamlet ?", None])    # {"label": ["HUM", None], "logits": float32 [2, 6]}

Calls use the Open Inference Protocol (docs/open_inference.md): its tensors have one form for all
tasks and cost a fraction of what a message for each row does.
"""

from __future__ import annotations

import collections.abc
import contextlib
import functools
import inspect
import random
import re
import struct
import sys
import threading
import time
from typing import (
    Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, TypeVar,
    Union,
)  # fmt: skip

import numpy as np
import numpy.typing as npt

from . import _requests, open_inference_pb2 as pb
from ._common import Closable, Progress
from ._connection import Address, check_timeout
from ._parts import in_order
from .client import Client
from .errors import (
    CancelledError, InferenceError, InternalError, UnavailableError, UnimplementedError, renumbered,
)  # fmt: skip

Result = TypeVar("Result")
Array = npt.NDArray[Any]

ROWS = 1024  # in a call, where the server does not say how many it takes
# A token has at least a byte, so no call of several rows has more tokens than may wait by default.
CALL_BYTES = 60 << 10
CALLS_READ = 16  # texts are read from a column for so many calls at a time
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
OWN_PARAMETERS = {"priority": "low", "skip_empty": True}  # where the server is ours
DATATYPES = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8", "INT32": "<i4", "INT64": "<i8"}
PARAMETERS = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}
STRINGS = re.compile(r"(large_)?string$|null$|dictionary<values=(large_)?string,")
_size = struct.Struct("<I")


class Columns(Closable):
    """Computes columns of texts: columns(texts) is {output: column}, with a value for each row.

    address: of servers, as for Client; or a function that returns it, which is called again when
        there is no server at the address before.
    model: may be left out when the server has one. version: 0 = the latest, also a later one.
    outputs: names of tensors in docs/open_inference.md; none = all that are not optional.
    rows: most rows in a call; 0 = as many as the server takes.
    in_flight: calls on their way at a time.
    timeout: seconds for one attempt of a call.
    patience: seconds for which a call is repeated that finds no server, or that a busy server
        refuses with a time to come again. A call that is too large is refused without one.
    parameters: of the calls, such as {"truncate": True}; None leaves one out. "priority" is "low",
        since bulk work can wait, and "skip_empty" True, unless they are given.
    connection: tls_ca, token and the other options of Client.

    A column is a list, an iterable, a numpy array, a pandas Series or an Arrow array of texts. A
    reader takes a dict of columns: {"question": ..., "passage": ...}. A null (None, NaN) is not
    sent; its answer is null, and so is that of a text without tokens. What comes back:

        tensor         where Arrow came in           elsewhere
        [rows]         numbers or strings            numpy; null: NaN, -1 (`lengths`: 0) or None
        [rows, width]  lists of one size             numpy; null: NaN
        per token      lists; of vectors, lists of   numpy, of objects: arrays [tokens] or
                       lists of one size             [tokens, width], no padding; null: None

    Connects with the first call, and so does a copy by pickle. Thread-safe. Shows its progress
    after two seconds if stderr is a terminal. Raises an InferenceError (errors.py), which names the
    row by its index in the column, and ValueError or TypeError for what cannot be sent.
    """

    def __init__(self, address: Union[Address, Callable[[], Address]] = "localhost:50051", *,
            model: str = "", version: int = 0, outputs: Sequence[str] = ("label",), rows: int = 0,
            in_flight: int = 4, timeout: float = 60.0, patience: float = 600.0,
            parameters: Optional[Mapping[str, Any]] = None, **connection: Any) -> None:  # fmt: skip
        given = {k: value for k, value in locals().items() if k not in ("self", "connection")}
        connection = {k: value for k, value in connection.items() if value is not None}
        self._arguments = {**given, **connection}
        inspect.signature(Client).bind(**connection)  # a TypeError for a name that is none
        check_timeout(timeout, "timeout")
        for name, least in {"version": 0, "rows": 0, "in_flight": 1, "patience": 0}.items():
            if given[name] < least:
                raise ValueError(f"{name}: expected at least {least}, found {given[name]!r}")
        self._address, self._name = address, _requests.text(model, "model")
        self._version = str(version) if version else ""
        self._outputs = _requests.texts(outputs, "outputs")
        self._rows, self._in_flight = rows, in_flight
        self._timeout, self._patience = timeout, patience
        self._parameters = dict(parameters or {})
        for name, value in self._parameters.items():
            if value is not None and type(value) not in PARAMETERS:
                expected = "expected a bool, a number or a text"
                raise TypeError(f"parameters[{name!r}]: {expected}, found {value!r}")
        self._connection = {"max_message_bytes": (1 << 31) - 1, **connection}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._client: Optional[Client] = None
        self._model: Optional[Tuple[str, str, int]] = None

    def __getstate__(self) -> Dict[str, Any]:
        return self._arguments

    def __setstate__(self, arguments: Dict[str, Any]) -> None:
        Columns.__init__(self, **arguments)

    def close(self) -> None:
        """Ends the calls that are running. Calls from now on raise RuntimeError."""
        self._closed.set()
        with self._lock:
            if self._client is not None:
                self._client.close()

    def __call__(self, texts: Any) -> Dict[str, Any]:
        inputs = texts if isinstance(texts, collections.abc.Mapping) else {"text": texts}
        columns = {name: _column(name, values) for name, values in inputs.items()}
        counts = {len(column) for column in columns.values()}
        if len(counts) != 1:
            raise ValueError(f"texts: expected columns of one length, found {sorted(counts)}")
        count = counts.pop()
        self._model = self._model or self._repeat(self._describe, self._closed)
        model, task, most = self._model
        answers, ended, progress = _Answers(count, task), threading.Event(), Progress()

        def call(rows: Sequence[int], sent: int, tensors: List[bytes]) -> Tuple[Sequence[int], Any]:
            request = self._request(model, task, columns, sent, tensors)
            try:
                return rows, self._repeat(lambda client: self._call(client, request), ended)
            except InferenceError as error:
                raise renumbered(error, rows)

        parts = _parts(columns, count, self._rows or most)
        calls = (functools.partial(call, rows, len(rows), tensors) for rows, tensors in parts)
        try:
            with contextlib.closing(in_order(calls, self._in_flight)) as responses:
                for rows, response in responses:
                    answers.add(rows, response)
                    done = answers.rows
                    progress.show(lambda s: f"{done:,} of {count:,} rows, {done / s:,.0f} rows/s")
            if not answers.rows:  # one text more tells the types of columns of nulls
                skips = task and self._parameters.get("skip_empty", True)
                answers.add(*call(range(0), 1, [_tensor([b"" if skips else b"a"])] * len(columns)))
        finally:
            ended.set()  # after an error, no call is repeated
            progress.end()
        arrow = next(filter(None, map(_arrow, columns.values())), None)
        return answers.columns(self._outputs, arrow)

    def _request(self, model: str, task: str, names: Any, rows: int, tensors: List[bytes]) -> Any:
        request = pb.ModelInferRequest(
            model_name=model,
            model_version=self._version,
            inputs=[{"name": name, "datatype": "BYTES", "shape": [rows]} for name in names],
            outputs=[{"name": name} for name in self._outputs],
            raw_input_contents=tensors,
        )
        per_token = task == "tagger" or task and "encoding" in self._outputs
        if per_token and self._outputs and "lengths" not in self._outputs:
            request.outputs.add(name="lengths")
        for name, value in {**(OWN_PARAMETERS if task else {}), **self._parameters}.items():
            if value is not None:
                setattr(request.parameters[name], PARAMETERS[type(value)], value)
        return request

    def _connected(self, lost: Optional[Client] = None) -> Client:
        """The client; one for the address that is asked for anew, if it is `lost`."""
        with self._lock:
            if self._closed.is_set():
                raise RuntimeError("the columns are closed")
            if self._client is None or self._client is lost:
                address = self._address() if callable(self._address) else self._address
                self._client = Client(address, **self._connection)
            return self._client

    def _describe(self, client: Client) -> Tuple[str, str, int]:
        """The model's name, its task ("" on a server that is not ours) and most rows in a call."""
        name = self._name or client.model(timeout=self._timeout).name
        request = pb.ModelConfigRequest(name=name, version=self._version)
        try:
            config = self._call(client, request).config
        except UnimplementedError:  # it is Triton's extension of the protocol
            config = pb.ModelConfig()
        task = config.parameters["task"].string_value if config.platform == "sru" else ""
        return name, task, config.max_batch_size or ROWS

    def _call(self, client: Client, request: Any) -> Any:
        stub = client._channels.get().open_inference
        return client._called(stub, request, lambda response, _: response, self._timeout, "")

    def _repeat(self, attempt: Callable[[Client], Result], ended: threading.Event) -> Result:
        """What `attempt` returns; it is repeated while servers are busy or gone."""
        give_up, pause = 0.0, FIRST_PAUSE
        client = self._connected()
        while True:
            try:
                return attempt(client)
            except InferenceError as error:
                now = time.monotonic()
                give_up = give_up or now + self._patience
                gone = isinstance(error, (UnavailableError, CancelledError))
                wait = pause if error.retry_after is None else error.retry_after
                wait *= random.uniform(1, 1.5)  # not all callers at once
                again = (gone or error.retry_after is not None) and now + wait <= give_up
                if not again or self._closed.is_set() or ended.wait(wait):
                    raise
            pause = min(2 * pause, LONGEST_PAUSE)
            client = self._connected(client if gone and callable(self._address) else None)


def _arrow(column: Any) -> Any:
    """The module pyarrow, if the column is one of its."""
    name = type(column).__module__.partition(".")[0]
    return sys.modules["pyarrow"] if name == "pyarrow" else None


def _column(name: str, values: Any) -> Any:
    """What has a length and slices."""
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{name}: expected a column, found a single text; write [text]")
    if _arrow(values):
        if not STRINGS.match(str(values.type)):
            raise TypeError(f"{name}: expected a column of strings, found one of {values.type}")
        return values
    values = values.to_numpy() if hasattr(values, "to_numpy") else values
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise ValueError(f"{name}: expected an array [rows], found one {list(values.shape)}")
    return values if isinstance(values, (list, tuple, np.ndarray)) else list(values)


def _texts(name: str, column: Any, start: int, stop: int) -> List[Optional[bytes]]:
    """Rows of a column in UTF-8; None for a null."""

    def text(value: Any, row: int) -> Optional[bytes]:
        null = value is None or type(value).__name__ == "NAType" or value != value
        return None if null else _requests.text(value, f"{name}[{row}]").encode()

    values = column[start:stop]
    arrow = _arrow(column)
    if arrow:
        values = np.asarray(values.cast(arrow.string()))
    rows = list(enumerate(values.tolist() if isinstance(values, np.ndarray) else values, start))
    try:
        return [value.encode() if type(value) is str else text(value, row) for row, value in rows]
    except UnicodeEncodeError:
        return [text(value, row) for row, value in rows]  # says which one


def _tensor(texts: Sequence[bytes]) -> bytes:
    return b"".join([_size.pack(len(text)) + text for text in texts])


def _parts(
    columns: Mapping[str, Any], count: int, most: int
) -> Iterator[Tuple[Sequence[int], List[bytes]]]:
    """For each call, the rows in it, none of them null, and a tensor for each input."""
    for start in range(0, count, most * CALLS_READ):
        stop = min(start + most * CALLS_READ, count)
        texts: List[Any] = [_texts(name, column, start, stop) for name, column in columns.items()]
        rows: Sequence[int] = range(start, stop)
        if any(None in column for column in texts):
            rows = [row for row, values in enumerate(zip(*texts), start) if None not in values]
            texts = [[column[row - start] for row in rows] for column in texts]
        ends = np.cumsum(np.sum([[len(text) for text in column] for column in texts], axis=0))
        first = 0
        while first < len(rows):
            room = (ends[first - 1] if first else 0) + CALL_BYTES
            last = min(first + most, max(first + 1, int(np.searchsorted(ends, room, "right"))))
            yield rows[first:last], [_tensor(column[first:last]) for column in texts]
            first = last


def _array(output: Any, raw: bytes, rows: int) -> Array:
    kind, shape = DATATYPES.get(output.datatype), tuple(output.shape)
    if shape[:1] != (rows,) or kind is None and (output.datatype, len(shape)) != ("BYTES", 1):
        expected = f"{rows} rows of {', '.join(DATATYPES)}, or BYTES [{rows}]"
        found = f"{output.datatype} {list(shape)}"
        raise InternalError(f"output {output.name}: expected {expected}, found {found}")
    if kind is not None:
        return np.frombuffer(raw, kind).reshape(shape)
    texts: Array = np.empty(rows, object)
    end = 0
    for row in range(rows):
        begin = end + _size.size
        end = begin + _size.unpack_from(raw, end)[0]
        texts[row] = raw[begin:end].decode()
    return texts


def _marked(values: Array) -> Any:
    """Which rows have the mark of a text without tokens: "", NaN or a number below 0."""
    if values.dtype == object:
        return np.equal(values, "").astype(bool)
    first = values[:, :1] if values.ndim > 1 else values.reshape(-1, 1)
    return (np.isnan(first) if values.dtype.kind == "f" else first < 0).any(axis=1)


class _Answers:
    """The answers of calls, put together."""

    def __init__(self, count: int, task: str) -> None:
        self.rows = 0  # that are answered
        self._task = task
        self._valid = np.zeros(count, bool)
        self._sent: List[Array] = []
        self._arrays: Dict[str, List[Array]] = collections.defaultdict(list)
        self._per_token: Dict[str, List[Array]] = {}  # the tokens of rows, by call

    def add(self, rows: Sequence[int], response: Any) -> None:
        count = len(rows)
        arrays = {
            output.name: _array(output, raw, count or 1)[:count]
            for output, raw in zip(response.outputs, response.raw_output_contents)
        }
        lengths = arrays.get("lengths")
        blank = np.zeros(count, bool) if lengths is None else lengths <= 0
        for name, values in arrays.items():
            axes = 2 if self._task == "tagger" else 3
            if lengths is not None and values.ndim >= axes:
                values = values[np.arange(values.shape[1]) < lengths[:, None]]
                self._per_token.setdefault(name, []).append(lengths)
            elif self._task:
                blank |= _marked(values)
            self._arrays[name].append(values)
        self._sent.append(np.array(rows, np.int64))
        self._valid[self._sent[-1]] = ~blank
        self.rows += count

    def columns(self, names: Sequence[str], arrow: Any) -> Dict[str, Any]:
        for name in names:
            if name not in self._arrays:
                raise InternalError(f"outputs: {name!r} is not in the answer")
        return {name: self._joined(name, arrow) for name in names or self._arrays}

    def _joined(self, name: str, arrow: Any) -> Any:
        values = np.concatenate(self._arrays[name])
        if name in self._per_token:
            lengths = self._spread(np.concatenate(self._per_token[name]), 0)
            return (_arrow_lists if arrow else _objects)(values, lengths, self._valid, arrow)
        missing = {"O": None, "f": np.nan}.get(values.dtype.kind, 0 if name == "lengths" else -1)
        values = self._spread(values, missing)
        return _arrow_column(values, self._valid, arrow) if arrow else values

    def _spread(self, values: Array, missing: Any) -> Array:
        """From the rows that were sent to all rows."""
        if self._valid.all():
            return values
        spread = np.full((len(self._valid), *values.shape[1:]), missing, values.dtype)
        spread[np.concatenate(self._sent)] = values
        spread[~self._valid] = missing
        return spread


def _objects(values: Array, lengths: Array, valid: Array, _: Any) -> Array:
    column = np.empty(len(lengths), object)
    ends = np.cumsum(lengths)
    for row in np.flatnonzero(valid):
        column[row] = values[ends[row] - lengths[row] : ends[row]]
    return column


def _arrow_column(values: Array, valid: Array, arrow: Any) -> Any:
    if values.ndim == 1:
        kind = arrow.string() if values.dtype == object else None
        return arrow.array(values, kind, mask=~valid)
    flat, width = arrow.array(values.reshape(-1)), values.shape[1]
    return arrow.FixedSizeListArray.from_arrays(flat, width, mask=arrow.array(~valid))


def _arrow_lists(values: Array, lengths: Array, valid: Array, arrow: Any) -> Any:
    items = _arrow_column(values, np.ones(len(values), bool), arrow)
    offsets = arrow.array(np.concatenate([[0], np.cumsum(lengths)]), arrow.int32())
    return arrow.ListArray.from_arrays(offsets, items, mask=arrow.array(~valid))
