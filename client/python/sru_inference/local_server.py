"""One server a node, shared by the processes of a user that ask for the same models and flags.

    from sru_inference import Client, local_server

    with local_server("models/pretrained") as server:
        client = Client(server.address)

The first process that asks starts the server, and the server drains when the last of them has let go or has ended, however it
ended: each holds a lock that the system takes back. Nothing else watches them. The server is no process' child, since engines end
the children of a worker with the worker. Linux, and processes that share a file system and the folder for temporary files.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from typing import IO, Dict, Optional, Union

from ._common import Closable, Progress

_LOG_LINES = 10  # of a server that does not start
_lock = threading.Lock()
_servers: Dict[str, LocalServer] = {}  # by folder: what this process uses


class LocalServer(Closable):
    """address: HOST:PORT of its calls. folder: where its log is.

    This process uses the server until close(), or the end of `with`, or its own end. As the address of Columns, it starts a server
    in place of one that has crashed."""

    def __init__(self, folder: str, command: list[str]) -> None:
        self.folder = folder
        self._command = command
        self.address = ""
        self._uses = 0
        self._users = os.open(os.path.join(folder, "users"), os.O_RDWR | os.O_CREAT, 0o600)
        _flock(self._users, "LOCK_SH")  # waits while a server that drains keeps the lock

    def close(self) -> None:
        """Of several uses in this process, the last one lets go."""
        with _lock:
            self._uses -= 1
            if self._uses == 0:
                del _servers[self.folder]
                os.close(self._users)

    def __call__(self) -> str:
        self.address = _address(self.folder, self._command)
        return self.address


def local_server(model_repository: str, *flags: str, program: Optional[str] = None) -> LocalServer:
    """The server of these models on this node, which is started if there is none.

    flags: of sru_server, such as "--backend=cpu"; paths in them are to be absolute, as processes may run in different folders.
    program: sru_server; by default that of the package sru_server, or else the one of PATH.
    A server that does not start is a RuntimeError with the last lines of its log. Called again, it finds a server that runs, so it
    is also what to do when one has crashed.
    """
    command = [_find(program), f"--model_repository={os.path.abspath(model_repository)}"]
    command += ["--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0", "--http_listen=", *flags]
    name = hashlib.sha256(json.dumps(command).encode()).hexdigest()[:16]
    folder = os.path.join(tempfile.gettempdir(), f"sru-{os.getuid()}-{name}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    found = os.lstat(folder)
    if found.st_uid != os.getuid() or found.st_mode & 0o777 != 0o700:
        raise PermissionError(f"{folder}: expected a folder of this user alone (mode 700), found another one")
    with _lock:
        server = _servers.get(folder) or LocalServer(folder, command)
        try:
            server()
        except BaseException:
            if folder not in _servers:
                os.close(server._users)  # what has started ends unless others use it
            raise
        _servers[folder] = server
        server._uses += 1
    return server


def _find(program: Optional[str]) -> str:
    """The path of the program."""
    package = None if program else importlib.util.find_spec("sru_server")
    if package and package.submodule_search_locations:
        program = os.path.join(package.submodule_search_locations[0], "bin", "sru_server")
    path = shutil.which(program or "sru_server")
    if path is None:
        raise FileNotFoundError(
            f"{program or 'sru_server'}: expected a program; name it (program='build/bin/sru_server') or put it into PATH"
        )
    return os.path.abspath(path)


def _flock(file: Union[int, IO[str]], *flags: str) -> bool:
    """Whether this process has the lock now."""
    import fcntl  # not on Windows, where the rest of the package works

    try:
        fcntl.flock(file, sum(getattr(fcntl, flag) for flag in flags))
    except BlockingIOError:
        return False
    return True


def _address(folder: str, command: list[str]) -> str:
    """Where the server listens, once it does."""
    path = os.path.join(folder, "address")
    started, progress = False, Progress()
    with open(os.path.join(folder, "start"), "a") as start:
        _flock(start, "LOCK_EX")  # one of all processes looks and starts
        while True:
            with open(os.path.join(folder, "running"), "a") as running:
                # A server inherits this lock and has it for as long as it lives.
                if _flock(running, "LOCK_EX", "LOCK_NB"):
                    if started:
                        with open(os.path.join(folder, "log"), encoding="utf-8", errors="replace") as log:
                            end = "".join(log.readlines()[-_LOG_LINES:])
                        raise RuntimeError(f"{command[0]} did not start; its log ends:\n{end}")
                    with contextlib.suppress(FileNotFoundError):
                        os.remove(path)  # of a server that was killed
                    _start(folder, command, running.fileno())
                    started = True
            with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
                progress.end()
                return file.read().strip()
            time.sleep(0.05)
            progress.show(lambda seconds: f"sru_server starts: {seconds:.0f} s")


def _start(folder: str, command: list[str], running: int) -> None:
    """Starts the server as no process' child, in a session of its own: a shell leaves it behind."""
    files = [f"--address_file={os.path.join(folder, 'address')}"]
    files.append(f"--while_locked={os.path.join(folder, 'users')}")
    with open(os.path.join(folder, "log"), "w", encoding="utf-8") as log:
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", *command, *files],
            check=True, start_new_session=True, pass_fds=[running], stdin=subprocess.DEVNULL,
            stdout=log, stderr=log,
        )  # fmt: skip
