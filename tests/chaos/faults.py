"""What goes wrong. A fault is a function of (world, server, draw) that begins it, ends it and returns; `draw` is a
random.Random of its own. What it finds wrong it adds to world.problems. FAULTS has all of them."""

import collections
import os
import resource
import shutil
import signal
import socket
import ssl
import time

import cases
import grpc
import strangers
from fleet import await_true

# Everything that a server must have done after a while, on a machine that is busy.
PATIENCE_S = 60


def kill(world, server, draw):
    server.tell(signal.SIGKILL)
    server.await_end()
    time.sleep(draw.uniform(0.5, 2))
    server.start()


def terminate(world, server, draw):
    server.tell(signal.SIGTERM)
    server.await_end()
    server.start()


def freeze(world, server, draw):
    os.kill(server.pid, signal.SIGSTOP)
    time.sleep(draw.uniform(2, 6))
    os.kill(server.pid, signal.SIGCONT)


# --- models


def _next_version(server, model):
    version = server.versions(model)[-1] + 1
    return version, os.path.join(server.repository, model, str(version))


def _changing(server, draw):
    return draw.choice([model for model in server.sources if model != cases.CONSTANT_MODEL])


def _await_loaded(world, server, model, version):
    labels = ('model="%s"' % model, 'version="%d"' % version, 'state="ready"')
    try:
        await_true("a version is served", lambda: server.metric("sru_model_state", *labels) == 1, PATIENCE_S)
    except (TimeoutError, OSError) as error:
        world.problem("RELOAD: %s does not serve version %d of %s (%s)" % (server.name, version, model, error))
        return
    for old in server.versions(model)[:-2]:
        shutil.rmtree(os.path.join(server.repository, model, str(old)))


def reload_good(world, server, draw):
    model = _changing(server, draw)
    version, folder = _next_version(server, model)
    hidden = os.path.join(server.repository, model, ".%d" % version)
    cases.copy_model(server.sources[model], hidden, odd=version % 2 == 1)
    os.rename(hidden, folder)
    _await_loaded(world, server, model, version)


