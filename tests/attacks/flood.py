"""The common part of the floods: connections that send the same bytes until the server closes them, and are
opened again until time or bytes run out. A connection that is open when time runs out continues until it is as old
as an attacker's connection may get."""

import threading
import time

from harness import CLOSED_WITHIN_S, MIB, Outcome
from http2 import Closed, Connection


class Flood:
    """`begin(connection)` and then `next_part(connection)` until it returns None give what is sent."""

    def __init__(self, target, connections, max_bytes, begin, next_part, acknowledge=True, read=True, pause=0.0):
        self._target, self._begin, self._next_part = target, begin, next_part
        self._acknowledge, self._read, self._pause = acknowledge, read, pause
        self._max_bytes = max_bytes // connections
        self._lock = threading.Lock()
        self.sent = self.opened = self.closed = self.refused = 0
        self.longest_s = 0.0
        self.goaways = set()
        threads = [threading.Thread(target=self._attack) for _ in range(connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _attack(self):
        sent = 0
        while sent < self._max_bytes and self._target.time_left() > 0:
            start = time.monotonic()
            connection = None
            closed = False
            try:
                connection = Connection(self._target.port, acknowledge=self._acknowledge)
                with self._lock:
                    self.opened += 1
                self._send(connection, self._max_bytes - sent, start + CLOSED_WITHIN_S + 0.1)
            except Closed:
                closed = True
            if connection is None:
                with self._lock:
                    self.refused += 1
                time.sleep(0.02)
                continue
            connection.close()
            sent += connection.sent
            with self._lock:
                self.sent += connection.sent
                self.closed += closed
                self.longest_s = max(self.longest_s, time.monotonic() - start)
                if connection.goaway is not None:
                    self.goaways.add("%d %s" % connection.goaway)

    def _send(self, connection, most, end):
        """Sends until `end`, or until all is sent: then the attack is over, and so is the connection."""
        if self._read:
            connection.pump(0.05)
        self._begin(connection)
        while connection.sent < most and time.monotonic() < end:
            part = self._next_part(connection)
            if part is None:
                break
            connection.send(part, end)
            if self._read:
                connection.pump()
            if self._pause:
                time.sleep(self._pause)
        # What has been sent may still be on its way to where it counts.
        connection.pump(min(0.3, max(0, end - time.monotonic())))

    def outcome(self, text="", failures=()):
        closed_after = self.longest_s if self.closed > 0 else None
        what = "%s%.1f MiB sent on %d connections, " % (text, self.sent / MIB, self.opened)
        if closed_after is not None:
            what += "%d closed, none older than %.1f s" % (self.closed, closed_after)
        else:
            what += "none closed"
        if self.goaways:
            what += " (%s)" % ", ".join(sorted(self.goaways))
        return Outcome(what, closed_after_s=closed_after, failures=failures)
