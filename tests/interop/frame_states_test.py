"""Every type of frame in every state of a stream, without and with the flags that HTTP/2 does not define, and wrong sizes (RFC 9113).

    [SRU_GRPC_TRANSPORT=library] frame_states_test.py SRU_INTEROP_SERVER

Each cell of two tables has a connection of its own: it brings a stream into a state, sends a frame and compares what comes with the cell's
letter. After each cell a client made of python3-h2 makes an ordinary call on a new connection. python3-hyperframe says which flags are
defined. Against gRPC's library only the cells are compared that are no errors and have no undefined flags; it must live through the others.
"""

import contextlib
import socket
import sys

try:
    import h2.config
    import h2.connection
    import h2.events
    import hyperframe.frame
except ImportError as missing:
    print("SKIPPED: %s (%s)" % (missing, sys.executable))
    sys.exit(77)

from transports import LIBRARY, either, interop_server
from http2 import (
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, PING, PRIORITY, PUSH_PROMISE, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, frame, literal, reset, settings,
)  # fmt: skip
from http2_rules_test import (
    CALL_PATH, GRPC_FIELDS, MAX_FRAME, PADDED, SETTLED, WITH_PRIORITY, Peer, Request, Wait, closes, word,
)  # fmt: skip

ALTSVC, UNKNOWN = 10, 22
END = END_STREAM | END_HEADERS
CALL = Request("call", "POST", CALL_PATH, GRPC_FIELDS)
NO_CALL = Request("no call", "POST", "/nothing/Here", GRPC_FIELDS)  # answered by trailers only
# Answered before its body has come, which may still come.
EARLY_PAGE = Request("page", "POST", "/early", [("expect", "100-continue")])
MESSAGE = bytes(5)  # an empty one
LAST_DATA = frame(DATA, END_STREAM, 1, MESSAGE)
FIRST_HALF, SECOND_HALF = CALL.block()[:20], CALL.block()[20:]
RESET = Wait(lambda f: f[0] == RST_STREAM)
ANSWER = Wait(lambda f: f[2] == 1 and f[0] in (DATA, HEADERS) and f[1] & END_STREAM)

# The frames that bring stream 1 into each state, and those that complete its call after a frame that does not. The last state is that of stream 2.
STATES = {
    "idle": ([], CALL.head()),
    "open": ([CALL.head(end=False)], LAST_DATA),
    "within its header block": ([frame(HEADERS, END_STREAM, 1, FIRST_HALF)], b""),
    "half-closed (remote)": (
        [settings((INITIAL_WINDOW_SIZE, 0)), SETTLED, CALL.head(end=False), LAST_DATA], settings((INITIAL_WINDOW_SIZE, 65535)),
    ),
    "half-closed (local)": ([EARLY_PAGE.head(end=False), ANSWER], None),
    "ended": ([CALL.head(end=False), LAST_DATA, ANSWER], None),
    "reset by the client": ([CALL.head(end=False), reset(1)], None),
    "reset by the server": ([NO_CALL.head(end=False), RESET], None),
    "passed over": ([CALL.head(3)], None),
    "never opened by the server": ([], None),
}  # fmt: skip
# Two of the states of a page, which gRPC's library does not answer; their letters are a call's.
PAGE = Request("page", "GET", "/", [])
PAGES = {
    "ended": ([PAGE.head(), ANSWER], None),
    "reset by the client": ([PAGE.head(end=False, change={":method": "POST"}), reset(1)], None),
}

