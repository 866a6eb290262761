"""How a client reaches its servers: address, TLS, tokens, retries. Checks options before anything is sent.

Nothing here calls gRPC except to make credentials.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import math
import pathlib
import re
import ssl
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import grpc

from ._spans import Trace

Metadata = Tuple[Tuple[str, str], ...]
Address = Union[str, Sequence[str]]

# gRPC waits for whole milliseconds, and some versions never end a call whose wait rounds to zero.
MIN_BACKOFF = 0.002
TOKEN_READ_INTERVAL = 10.0
# gRPC counts the nanoseconds since 1970 in 64 bits: a call that may take longer than this one has no end for anybody.
LONGEST_TIMEOUT = 1e9
KEEPALIVE_TIME_MS = 1500
KEEPALIVE_TIMEOUT_MS = 6000
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


def read_package_file(name: str) -> str:
    return pathlib.Path(__file__).with_name(name).read_text(encoding="utf-8")


Options = Any  # has the arguments of Client as attributes


class Connection:
    """Checked options, as gRPC wants them. Thread-safe. `clock` tells seconds, for tests."""

    def __init__(self, options: Options, clock: Callable[[], float] = time.monotonic) -> None:
        self.target = make_target(options.address)
        for name in ("timeout", "stream_timeout"):
            check_timeout(getattr(options, name), name)
        if not 1 <= options.max_attempts <= 5:
            raise ValueError(f"max_attempts: expected 1 to 5, found {options.max_attempts}")
        if not MIN_BACKOFF <= options.initial_backoff <= options.max_backoff < math.inf:
            raise ValueError(
                f"initial_backoff, max_backoff: expected {MIN_BACKOFF} <= initial_backoff <= max_backoff, "
                f"found {options.initial_backoff} and {options.max_backoff}"
            )
        if options.max_message_bytes <= 0:
            raise ValueError(f"max_message_bytes: expected more than 0, found {options.max_message_bytes}")
        self.options = options
        self.credentials = _make_credentials(options)
        self._token = _make_token(options, self.target, self.credentials is not None, clock)

    def channel_options(self, only_serving: bool) -> List[Tuple[str, Any]]:
        """Arguments of a channel, which calls only servers that serve, or any."""
        options = self.options
        arguments: Dict[str, Any] = {
            "grpc.service_config": service_config(options),
            "grpc.max_receive_message_length": options.max_message_bytes,
            "grpc.max_send_message_length": -1,
            # A server that does not answer a ping within the timeout is gone: frozen, or cut off. Its calls go to
            # others. client/client.cc has the same.
            "grpc.keepalive_time_ms": KEEPALIVE_TIME_MS,
            "grpc.keepalive_timeout_ms": KEEPALIVE_TIMEOUT_MS,
            "grpc.http2.max_pings_without_data": 0,  # no bound
            # Newer versions of gRPC wait for pings of their own, too, and send none of ours meanwhile.
            "grpc.http2.ping_timeout_ms": KEEPALIVE_TIMEOUT_MS,
            "grpc.primary_user_agent": "sru-inference-python/" + read_package_file("VERSION").strip(),
        }
        if options.max_attempts == 1:
            arguments["grpc.enable_retries"] = 0
        if stays_on_this_machine(self.target):
            arguments["grpc.enable_http_proxy"] = 0  # http_proxy would take calls and tokens elsewhere
        if not only_serving:
            arguments["grpc.inhibit_health_checking"] = 1
        if options.tls_server_name:
            arguments["grpc.ssl_target_name_override"] = options.tls_server_name
        arguments.update(options.channel_options)
        return list(arguments.items())

    def metadata(self, request_id: str, trace: Optional[Trace] = None) -> Metadata:
        """What is sent with a call of this trace, or of the present one."""
        metadata: List[Tuple[str, str]] = []
        if self._token is not None:
            metadata.append(("authorization", "Bearer " + self._token.get()))
        if request_id:
            if not _REQUEST_ID.fullmatch(request_id):
                raise ValueError(f"request_id: expected 1 to 128 visible ASCII characters, found {request_id!r}")
            metadata.append(("x-request-id", request_id))
        return tuple(metadata) + (trace or Trace()).headers()

    def timeout(self, timeout: Optional[float], stream: bool = False) -> Optional[float]:
        """Seconds for a call, as gRPC wants them: None = no end."""
        if timeout is None:
            timeout = self.options.stream_timeout if stream else self.options.timeout
        check_timeout(timeout, "timeout")
        return None if timeout > LONGEST_TIMEOUT else timeout


def check_timeout(timeout: float, name: str) -> None:
    try:
        good = timeout > 0
    except TypeError:
        raise TypeError(f"{name}: expected seconds, found {timeout!r}") from None
    if not good:
        raise ValueError(f"{name}: expected more than 0 seconds, or math.inf for no end, found {timeout!r}")


def service_config(options: Options) -> str:
    """service_config.json (client/service_config.h says what it means), with the retries of `options`."""
    config = json.loads(read_package_file("service_config.json"))
    for method in config["methodConfig"]:
        if options.max_attempts == 1:
            method.pop("retryPolicy", None)
            continue
        policy = method["retryPolicy"]
        policy["maxAttempts"] = options.max_attempts
        policy["initialBackoff"] = f"{options.initial_backoff:.6f}s"
        policy["maxBackoff"] = f"{options.max_backoff:.6f}s"
    return json.dumps(config)


def make_target(address: Address) -> str:
    """gRPC's name for one address or for several."""
    if isinstance(address, str):
        if not address:
            raise ValueError("address: expected HOST:PORT, found nothing")
        return address
    addresses = list(address)
    if not addresses:
        raise ValueError("address: expected at least one HOST:PORT, found none")
    if len(addresses) == 1:
        return make_target(addresses[0])
    versions = set()
    for one in addresses:
        host = one.rpartition(":")[0]
        try:
            versions.add(ipaddress.ip_address(host[1:-1] if host.startswith("[") else host).version)
        except ValueError:
            raise ValueError(
                f"address: of several, expected each as IP:PORT, found {one!r}; a name that has several addresses is "
                "given alone, as dns:///NAME:PORT"
            ) from None
    if len(versions) != 1:
        raise ValueError("address: of several, expected either IPv4 or IPv6, found both")
    return ("ipv4:" if versions == {4} else "ipv6:") + ",".join(addresses)


