"""Columns of texts, of any length, through servers: for corpora, and for the engines that hold them.

    columns = sru_inference.Columns("10.0.0.1:50051", model="trec", outputs=["label", "probabilities"])
    columns(["Who wrote Hamlet ?", None])    # {"label": ["HUM", None], "probabilities": float32 [2, labels]}

Calls take the server's Open Inference door (docs/open_inference.md): its tensors have the same form for all tasks and
cost a fraction of what a message for each row does.
"""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import random
import re
import struct
import sys
import threading
import time
from typing import Any, Callable, Deque, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

import grpc
import numpy as np
import numpy.typing as npt

from . import _requests, open_inference_pb2 as pb
from ._connection import Address, Options, check_timeout
from .client import Client
from .errors import CancelledError, InferenceError, InternalError, UnavailableError, UnimplementedError, from_rpc, renumbered

Result = TypeVar("Result")
Array = npt.NDArray[Any]

METHODS = "/inference.GRPCInferenceService/"
ROWS = 1024  # in a call, where the server does not say how many it takes
# A token has at least a byte, so that not even a call of long texts has more tokens than a server lets wait.
CALL_BYTES = 60 << 10
CALLS_READ = 16  # for how many calls texts are read from the column at a time
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
# Tasks whose calls may have texts without tokens if they say so; a translator's always may.
SKIP_EMPTY = ("classifier", "encoder", "language_model", "tagger")
DATATYPES = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8", "INT8": "<i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8"}
_size = struct.Struct("<I")


@dataclasses.dataclass(frozen=True)
class _Model:
    """task: "" on a server that is not ours."""

    name: str
    task: str
    rows: int


class _Server:
    """The methods of one address."""

    def __init__(self, address: Address, connection: Mapping[str, Any]) -> None:
        self.client = Client(address, **connection)
        channel = self.client._channels.get().channel
        self.infer: Any = channel.unary_unary(
            METHODS + "ModelInfer", pb.ModelInferRequest.SerializeToString, pb.ModelInferResponse.FromString
        )
        self.config: Any = channel.unary_unary(
            METHODS + "ModelConfig", pb.ModelConfigRequest.SerializeToString, pb.ModelConfigResponse.FromString
        )