# A, a: the call of the stream is answered; after that the connection takes another call, or may end.
# -, .: the frame does nothing more, or ends its stream; the connection takes another call, or may end.
# P, C, S: the connection ends with PROTOCOL_ERROR, STREAM_CLOSED, FRAME_SIZE_ERROR. p: the stream does.
#
# RFC 9113 leaves some of them open. STREAM_CLOSED may end the stream or the connection (5.1). Frames may be ignored on a stream that the
# server has reset, and RST_STREAM and WINDOW_UPDATE on all that are closed. Frames that have two faults get either error.
# One cell does not follow it: RST_STREAM of a stream that is idle (docs/decisions/0003-native-transport.md).
FRAMES = [  # on the stream; a letter for each state
    ("DATA", DATA, END_STREAM, MESSAGE, "PAPC-CC-CP"),
    ("HEADERS of a request", HEADERS, END, CALL.block(), "ApPCpCC-PP"),
    ("HEADERS of trailers", HEADERS, END, literal("x-test", "ok"), "pAPC-CC-PP"),
    ("PRIORITY", PRIORITY, 0, word(0) + b"\xff", "AAPA------"),
    ("RST_STREAM", RST_STREAM, 0, word(8), "A-P------P"),
    ("SETTINGS", SETTINGS, 0, b"", "PPPPPPPPPP"),
    ("PUSH_PROMISE", PUSH_PROMISE, END_HEADERS, word(2) + CALL.block(), "PPPPPPPPPP"),
    ("PING", PING, 0, b"whatever", "PPPPPPPPPP"),
    ("GOAWAY", GOAWAY, 0, bytes(8), "PPPPPPPPPP"),
    ("WINDOW_UPDATE", WINDOW_UPDATE, 0, word(100), "PAPA-----P"),
    ("CONTINUATION", CONTINUATION, END_HEADERS, SECOND_HALF, "PPAPPPPPPP"),
    ("ALTSVC", ALTSVC, 0, b"\0\0h2=:1", "AAPA------"),
    ("an unknown frame", UNKNOWN, 0, b"anything", "AAPA------"),
]
CONNECTION_FRAMES = [  # on stream 0, while stream 1 is in a state
    *((name, kind, flags, payload, "P" * 10) for name, kind, flags, payload, _ in FRAMES[:4]),
    ("RST_STREAM", RST_STREAM, 0, word(8), "PPPPPPPPPP"),
    ("SETTINGS", SETTINGS, 0, b"", "AAPA------"),
    ("PUSH_PROMISE", PUSH_PROMISE, END_HEADERS, word(2) + CALL.block(), "PPPPPPPPPP"),
    ("PING", PING, 0, b"whatever", "AAPA------"),
    ("GOAWAY", GOAWAY, 0, bytes(8), ".aPa......"),
    ("WINDOW_UPDATE", WINDOW_UPDATE, 0, word(100), "AAPA------"),
    ("CONTINUATION", CONTINUATION, END_HEADERS, SECOND_HALF, "PPPPPPPPPP"),
    ("ALTSVC", ALTSVC, 0, b"\0\0h2=:1", "AAPA------"),
    ("an unknown frame", UNKNOWN, 0, b"anything", "AAPA------"),
]
TOO_LARGE = bytes(MAX_FRAME + 1)
LONG_FIELD = literal("x-long", "y" * MAX_FRAME)
SIZES = [  # on the stream
    ("DATA, empty", DATA, END_STREAM, b"", "PAPC-CC-CP"),
    ("DATA, too large", DATA, 0, TOO_LARGE, "SSPCSCCSCS"),
    ("DATA, too short for its padding", DATA, PADDED, b"\x06test", "PPPCPCC-CP"),
    ("DATA, too short for the length of its padding", DATA, PADDED, b"", "PPPCPCC-CP"),
    ("HEADERS, empty", HEADERS, END, b"", "pAPC-CC-PP"),
    ("HEADERS, too large", HEADERS, END, CALL.block() + LONG_FIELD, "SSPCSCCSPS"),
    ("HEADERS, too short for their priority", HEADERS, END | WITH_PRIORITY, bytes(4), "SSPCSCCSPS"),
    ("HEADERS, too short for their padding", HEADERS, END | PADDED, b"\xff" + CALL.block(), "PPPCPCCPPP"),
    ("HEADERS, too short for the length of their padding", HEADERS, END | PADDED, b"", "PPPCPCCPPP"),
    ("CONTINUATION, too large", CONTINUATION, END_HEADERS, SECOND_HALF + LONG_FIELD, "SSSSSSSSSS"),
    ("an unknown frame, empty", UNKNOWN, 0, b"", "AAPA------"),
    ("an unknown frame, too large", UNKNOWN, 0, TOO_LARGE, "SSPSSSSSSS"),
    *(
        ("%s of %d bytes" % (name, size), kind, 0, bytes(size), "SSPSSSSSSS")
        for name, kind, sizes in (
            ("PRIORITY", PRIORITY, (0, 4, 6)), ("RST_STREAM", RST_STREAM, (0, 3, 5)), ("PUSH_PROMISE", PUSH_PROMISE, (0, 3)),
            ("WINDOW_UPDATE", WINDOW_UPDATE, (0, 3, 5)),
        )
        for size in (*sizes, MAX_FRAME + 1)
    ),
]  # fmt: skip
CONNECTION_SIZES = [  # on stream 0
    ("SETTINGS that acknowledge, of 6 bytes", SETTINGS, ACK, bytes(6), "SSPSSSSSSS"),
    *(
        ("%s of %d bytes" % (name, size), kind, 0, bytes(size), "SSPSSSSSSS")
        for name, kind, sizes in (
            ("SETTINGS", SETTINGS, (1, 5, 7, MAX_FRAME + 2)), ("PING", PING, (0, 7, 9)), ("GOAWAY", GOAWAY, (0, 7)),
            ("WINDOW_UPDATE", WINDOW_UPDATE, (0, 3, 5)),
        )
        for size in (*sizes, MAX_FRAME + 1)
    ),
]  # fmt: skip


