"""TLS records without data: KeyUpdates, for each of which the server computes its next key, all at once and 100 each 10 ms, to both ports. They are made
before they are sent, by the libssl of the system."""

import contextlib
import ctypes
import socket
import time

from harness import ELSEWHERE, Outcome, row, tls
from http2 import Closed, bind

AT_ONCE, CONNECTIONS = 20000, 2
BIO_CTRL_PENDING = 10

ssl = ctypes.CDLL("libssl.so.3")
crypto = ctypes.CDLL("libcrypto.so.3")
for library, names in ((ssl, "TLS_client_method SSL_CTX_new SSL_new"), (crypto, "BIO_s_mem BIO_new")):
    for name in names.split():
        getattr(library, name).restype = ctypes.c_void_p
crypto.BIO_ctrl.restype = ctypes.c_long


class Client:
    """The client's side of a connection, whose handshake is done."""

    def __init__(self, port, protocol):
        self.socket = socket.socket()
        self.socket.settimeout(5)
        bind(self.socket, ELSEWHERE)
        self.socket.connect(("127.0.0.1", port))
        self.ssl = ctypes.c_void_p(ssl.SSL_new(ctypes.c_void_p(ssl.SSL_CTX_new(ctypes.c_void_p(ssl.TLS_client_method())))))
        self.input, self.output = (ctypes.c_void_p(crypto.BIO_new(ctypes.c_void_p(crypto.BIO_s_mem()))) for _ in range(2))
        ssl.SSL_set_bio(self.ssl, self.input, self.output)
        ssl.SSL_set_connect_state(self.ssl)
        offered = bytes([len(protocol)]) + protocol
        ssl.SSL_set_alpn_protos(self.ssl, offered, len(offered))
        while ssl.SSL_do_handshake(self.ssl) != 1:
            self.send(self.made())
            data = self.socket.recv(1 << 16)
            if not data:
                raise Closed("the handshake failed")
            crypto.BIO_write(self.input, data, len(data))
        self.send(self.made())

    def made(self):
        """What is to be sent."""
        size = crypto.BIO_ctrl(self.output, BIO_CTRL_PENDING, 0, None)
        buffer = ctypes.create_string_buffer(max(1, size))
        crypto.BIO_read(self.output, buffer, size)
        return buffer.raw[:size]

    def updates(self, count):
        for _ in range(count):
            ssl.SSL_key_update(self.ssl, 0)
            ssl.SSL_do_handshake(self.ssl)
        return self.made()

    def send(self, data):
        self.socket.sendall(data)


@row(given=tls, seconds=7)
def key_updates(target):
    """KeyUpdates all at once, and a trickle of them, over HTTP/2 and HTTP/1.1."""
    held, sent = [], 0
    for port, protocol in ((target.port, b"h2"), (target.http_port, b"http/1.1")):
        held += [(client, client.updates(AT_ONCE)) for client in (Client(port, protocol) for _ in range(CONNECTIONS))]
    for client, updates in held:
        with contextlib.suppress(OSError):
            client.send(updates)
            sent += AT_ONCE
    trickled = closed = 0
    while target.time_left() > 0:
        try:
            client = Client(target.http_port, b"http/1.1")
            while target.time_left() > 0:
                client.send(client.updates(100))
                trickled += 100
                time.sleep(0.01)
        except (OSError, Closed):
            closed += 1
    text = "%d at once, %d little by little, %d connections closed" % (sent, trickled, closed)
    return Outcome(text, failures=[] if target.metric("sru_door_floods_total") else ["no flood was counted"])