class Columns:
    """Computes columns of texts: columns(texts) -> {output: column}, in order, a value for each row.

    address: of servers, as for Client; or a function that returns it, which is called again when no server is there.
    model: may be left out when the server has one.
    outputs: names of tensors in docs/open_inference.md; none = all of the task that are not optional.
    rows, in_flight: most rows in a call (0 = as many as the server takes), and calls on their way at a time.
    timeout: seconds for one attempt of a call.
    patience: seconds for which a call is repeated that a busy server refuses, after the time that it asks for, or
        that finds no server. A call that is too large for a server is not repeated.
    parameters: of the calls, such as {"truncate": True}; None leaves one out. Those that are not given: "priority"
        is "low", since bulk work can wait, and "skip_empty" is True.
    connection: tls, token and the other options of Client.

    A column is a list, an iterable, a numpy array, a pandas Series or an Arrow array of texts. A mapping of columns
    is what a task with several inputs takes: {"question": ..., "passage": ...}. A row with a null (None, NaN) is not
    sent; its answer is null, and so is that of a text without tokens. What comes back:

        tensor           for Arrow                       for others
        [rows]           numbers or strings              numpy; null: NaN, -1 (lengths: 0), of strings None
        [rows, width]    lists of one size               numpy; null: NaN
        per token        lists, one item a token         array of objects, each an array [tokens] or [tokens, width]
                         (a vector: a list of one size)  without padding; null: None

    Connects with the first call, and copies by pickle connect anew, so it can be made where there is no server.
    Thread-safe. Says on a terminal (stderr) how far it is, after two seconds. Raises an InferenceError (errors.py)
    whose message has the row's index in the column, and ValueError or TypeError for what cannot be sent.
    """

    def __init__(
        self,
        address: Union[Address, Callable[[], Address]] = "localhost:50051",
        *,
        model: str = "",
        version: int = 0,
        outputs: Sequence[str] = ("label",),
        rows: int = 0,
        in_flight: int = 4,
        timeout: float = 60.0,
        patience: float = 600.0,
        parameters: Optional[Mapping[str, Any]] = None,
        **connection: Any,
    ) -> None:
        connection = {name: value for name, value in connection.items() if value is not None}
        self._options = {name: value for name, value in locals().items() if name not in ("self", "connection")}
        self._options.update(connection)
        Options(timeout=timeout, **connection)  # does it have these?
        _requests.text(model, "model")
        self._outputs = _requests.texts(outputs, "outputs")
        for name, value, least in (("rows", rows, 0), ("in_flight", in_flight, 1), ("patience", patience, 0)):
            if value < least:
                raise ValueError(f"{name}: expected at least {least}, found {value!r}")
        check_timeout(timeout, "timeout")
        self._address, self._model_name, self._version = address, model, version
        self._rows, self._in_flight, self._timeout, self._patience = rows, in_flight, timeout, patience
        self._given = dict(parameters or {})
        _set_parameters(pb.ModelInferRequest(), self._given)  # can they be sent?
        self._connection = {"max_message_bytes": (1 << 31) - 1, **connection}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._server: Optional[_Server] = None
        self._model: Optional[_Model] = None

    def __getstate__(self) -> Dict[str, Any]:
        return self._options

    def __setstate__(self, options: Dict[str, Any]) -> None:
        Columns.__init__(self, **options)

    def __enter__(self) -> Columns:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the calls that are running. Calls from now on raise RuntimeError."""
        self._closed.set()
        with self._lock:
            if self._server is not None:
                self._server.client.close()

    def __call__(self, texts: Any) -> Dict[str, Any]:
        columns = {name: _column(name, column) for name, column in _inputs(texts).items()}
        count = len(next(iter(columns.values())))
        for name, column in columns.items():
            if len(column) != count:
                raise ValueError(f"{name}: expected as many rows as the other columns, {count}, found {len(column)}")
        model = self._described()
        answers = _Answers(count, model.task)
        calls: Deque[_Call] = collections.deque()

        def take() -> None:
            call = calls.popleft()
            try:
                answers.add(call.rows, self._repeat(call))
            except InferenceError as error:
                raise renumbered(error, call.rows)

        progress = _Progress(count)
        try:
            for rows, tensors in _parts(columns, count, self._rows or model.rows):
                calls.append(_Call(self, self._request(model, columns, len(rows), tensors), rows))
                if len(calls) >= self._in_flight:
                    take()
                    progress.show(answers.rows)
            while calls:
                take()
                progress.show(answers.rows)
            if not answers.rows:  # nothing but nulls: the answer to one text more says the types of the columns
                tensor = _tensor([b"" if self._parameters(model).get("skip_empty") else b"a"])
                call = _Call(self, self._request(model, columns, 1, [tensor] * len(columns)), range(0))
                answers.add(call.rows, self._repeat(call))
        finally:
            progress.end()
            for call in calls:
                call.cancel()
        arrow = next((_arrow(column) for column in columns.values() if _arrow(column)), None)
        return answers.columns(self._outputs, arrow)

    def _request(self, model: _Model, names: Any, rows: int, tensors: List[bytes]) -> pb.ModelInferRequest:
        version = str(self._version) if self._version else ""
        request = pb.ModelInferRequest(model_name=model.name, model_version=version, raw_input_contents=tensors)
        for name in names:
            request.inputs.add(name=name, datatype="BYTES", shape=[rows])
        outputs = list(self._outputs)
        if model.task == "tagger" or model.task and "encoding" in outputs:
            outputs += [name for name in ("lengths",) if outputs and name not in outputs]
        for name in outputs:
            request.outputs.add(name=name)
        _set_parameters(request, self._parameters(model))
        return request

    def _parameters(self, model: _Model) -> Dict[str, Any]:
        own: Dict[str, Any] = {"priority": "low"} if model.task else {}
        if model.task in SKIP_EMPTY:
            own["skip_empty"] = True
        return {**own, **self._given}

    def connected(self, lost: Optional[_Server] = None) -> _Server:
        """The server; another one than `lost`, if the address is a function."""
        with self._lock:
            if self._closed.is_set():
                raise RuntimeError("the columns are closed")
            if self._server is None or self._server is lost:
                address = self._address() if callable(self._address) else self._address
                self._server = _Server(address, self._connection)
            return self._server

    def _described(self) -> _Model:
        if self._model is None:
            self._model = self._repeat(self._describe)
        return self._model

    def _describe(self) -> _Model:
        server = self.connected()
        name = self._model_name or server.client.model(timeout=self._timeout).name
        request = pb.ModelConfigRequest(name=name, version=str(self._version) if self._version else "")
        try:
            config = server.config(request, **self.call_options(server)).config
        except grpc.RpcError as raised:
            error = from_rpc(raised)
            if not isinstance(error, UnimplementedError):
                raise error from raised
            config = pb.ModelConfig()  # a server of the protocol without Triton's extensions
        task = config.parameters["task"].string_value if config.platform == "sru" else ""
        return _Model(name, task, config.max_batch_size or ROWS)

    def call_options(self, server: _Server) -> Dict[str, Any]:
        connection = server.client._connection
        return {"timeout": connection.timeout(self._timeout), "metadata": connection.metadata("")}

    def _repeat(self, attempt: Callable[[], Result]) -> Result:
        """What `attempt` returns; it is repeated while servers are busy or gone."""
        give_up = 0.0
        pause = FIRST_PAUSE
        while True:
            server = self.connected()
            try:
                return attempt()
            except InferenceError as error:
                now = time.monotonic()
                give_up = give_up or now + self._patience
                gone = isinstance(error, (UnavailableError, CancelledError))
                wait = (pause if error.retry_after is None else error.retry_after) * random.uniform(1, 1.5)
                if self._closed.is_set() or not (gone or error.retry_after is not None) or now + wait > give_up:
                    raise
            pause = min(2 * pause, LONGEST_PAUSE)
            self._closed.wait(wait)
            if gone and callable(self._address):
                self.connected(lost=server)


class _Call:
    """A call on its way: its answer, or that of another attempt when it is asked again."""

    def __init__(self, columns: Columns, request: pb.ModelInferRequest, rows: Sequence[int]) -> None:
        self.rows = rows
        self._columns, self._request = columns, request
        self._attempt: Any = self._start()

    def _start(self) -> Any:
        server = self._columns.connected()
        return server.infer.future(self._request, **self._columns.call_options(server))

    def __call__(self) -> Any:
        attempt, self._attempt = self._attempt or self._start(), None
        try:
            return attempt.result()
        except grpc.FutureCancelledError:
            raise CancelledError("the columns were closed") from None
        except grpc.RpcError as error:
            raise from_rpc(error) from error

    def cancel(self) -> None:
        if self._attempt is not None:
            self._attempt.cancel()


def _inputs(texts: Any) -> Mapping[str, Any]:
    inputs = texts if isinstance(texts, collections.abc.Mapping) else {"text": texts}
    if not inputs:
        raise ValueError("texts: expected at least one column, found none")
    return inputs


def _arrow(column: Any) -> Any:
    """The module pyarrow, if the column is of it."""
    return sys.modules["pyarrow"] if type(column).__module__.partition(".")[0] == "pyarrow" else None


def _column(name: str, values: Any) -> Any:
    """Something that has a length and slices."""
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{name}: expected a column, found a single text; write [text]")
    if _arrow(values):
        if not re.match(r"(large_)?string|null|dictionary<values=(large_)?string", str(values.type)):
            raise TypeError(f"{name}: expected a column of strings, found one of {values.type}")
        return values
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise ValueError(f"{name}: expected an array [rows], found one {list(values.shape)}")
        return values
    return values if isinstance(values, (list, tuple)) else list(values)


def _texts(name: str, column: Any, start: int, stop: int) -> List[Optional[bytes]]:
    """Rows of a column in UTF-8; None for a null."""
    values = column[start:stop]
    arrow = _arrow(column)
    if arrow:
        values = values.cast(arrow.string()).cast(arrow.binary())
        chunks = getattr(values, "chunks", [values])
        return [value for chunk in chunks for value in chunk.to_numpy(zero_copy_only=False).tolist()]
    values = values.tolist() if isinstance(values, np.ndarray) else values
    with contextlib.suppress(UnicodeEncodeError):  # _text() says where
        return [
            value.encode() if type(value) is str else _text(value, f"{name}[{row}]")
            for row, value in enumerate(values, start)
        ]
    return [_text(value, f"{name}[{row}]") for row, value in enumerate(values, start)]


def _text(value: Any, where: str) -> Optional[bytes]:
    if value is None or type(value).__name__ == "NAType" or isinstance(value, float) and value != value:
        return None
    return _requests.text(value, where).encode()


def _tensor(texts: Sequence[bytes]) -> bytes:
    return b"".join([_size.pack(len(text)) + text for text in texts])


def _parts(columns: Mapping[str, Any], count: int, most: int) -> Iterator[Tuple[Sequence[int], List[bytes]]]:
    """For each call, the rows that are not null and the tensors of the inputs."""
    for start in range(0, count, most * CALLS_READ):
        stop = min(start + most * CALLS_READ, count)
        texts: List[Any] = [_texts(name, column, start, stop) for name, column in columns.items()]
        rows: Any = range(start, stop)
        if any(None in column for column in texts):
            rows = [row for row, values in enumerate(zip(*texts), start) if None not in values]
            texts = [[column[row - start] for row in rows] for column in texts]
        ends = np.cumsum(sum(np.array([len(text) for text in column], np.int64) for column in texts))
        first = 0
        while first < len(rows):
            within = np.searchsorted(ends, (ends[first - 1] if first else 0) + CALL_BYTES, "right")
            last = max(first + 1, min(first + most, int(within)))
            yield rows[first:last], [_tensor(column[first:last]) for column in texts]
            first = last


def _set_parameters(request: pb.ModelInferRequest, parameters: Mapping[str, Any]) -> None:
    fields = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}
    for name, value in parameters.items():
        if value is None:
            continue
        if type(value) not in fields:
            raise TypeError(f"parameters[{name!r}]: expected a bool, a number or a text, found {value!r}")
        setattr(request.parameters[name], fields[type(value)], value)


def _array(output: pb.ModelInferResponse.InferOutputTensor, raw: bytes, rows: int) -> Array:
    shape = tuple(output.shape)
    if shape[:1] != (rows,):
        raise InternalError(f"output {output.name}: expected {rows} rows, found the shape {list(shape)}")
    if output.datatype == "BYTES" and len(shape) == 1:
        texts: Array = np.empty(rows, object)
        end = 0
        for row in range(rows):
            begin = end + _size.size
            end = begin + _size.unpack_from(raw, end)[0]
            texts[row] = raw[begin:end].decode()
        return texts
    if output.datatype not in DATATYPES:
        expected = ", ".join(DATATYPES)
        raise InternalError(f"output {output.name}: expected BYTES [rows], {expected}, found {output.datatype} {shape}")
    return np.frombuffer(raw, DATATYPES[output.datatype]).reshape(shape)


def _marked(values: Array) -> Any:
    """Which rows have the mark of a text without tokens."""
    if values.dtype == object:
        return np.equal(values, "").astype(bool)
    if values.dtype.kind == "f":
        return np.isnan(values) if values.ndim == 1 else np.isnan(values[:, :1]).any(axis=1)
    return values < 0 if values.ndim == 1 else np.zeros(len(values), bool)


class _Answers:
    """The answers of calls, put together."""

    def __init__(self, count: int, task: str) -> None:
        self.rows = 0  # that are answered
        self._count, self._task = count, task
        self._valid = np.zeros(count, bool)
        self._sent: List[Array] = []
        self._arrays: Dict[str, List[Array]] = {}
        self._lengths: List[Array] = []
        self._ragged: Dict[str, bool] = {}

    def add(self, rows: Sequence[int], response: pb.ModelInferResponse) -> None:
        count = len(rows)
        arrays = {
            output.name: _array(output, raw, max(count, 1))[:count]
            for output, raw in zip(response.outputs, response.raw_output_contents)
        }
        lengths = arrays.get("lengths")
        blank = np.zeros(count, bool) if lengths is None else lengths <= 0
        for name, values in arrays.items():
            per_token = lengths is not None and (values.ndim == 3 or values.ndim == 2 and self._task == "tagger")
            self._ragged[name] = per_token
            if per_token:
                values = values[np.arange(values.shape[1]) < np.asarray(lengths)[:, None]]
            elif self._task:
                blank |= _marked(values)
            self._arrays.setdefault(name, []).append(values)
        index = np.array(rows, np.int64)
        self._valid[index] = ~blank
        self._sent.append(index)
        self.rows += count
        if lengths is not None:
            self._lengths.append(lengths)

    def columns(self, names: Sequence[str], arrow: Any) -> Dict[str, Any]:
        for name in names:
            if name not in self._arrays:
                raise InternalError(f"outputs: the answer lacks {name!r}, it has {', '.join(self._arrays)}")
        return {name: self._joined(name, arrow) for name in names or self._arrays}

    def _joined(self, name: str, arrow: Any) -> Any:
        values = np.concatenate(self._arrays.pop(name))
        if self._ragged[name]:
            lengths = self._spread(np.concatenate(self._lengths), 0)
            return (_arrow_lists if arrow else _objects)(values, lengths, self._valid, arrow)
        missing: Any = 0 if name == "lengths" else -1 if values.dtype.kind == "i" else np.nan
        values = self._spread(values, None if values.dtype == object else missing)
        return _arrow_column(values, self._valid, arrow) if arrow else values

    def _spread(self, values: Array, missing: Any) -> Array:
        """Of the rows that were sent, to all rows."""
        if self._valid.all():
            return values
        spread = np.full((self._count, *values.shape[1:]), missing, values.dtype)
        spread[np.concatenate(self._sent)] = values
        spread[~self._valid] = missing
        return spread


def _objects(values: Array, lengths: Array, valid: Array, _: Any) -> Array:
    column = np.empty(len(lengths), object)
    for row, part in enumerate(np.split(values, np.cumsum(lengths)[:-1]) if len(lengths) else []):
        column[row] = part if valid[row] else None
    return column


def _bitmap(valid: Array, arrow: Any) -> Any:
    return None if valid.all() else arrow.py_buffer(np.packbits(valid, bitorder="little").tobytes())


def _arrow_column(values: Array, valid: Array, arrow: Any) -> Any:
    if values.dtype == object:
        return arrow.array(values, arrow.string())
    flat = arrow.array(values.reshape(-1))
    if values.ndim == 1:
        return arrow.Array.from_buffers(flat.type, len(values), [_bitmap(valid, arrow), flat.buffers()[1]])
    kind = arrow.list_(flat.type, values.shape[1])
    return arrow.Array.from_buffers(kind, len(values), [_bitmap(valid, arrow)], children=[flat])


def _arrow_lists(values: Array, lengths: Array, valid: Array, arrow: Any) -> Any:
    items = _arrow_column(values, np.ones(len(values), bool), arrow)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    buffers = [_bitmap(valid, arrow), arrow.py_buffer(offsets)]
    return arrow.Array.from_buffers(arrow.list_(items.type), len(lengths), buffers, children=[items])


class _Progress:
    """How many rows are done, on a terminal, of what takes its time."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._begin = time.monotonic()
        self._next = self._begin + 2 if sys.stderr is not None and sys.stderr.isatty() else float("inf")
        self._shown = False

    def show(self, rows: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next, self._shown = now + 0.5, True
            rate = rows / (now - self._begin)
            print(f"\r{rows:,} of {self._count:,} rows, {rate:,.0f} rows/s ", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown:
            print(file=sys.stderr, flush=True)