def undefined_flags(kind):
    """Each of the flags that a type of frame does not have, and at the end all of them."""
    known = hyperframe.frame.FRAMES.get(kind)
    defined = sum(flag.bit for flag in known.defined_flags) if known else 0
    return [*(1 << bit for bit in range(8) if not defined >> bit & 1), 0xFF & ~defined]


def cells():
    """(name, steps, what completes the call, expected letter, undefined flags)."""
    for own, rows in ((True, FRAMES), (False, CONNECTION_FRAMES), (True, SIZES), (False, CONNECTION_SIZES)):
        for name, kind, flags, payload, letters in rows:
            undefined = undefined_flags(kind) if rows in (FRAMES, CONNECTION_FRAMES) else []
            of_states = [*zip(STATES.items(), letters, strict=True)]
            pages = {} if LIBRARY else PAGES
            of_states += [(page, letters[list(STATES).index(page[0])]) for page in pages.items()]
            for (state, (steps, finish)), letter in of_states:
                stream = 0 if not own else 2 if state == "never opened by the server" else 1
                if letter not in "Aa":
                    finish = None
                elif kind in (DATA, HEADERS):  # they have completed it
                    finish = b""
                for extra in (0, *undefined[0 if state == "open" else -1 :]):
                    title = "%s on stream %d, %s" % (name, stream, state) + (", flags 0x%x" % extra if extra else "")
                    yield title, [*steps, frame(kind, flags | extra, stream, payload)], finish, letter, extra


def outcome(port, steps, finish):
    with contextlib.closing(Peer(port)) as peer:
        for step in steps:
            if not isinstance(step, Wait):
                peer.send(step)
            elif peer.await_frame(step.wanted) is None:
                return "the state is not reached"
        end = None
        if finish is not None:
            peer.send(finish)
            end = peer.await_frame(lambda f: ANSWER.wanted(f) or f[0] in (GOAWAY, RST_STREAM))
        peer.send(NO_CALL.head(101))
        lives = peer.await_frame(lambda f: f[0] == HEADERS and f[2] == 101) is not None
        for kind, _, stream, payload in peer.frames:
            if kind == GOAWAY and any(payload[4:8]):
                return "?P?F?CS???"[payload[7]] if closes(peer) else "GOAWAY, and stays open"
            if kind == RST_STREAM and stream != 101 and any(payload):
                return "?p?f?cs???"[payload[3]]
        return "-A"[end is not None] if lives else ".a"[end is not None]


def ordinary_call(port):
    """The status of a call by a client made of python3-h2, which takes only what HTTP/2 allows; what went wrong if there is none."""
    client = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    try:
        with socket.create_connection(("127.0.0.1", port), 20) as connection:
            client.initiate_connection()
            client.send_headers(1, CALL.fields())
            client.send_data(1, MESSAGE, end_stream=True)
            fields = {}
            connection.sendall(client.data_to_send())
            while data := connection.recv(65536):
                for event in client.receive_data(data):
                    fields.update(getattr(event, "headers", ()))
                    if isinstance(event, h2.events.StreamEnded):
                        return fields["grpc-status"]
                connection.sendall(client.data_to_send())
            return "closed"
    except OSError as error:
        return str(error)


def main():
    compares_errors = either(True, False, "frames that HTTP/2 forbids, or flags that it does not define")
    passed = failed = 0
    with interop_server(sys.argv[1], quiet=True) as port:
        for title, steps, finish, letter, flags in cells():
            got = outcome(port, steps, finish)
            status = ordinary_call(port)
            compared = compares_errors or (letter in "Aa-." and not flags)
            fine = status == "0" and (not compared or got in {"a": "Aa", ".": "-."}.get(letter, letter))
            passed += fine
            failed += not fine
            if not fine:
                print("FAILED %s: %s instead of %s, and the next call's status is %s" % (title, got, letter, status))
    print("%d cells passed, %d failed" % (passed, failed))
    return 0 if failed == 0 and passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