def reload_half_copied(world, server, draw):
    """A copy that takes seconds: the server must not take what is there before it is complete."""
    model = _changing(server, draw)
    version, folder = _next_version(server, model)
    hidden = os.path.join(server.folder, "copied")
    cases.copy_model(server.sources[model], hidden, odd=version % 2 == 1)
    os.makedirs(folder)
    for name in sorted(os.listdir(hidden), reverse=True):
        with open(os.path.join(hidden, name), "rb") as file:
            data = file.read()
        with open(os.path.join(folder, name), "wb", buffering=0) as file:
            for half in (data[: len(data) // 2], data[len(data) // 2 :]):
                file.write(half)
                time.sleep(draw.uniform(0.2, 0.8))
    shutil.rmtree(hidden)
    _await_loaded(world, server, model, version)


def _refused(world, server, model, make):
    """A version that cannot be loaded: it is refused, and the one before it goes on."""
    before = server.metric("sru_model_load_failures_total", 'model="%s"' % model)
    _, folder = _next_version(server, model)
    hidden = os.path.join(server.repository, model, ".refused")
    cases.copy_model(server.sources[model], hidden, odd=True)
    make(os.path.join(hidden, "model.safetensors"), os.path.join(hidden, "config.json"))
    os.rename(hidden, folder)
    try:
        await_true(
            "a wrong version is refused",
            lambda: server.metric("sru_model_load_failures_total", 'model="%s"' % model) > before,
            PATIENCE_S,
        )
    except (TimeoutError, OSError) as error:
        world.problem("RELOAD: %s has not refused a wrong version of %s (%s)" % (server.name, model, error))
    shutil.rmtree(folder)


def reload_broken(world, server, draw):
    def make(weights, config):
        what = draw.randrange(4)
        if what == 0:
            os.truncate(weights, os.path.getsize(weights) // 2)
        elif what == 1:
            with open(weights, "r+b") as file:
                file.write(draw.randbytes(64))
        elif what == 2:
            os.remove(weights)
        else:
            with open(config, "wb") as file:
                file.write(b'{"format_version": 1, ' + draw.randbytes(20))

    _refused(world, server, _changing(server, draw), make)


def reload_huge(world, server, draw):
    """More than the machine has, without taking it on the disk."""

    def make(weights, config):
        with open(weights, "r+b") as file:
            size = int.from_bytes(file.read(8), "little")
            header = file.read(size).rstrip()[:-1]
            begin = os.path.getsize(weights) - 8 - size
            bytes_more = 4 << 40
            more = b',"more":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}}' % (bytes_more, begin, begin + bytes_more)
            file.seek(8 + size)
            data = file.read()
            file.seek(0)
            header += more
            header += b" " * (-len(header) % 8)
            file.write(len(header).to_bytes(8, "little") + header + data)
            file.truncate(8 + len(header) + len(data) + bytes_more)

    _refused(world, server, _changing(server, draw), make)


def repository_vanished(world, server, draw):
    gone = server.repository + ".gone"
    os.rename(server.repository, gone)
    time.sleep(draw.uniform(2, 4))
    if draw.random() < 0.5:  # the mount point is there, and empty
        os.mkdir(server.repository)
        time.sleep(2)
        os.rmdir(server.repository)
    os.rename(gone, server.repository)


# --- what a machine runs out of


def full_log(world, server, draw):
    """The disk of the log is full; without a file system of its own, the log may not grow."""
    dropped = server.metric("sru_log_lines_dropped_total")
    if world.small_disk:
        ballast = strangers.fill(world.small_disk)
        undo = lambda: os.remove(ballast)  # noqa: E731
    else:
        server.limit(resource.RLIMIT_FSIZE, os.path.getsize(server.log_path))
        undo = lambda: server.limit(resource.RLIMIT_FSIZE, None)  # noqa: E731
    try:
        time.sleep(draw.uniform(3, 5))
    finally:
        undo()
    if server.metric("sru_log_lines_dropped_total") <= dropped:
        world.problem("FAULT: the log of %s took every line of a full disk" % server.name)


def descriptors_at_limit(world, server, draw):
    used = server.usage()[1]
    server.limit(resource.RLIMIT_NOFILE, used + 16)
    try:
        strangers.connections(server, 80, draw.uniform(2, 4))
    finally:
        server.limit(resource.RLIMIT_NOFILE, None)


def large_calls(world, server, draw):
    world.large_calls.update(strangers.large_calls(server, draw.uniform(2, 4)))


# --- callers


def _stranger(function):
    def fault(world, server, draw):
        function(server, draw.uniform(4, 7), draw)

    fault.__doc__ = function.__doc__
    return fault


slow_readers = _stranger(strangers.slow_readers)
slow_writers = _stranger(strangers.slow_writers)
half_open_connections = _stranger(strangers.half_open)
reset_connections = _stranger(strangers.resets)
hostile_frames = _stranger(strangers.hostile)


# --- the clock


def clock_steps(world, server, draw):
    day = 86400
    for seconds in (draw.choice((-5, 5)), -day, day, draw.uniform(-3600, 3600), 0):
        server.step_clock(seconds)
        time.sleep(0.6)


# --- the server with TLS, tokens and devices


def tls_files_rotated(world, server, draw):
    """A certificate that does not fit its key, half of one, then a new pair: new connections get it, none fails."""
    certificate, key = world.authority.issue("server-%d" % time.monotonic_ns())
    with open(certificate, "rb") as file:
        wanted = file.read()
    _write(server.tls[0], wanted)  # with the old key
    time.sleep(draw.uniform(0.4, 1))
    _write(server.tls[0], wanted[: len(wanted) // 2])
    time.sleep(draw.uniform(0.4, 1))
    with open(key, "rb") as file:
        _write(server.tls[1], file.read())
    _write(server.tls[0], wanted)
    try:
        await_true("the new certificate is used", lambda: _certificate(server) == ssl.PEM_cert_to_DER_cert(wanted.decode()), 30)
    except (TimeoutError, OSError) as error:
        world.problem("TLS: %s does not use the new certificate (%s)" % (server.name, error))


def _write(path, data):
    with open(path + ".new", "wb") as file:
        file.write(data)
    os.rename(path + ".new", path)


def _certificate(server):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(("127.0.0.1", server.ports["port"]), timeout=10) as raw:
        with context.wrap_socket(raw) as one:
            return one.getpeercert(binary_form=True)


def tokens_rotated(world, server, draw):
    """The new token is added, callers change to it, the old one is removed; in between the file is nonsense."""
    with open(world.token, encoding="ascii") as file:
        old = file.read().strip()
    new = "%032x" % draw.getrandbits(128)
    _write(server.tokens, ("callers %s\nrenewed %s\n" % (old, new)).encode())
    try:
        await_true("the new token is taken", lambda: _token_works(world, server, new), 30)
        _write(world.token, new.encode())
        _write(server.tokens, draw.randbytes(100))
        time.sleep(1)
        _write(server.tokens, ("renewed %s\n" % new).encode())
        await_true("the old token is refused", lambda: not _token_works(world, server, old), 30)
    except (TimeoutError, OSError) as error:
        world.problem("TOKENS: %s: %s" % (server.name, error))
    if not _token_works(world, server, new):
        world.problem("TOKENS: %s refuses the token that is valid" % server.name)


def _token_works(world, server, token):
    with open(world.authority.certificate, "rb") as file:
        credentials = grpc.ssl_channel_credentials(file.read())
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.ssl_target_name_override", "localhost")]
    with grpc.secure_channel(server.address, credentials, options) as channel:
        for _ in range(100):
            try:
                channel.unary_unary(cases.SERVICE + "ListModels")(
                    b"", timeout=10, metadata=[("authorization", "Bearer " + token)]
                )
                return True
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.UNAUTHENTICATED:
                    return False
                time.sleep(0.1)
    raise TimeoutError("no answer to a call with a token")


def devices_lost(world, server, draw):
    """One of two devices: calls go on on the other. Then the other one: calls are refused, and a restart helps."""
    os.kill(server.pid, signal.SIGUSR1)
    try:
        await_true("the loss is noticed", lambda: server.metric("sru_device_lost_total") == 1, PATIENCE_S)
        time.sleep(1)
        if server.page("/readyz") == "":
            world.problem("DEVICES: %s is not ready although a device is left" % server.name)
    except (TimeoutError, OSError) as error:
        world.problem("DEVICES: %s: %s" % (server.name, error))
    os.kill(server.pid, signal.SIGUSR1)
    try:
        await_true("the server is not ready", lambda: not _is_ready(server), PATIENCE_S)
    except TimeoutError as error:
        world.problem("DEVICES: %s is ready without a device (%s)" % (server.name, error))
    terminate(world, server, draw)


def _is_ready(server):
    try:
        return server.page("/readyz") != ""
    except OSError:
        return False


Fault = collections.namedtuple("Fault", "name run where what")
# where: any replica, a replica that may be restarted ("mortal"), the server with TLS, tokens and devices
FAULTS = [
    Fault("kill", kill, "mortal", "SIGKILL, started again"),
    Fault("terminate", terminate, "mortal", "SIGTERM under load, started again"),
    Fault("freeze", freeze, "any", "SIGSTOP for 2 to 6 s"),
    Fault("reload, good", reload_good, "any", "a new version with other weights"),
    Fault("reload, broken", reload_broken, "any", "a version that is cut, overwritten, without weights, or no JSON"),
    Fault("reload, half copied", reload_half_copied, "any", "a version that is copied for seconds"),
    Fault("reload, huge", reload_huge, "any", "a version of 4 TiB"),
    Fault("repository vanished", repository_vanished, "any", "the polled directory is gone, or empty"),
    Fault("full log", full_log, "any", "the disk under the log is full"),
    Fault("descriptors at limit", descriptors_at_limit, "any", "16 more than are open, for 80 connections"),
    Fault("large calls", large_calls, "any", "of high priority, 16 at a time, with answers of 2 MB"),
    Fault("slow readers", slow_readers, "any", "windows that never open, on both ports"),
    Fault("slow writers", slow_writers, "any", "requests that come a byte at a time, on both ports"),
    Fault("half-open connections", half_open_connections, "any", "60 that are never used, on all ports"),
    Fault("reset connections", reset_connections, "any", "SO_LINGER 0 in the middle of calls, on both ports"),
    Fault("hostile frames", hostile_frames, "any", "what breaks HTTP/2, HPACK, gRPC, HTTP/1.1 or JSON"),
    Fault("clock steps", clock_steps, "any", "the wall clock is set, by up to a day"),
    Fault("TLS files rotated", tls_files_rotated, "secure", "with a pair that does not fit and half a file in between"),
    Fault("tokens rotated", tokens_rotated, "secure", "with nonsense in between"),
    Fault("devices lost", devices_lost, "secure", "one of two, then both, then a restart"),
    Fault("kill", kill, "secure", "SIGKILL, started again"),
]
