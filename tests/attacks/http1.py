"""HTTP/1.1 and bytes that are no HTTP by hand, for the attacks."""

import http.client
import json
import socket
import time

from http2 import Closed, bind


class Tcp:
    """A connection for bytes that are no HTTP/2."""

    def __init__(self, port, source="127.0.0.1", receive_buffer=None, timeout=3.0):
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        try:
            bind(self.socket, source)
            self.socket.connect(("127.0.0.1", port))
        except OSError as error:
            self.socket.close()
            raise Closed(str(error)) from error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        """Sends as much as the server takes, each piece within the socket's timeout; returns whether it took all."""
        try:
            for start in range(0, len(data), 1 << 18):
                self.socket.sendall(data[start : start + (1 << 18)])
            return True
        except OSError:
            return False

    def receive(self, seconds=3.0, enough=lambda data: False):
        """What comes until the connection ends, time is up or it is enough, and whether it ended."""
        data, deadline = b"", time.monotonic() + seconds
        while not enough(data):
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                more = self.socket.recv(1 << 16)
            except socket.timeout:
                return data, False
            except OSError:
                return data, True
            if not more:
                return data, True
            data += more
        return data, False


def post(path, body=b"", kind="application/json", headers=(), length=None, method="POST"):
    """A request; `length` announces another one than the body's."""
    lines = ["%s %s HTTP/1.1" % (method, path), "Host: localhost", "Content-Type: " + kind, *headers]
    lines.append("Content-Length: %d" % (len(body) if length is None else length))
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def ask(port, request, seconds=3.0, source="127.0.0.1"):
    """The status of the answer to one request, 0 if there is none."""
    try:
        with Tcp(port, source) as one:
            one.send(request)
            data, _ = one.receive(seconds, lambda data: data[:9].startswith(b"HTTP/1.1 ") and len(data) >= 12)
    except Closed:
        return 0
    return int(data[9:12]) if data.startswith(b"HTTP/1.1 ") and len(data) >= 12 else 0


def call(port, path, body, timeout=20):
    """The status of a call as JSON, and how long the answer is; (0, 0) if there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    text = body if isinstance(body, str) else json.dumps(body, separators=(",", ":"))
    try:
        connection.request("POST", path, text, {"content-type": "application/json"})
        response = connection.getresponse()
        size = 0
        while part := response.read(1 << 18):
            size += len(part)
        return response.status, size
    except (OSError, http.client.HTTPException):
        return 0, 0
    finally:
        connection.close()