def stays_on_this_machine(target: str) -> bool:
    """Whether what is sent to the target stays on this machine: "localhost", loopback addresses and socket files do,
    a name that only looks like one does not."""
    if target.startswith(("unix:", "unix-abstract:")):
        return True
    scheme, colon, rest = target.partition(":")
    if colon and scheme in ("ipv4", "ipv6"):
        return all(_is_loopback(part) for part in rest.split(","))
    if colon and scheme == "dns":
        target = rest[3:] if rest.startswith("///") else rest
    return _is_loopback(target)


def _is_loopback(host_port: str) -> bool:
    # [HOST], [HOST]:PORT or HOST:PORT; all else is a host alone
    found = re.fullmatch(r"\[([^\]]*)\](?::\d+)?|([^:]*):\d+", host_port)
    host = found[found.lastindex or 0] if found else host_port
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _make_credentials(options: Options) -> Optional[grpc.ChannelCredentials]:
    if not (options.tls or options.tls_ca or options.tls_cert or options.tls_key or options.tls_server_name):
        return None
    if bool(options.tls_cert) != bool(options.tls_key):
        missing, present = ("tls_key", "tls_cert") if options.tls_cert else ("tls_cert", "tls_key")
        raise ValueError(f"{missing}: expected the one that belongs to {present}, found nothing")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authorities = None
    # Without any, those that the system trusts, as other programs have it; gRPC's package brings a list of its own.
    ca = options.tls_ca or ssl.get_default_verify_paths().cafile
    if ca:
        authorities = _read("tls_ca", ca)
        try:
            context.load_verify_locations(cadata=authorities.decode("ascii", "replace"))
        except ssl.SSLError as error:
            raise ValueError(f"tls_ca: expected PEM certificates in {ca!r}: {error}") from None
    certificate = key = None
    if options.tls_cert and options.tls_key:
        certificate, key = _read("tls_cert", options.tls_cert), _read("tls_key", options.tls_key)
        try:
            context.load_cert_chain(options.tls_cert, options.tls_key, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            raise ValueError(
                f"tls_cert, tls_key: expected a PEM certificate in {options.tls_cert!r} and its key, without a "
                f"password, in {options.tls_key!r}: {error}"
            ) from None
    return grpc.ssl_channel_credentials(authorities, key, certificate)


def _no_password() -> str:
    raise ValueError("the key has a password")


def _read(option: str, path: str) -> bytes:
    try:
        return pathlib.Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{option}: cannot read {path!r}: {error.strerror}") from None


class _Token:
    """A token, or the token in a file, which is read again from time to time because tokens are replaced while
    programs run."""

    def __init__(self, token: str, path: Optional[str], clock: Callable[[], float]) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._token = _check_token("token", token) if path is None else _read_token(path)
        self._next_read = clock() + TOKEN_READ_INTERVAL

    def get(self) -> str:
        if self._path is None:
            return self._token
        with self._lock:
            now = self._clock()
            if now >= self._next_read:
                self._next_read = now + TOKEN_READ_INTERVAL
                with contextlib.suppress(ValueError):  # a file that is being replaced; the last token goes on
                    self._token = _read_token(self._path)
            return self._token


def _read_token(path: str) -> str:
    return _check_token(f"token_file: {path}", _read("token_file", path).decode("latin-1").strip())


def _check_token(where: str, token: str) -> str:
    if not re.fullmatch(r"[\x21-\x7e]+", token):
        raise ValueError(f"{where}: expected one token of visible ASCII characters")
    return token


def _make_token(options: Options, target: str, tls: bool, clock: Callable[[], float]) -> Optional[_Token]:
    if not options.token and options.token_file is None:
        return None
    name = "token" if options.token else "token_file"
    if options.token and options.token_file is not None:
        raise ValueError("token, token_file: expected one of the two, found both")
    if not tls and not options.token_without_tls and not stays_on_this_machine(target):
        raise ValueError(
            f"{name}: the token would cross the network in the clear; expected tls, or token_without_tls where "
            "something else encrypts"
        )
    return _Token(options.token, options.token_file, clock)
