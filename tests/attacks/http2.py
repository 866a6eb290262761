"""HTTP/2 and gRPC by hand, for everything that no client library does. Uses the standard library only.

    connection = Connection(port)
    answer = connection.call("/grpc.health.v1.Health/Check", b"")
    stream = connection.start("/sru.v1.InferenceService/Classify")
    connection.send(frame(RST_STREAM, 0, stream, b"\\0\\0\\0\\x08"))

Headers go out as literals without Huffman coding or indexing, and the server is told not to index either,
so that nothing has to be remembered from one header block to the next. Not thread-safe.
"""

import select
import socket
import ssl
import struct
import time

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 1
END_HEADERS = 4

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE = 1, 2, 3, 4

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DEFAULT_WINDOW = 65535
MAX_FRAME = 16384

CODES = (
    "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED "
    "RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS "
    "UNAUTHENTICATED"
).split()

# The values of ":status" in HPACK's static table; of its other fields only the position matters.
_STATIC = {8: "200", 9: "204", 10: "206", 11: "304", 12: "400", 13: "404", 14: "500"}


class Closed(Exception):
    """The server has closed the connection, perhaps after a GOAWAY."""


def bind(unconnected, source):
    """Connects from this address; the kernel takes the port only then, so that ports of earlier servers may come again."""
    unconnected.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
    unconnected.bind((source, 0))


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def settings(*pairs):
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", key, value) for key, value in pairs))


def window_update(stream, by):
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", by))


def reset(stream, error=8):
    return frame(RST_STREAM, 0, stream, struct.pack(">I", error))


def varint(value):
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(value, prefix_bits, first=0):
    """HPACK's integer (RFC 7541, 5.1); `first` has the bits before the prefix."""
    most = (1 << prefix_bits) - 1
    return bytes([first | value]) if value < most else bytes([first | most]) + varint(value - most)


def text(value):
    value = value if isinstance(value, bytes) else value.encode()
    return integer(len(value), 7) + value


def literal(name, value, indexed=False):
    """A header field; with `indexed` the receiver puts it into its table, where 62 is the newest."""
    return (b"\x40" if indexed else b"\0") + text(name) + text(value)


def request_fields(path, headers=(), tls=False, content_type="application/grpc"):
    return [
        (":method", "POST"),
        (":scheme", "https" if tls else "http"),
        (":path", path),
        (":authority", "localhost"),
        ("content-type", content_type),
        ("te", "trailers"),
        *headers,
    ]


def header_block(path, headers=(), tls=False, indexed=False, **content):
    return b"".join(literal(*field, indexed=indexed) for field in request_fields(path, headers, tls, **content))


def message(body, compressed=False, length=None):
    """gRPC's frame around a message; `length` announces another one."""
    return struct.pack(">BI", compressed, len(body) if length is None else length) + body


def field(number, value):
    """A field of a protobuf message: bytes or a number."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)


class _Reader:
    """Takes numbers and strings off the front of bytes."""

    def __init__(self, data):
        self.data, self.position = data, 0

    def left(self):
        return self.position < len(self.data)

    def take(self, size):
        self.position += size
        return self.data[self.position - size : self.position]

    def varint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def integer(self, prefix_bits):
        most = (1 << prefix_bits) - 1
        value = self.take(1)[0] & most
        return value if value < most else most + self.varint()

    def text(self):
        is_huffman = self.data[self.position] & 128
        value = self.take(self.integer(7))
        return (huffman_text(value) if is_huffman else value).decode("latin-1")


def fields(data):
    """(number, value or bytes, the whole field's bytes) of each field at the top of a protobuf message."""
    reader = _Reader(data)
    while reader.left():
        begin = reader.position
        key = reader.varint()
        if key & 7 == 0:
            value = reader.varint()
        else:
            value = reader.take(reader.varint() if key & 7 == 2 else {1: 8, 5: 4}[key & 7])
        yield key >> 3, value, data[begin : reader.position]


# The lengths of HPACK's Huffman codes (RFC 7541, appendix B), A = 5 bits. Codes of a length follow the order of their bytes.
_CODE_LENGTHS = (
    "ISXXXXXXXTZXXZXXXXXXXXZXXXXXXXXXBFFHIBDGFFDGDBBBAAABBBBBBBCDKBHFIBCCCCCCCCCCCCCCCCCCCC"
    "CCDCDIOIJBKABABABBBACCBBBABCBAABCCCCCKGJIXPRPPRRRSRSSSSSTSTTRSTSSSSQRSRSSTRQPRRSSQSRRT"
    "QRSSQQRQSRSSPRRRSRRSVVPORSRUVVVWWVTUOQVWWVWTQQVVXWWWPTPQRQQSRRUUTTVSVWVVWWWWWXWWWWWV"
)


def _codes():
    codes, code, length = {}, 0, 0
    for bits, byte in sorted((ord(letter) - 60, byte) for byte, letter in enumerate(_CODE_LENGTHS)):
        code <<= bits - length
        codes[bits, code] = byte
        code, length = code + 1, bits
    return codes


_HUFFMAN = _codes()


def huffman_text(data):
    found, code, length = bytearray(), 0, 0
    for byte in data:
        for bit in range(7, -1, -1):
            code, length = code << 1 | byte >> bit & 1, length + 1
            if (length, code) in _HUFFMAN:
                found.append(_HUFFMAN[length, code])
                code = length = 0
    return bytes(found)  # what is left is padding


def read_fields(block):
    """The header fields of a block, without those that refer to a table of the connection."""
    reader, found = _Reader(block), {}
    while reader.left():
        first = block[reader.position]
        if first & 0x80:
            index = reader.integer(7)
            if index in _STATIC:
                found[":status"] = _STATIC[index]
        elif first & 0xE0 == 0x20:
            reader.integer(5)  # a new size of the table
        else:
            index = reader.integer(6 if first & 0x40 else 4)
            name = reader.text() if index == 0 else ":status" if index in _STATIC else None
            value = reader.text()
            if name is not None:
                found[name] = value
    return found


def heads(connection, blocks, then=lambda stream: b"", flags=END_HEADERS):
    """Frames that open a stream with each of the header blocks, and what `then` says of that stream."""
    streams = [(connection.next_stream(), block) for block in blocks]
    return b"".join(frame(HEADERS, flags, stream, block) + then(stream) for stream, block in streams)


class Answer:
    """`code` is gRPC's, or what else ended the call: RST_STREAM, CLOSED, TIMEOUT."""

    def __init__(self, code, details="", body=b""):
        self.code, self.details, self.body = code, details, body

    def __repr__(self):
        return "%s %s" % (self.code, self.details)


class Connection:
    """A connection with its preface and SETTINGS sent.

    `window` is SETTINGS_INITIAL_WINDOW_SIZE; without `acknowledge` the server's SETTINGS get no ACK until
    somebody says so; `receive_buffer` bounds what the kernel takes in for a client that does not read;
    `source` is the address that the server sees.
    """

    def __init__(self, port, window=None, acknowledge=True, tls=None, receive_buffer=None, timeout=5, extra=(), source=None):
        raw = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        raw.settimeout(timeout)
        try:
            if source is not None:
                bind(raw, source)
            raw.connect(("127.0.0.1", port))
        except OSError as error:
            raw.close()
            raise Closed(str(error)) from error
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.tls = tls is not None
        if self.tls:
            raw = tls.wrap_socket(raw, server_hostname="localhost")
        self.socket = raw
        self.acknowledge = acknowledge
        self.sent = 0
        self.goaway = None  # (error code, text)
        self.resets = {}  # stream -> error code
        self._next_stream = 1
        self._input = bytearray()
        self._window = DEFAULT_WINDOW
        self._initial_window = DEFAULT_WINDOW
        self._windows = {}
        pairs = [(HEADER_TABLE_SIZE, 0), (ENABLE_PUSH, 0)]
        if window is not None:
            pairs.append((INITIAL_WINDOW_SIZE, window))
        self.send(PREFACE + settings(*pairs, *extra))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data, deadline=None):
        """Sends all of it, or as much as the server takes until `deadline`; returns how much it took."""
        view = memoryview(data)
        position = 0
        try:
            while position < len(view):
                if deadline is not None:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        break
                    self.socket.settimeout(left)
                try:
                    position += self.socket.send(view[position : position + (1 << 18)])
                except (socket.timeout, ssl.SSLWantWriteError):
                    break
        except OSError as error:
            raise Closed(str(error)) from error
        finally:
            self.sent += position
        if deadline is None and position < len(view):
            raise Closed("the server has not read for the time of the socket")
        return position

    def next_stream(self):
        stream = self._next_stream
        self._next_stream += 2
        return stream

    def start(self, path, headers=(), body=None, end=False, **content):
        """Opens a call; `body` (framed already) must fit into the windows. Returns its stream."""
        stream = self.next_stream()
        self._windows[stream] = self._initial_window
        data = frame(HEADERS, END_HEADERS, stream, header_block(path, headers, self.tls, **content))
        if body is not None:
            data += frame(DATA, END_STREAM if end else 0, stream, body)
            self._window -= len(body)
            self._windows[stream] -= len(body)
        self.send(data)
        return stream

    def send_body(self, stream, data, end=True, deadline=None):
        """Sends DATA as fast as flow control lets it. Returns False if the stream was reset or time is up."""
        deadline = deadline or time.monotonic() + 10
        position = 0
        while position < len(data):
            self.pump()
            if stream in self.resets or time.monotonic() > deadline:
                return False
            size = min(len(data) - position, MAX_FRAME, self._window, self._windows[stream])
            if size <= 0:
                self.pump(min(0.1, max(0, deadline - time.monotonic())))
                continue
            last = end and position + size == len(data)
            part = frame(DATA, END_STREAM if last else 0, stream, data[position : position + size])
            if self.send(part, deadline) < len(part):
                return False
            self._window -= size
            self._windows[stream] -= size
            position += size
        return True

    def pump(self, wait=0):
        """Handles what has arrived; frames of calls that nobody waits for are dropped."""
        got = False
        while self._readable(0 if got else wait):
            self._receive()
            got = True
            while True:
                one = self._cut()
                if one is None:
                    break
                self._handle(*one)
        return got

    def read_frame(self, timeout):
        """Returns (kind, flags, stream, payload), or None if nothing comes for that long."""
        deadline = time.monotonic() + timeout
        while True:
            one = self._cut()
            if one is not None:
                self._handle(*one)
                return one
            left = deadline - time.monotonic()
            if left <= 0 or not self._readable(left):
                return None
            self._receive()

    def finish(self, stream, timeout=5):
        """Waits for the answer of a call."""
        deadline = time.monotonic() + timeout
        block, body, found = b"", bytearray(), {}
        last = False
        try:
            while True:
                one = self.read_frame(max(0, deadline - time.monotonic()))
                if one is None:
                    return Answer("TIMEOUT")
                kind, flags, where, payload = one
                if where != stream:
                    continue
                if kind == RST_STREAM:
                    return Answer("RST_STREAM", str(struct.unpack(">I", payload)[0]))
                if kind == DATA:
                    body += payload
                if kind in (HEADERS, CONTINUATION):
                    block += payload
                    if flags & END_HEADERS:
                        found.update(read_fields(block))
                        block = b""
                if kind in (DATA, HEADERS) and flags & END_STREAM:
                    last = True
                if last and not block:
                    break
        except Closed as error:
            return Answer("CLOSED", str(error))
        status = found.get("grpc-status")
        if status is None or not status.isdigit() or int(status) >= len(CODES):
            return Answer("HTTP", str(found))
        return Answer(CODES[int(status)], found.get("grpc-message") or "", bytes(body[5:]))

    def call(self, path, request=b"", headers=(), timeout=5, compressed=False):
        """Makes one call; `request` is the message."""
        deadline = time.monotonic() + timeout
        body = message(request, compressed)
        try:
            if len(body) <= MAX_FRAME and len(body) <= self._window:
                stream = self.start(path, headers, body, end=True)
            else:
                stream = self.start(path, headers)
                if not self.send_body(stream, body, deadline=deadline):
                    if stream in self.resets:
                        return Answer("RST_STREAM", str(self.resets[stream]))
                    return Answer("TIMEOUT")
        except Closed as error:
            return Answer("CLOSED", str(error))
        return self.finish(stream, max(0, deadline - time.monotonic()))

    def closed_within(self, seconds):
        """Whether the server closes the connection within that time."""
        deadline = time.monotonic() + seconds
        try:
            while self.read_frame(max(0, deadline - time.monotonic())) is not None:
                pass
        except Closed:
            return True
        return False

    def _readable(self, wait):
        if self.tls and self.socket.pending():
            return True
        return bool(select.select([self.socket], [], [], wait)[0])

    def _receive(self):
        try:
            data = self.socket.recv(1 << 18)
        except OSError as error:
            raise Closed(str(error)) from error
        if not data:
            raise Closed("end of stream" if self.goaway is None else "GOAWAY %d %s" % self.goaway)
        self._input += data

    def _cut(self):
        """The next whole frame of the received bytes, or None."""
        if len(self._input) < 9:
            return None
        size = int.from_bytes(self._input[:3], "big")
        if len(self._input) < 9 + size:
            return None
        kind, flags, stream = struct.unpack(">BBI", self._input[3:9])
        payload = bytes(self._input[9 : 9 + size])
        del self._input[: 9 + size]
        return kind, flags, stream & 0x7FFFFFFF, payload

    def _handle(self, kind, flags, stream, payload):
        if kind == SETTINGS and not flags & ACK:
            for position in range(0, len(payload), 6):
                key, value = struct.unpack_from(">HI", payload, position)
                if key == INITIAL_WINDOW_SIZE:
                    for one in self._windows:
                        self._windows[one] += value - self._initial_window
                    self._initial_window = value
            if self.acknowledge:
                self.send(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.send(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            by = struct.unpack(">I", payload)[0]
            if stream == 0:
                self._window += by
            elif stream in self._windows:
                self._windows[stream] += by
        elif kind == RST_STREAM:
            self.resets[stream] = struct.unpack(">I", payload)[0]
        elif kind == GOAWAY:
            self.goaway = (struct.unpack_from(">I", payload, 4)[0], payload[8:].decode("latin-1"))
        elif kind == DATA and payload:
            more = b"" if flags & END_STREAM else window_update(stream, len(payload))
            self.send(window_update(0, len(payload)) + more)
