"""What a process writes that crashes: a server by each signal, on each kind of thread, while calls run; and crash_program, the last
argument, in every way in which it can end."""

import ctypes
import os
import re
import signal
import subprocess
import sys

from server_process import CLIENT, SERVER, Server, await_true, run

PROGRAM = sys.argv[4]
SIGNALS = [signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS]
# By the name of the thread: a function of its loop, and what it has in flight when it has something.
THREADS = {
    "sru_loop": ("Loop::Run", r"nothing|\w+(, model \S+ version \d+)?"),
    "sru_worker": ("WorkerPool::Live", r"(nothing|(batch|Classify), model trec version 1|step, model war_and_peace version 1)"),
}
BLOCK = re.compile(
    r"CRASH signal (?P<signal>\w+) \((?P<number>\d+)\), code (?P<code>-?\d+), (?P<how>sent by process \d+|address 0x[0-9a-f]+)\n"
    r"CRASH thread (?P<thread>\d+) \((?P<name>\w+)\) of process (?P<process>\d+), which had up to (?P<memory>\d+) MB resident\n"
    r"CRASH build (?P<build>\w+ \d+\.\d+\.\d+), commit (?P<commit>\S+), build id (?P<build_id>[0-9a-f]{40})\n"
    r"CRASH in flight (?P<work>.*)\n"
    r"(?P<frames>(CRASH [#~]\d+ 0x[0-9a-f]+( \S+\+0x[0-9a-f]+)?\n)+)"
    r"CRASH resolve (?P<resolve>addr2line .*)\n"
)


def block_of(text):
    found = BLOCK.search(text)
    assert found, text
    assert text.count("CRASH signal") == 1, text
    return found


def build_id_of(program):
    return re.search(r"Build ID: (\w+)", run("readelf", "-n", program).stdout)[1]


def functions(block):
    done = run(*block["resolve"].split())
    assert done.returncode == 0, done.stderr
    return done.stdout


def busiest_thread(pid, name):
    """Of those with this name."""
    times = {}
    for thread in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/stat" % (pid, thread)) as stat:
            found = re.match(r"\d+ \((.*)\) (.*)", stat.read())
        if found[1] == name:
            times[int(thread)] = int(found[2].split()[11])  # utime
    return max(times, key=times.get)


def tgkill(pid, thread, number):
    """Python has no call of it for another process."""
    syscall = {"x86_64": 234, "aarch64": 131}[os.uname().machine]
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.syscall(syscall, pid, thread, int(number)) == 0, os.strerror(ctypes.get_errno())


class Calls:
    """Keeps a server busy with texts of the client, in processes of their own."""

    COMMANDS = (
        'yes "$1" | "$2" classify --model=trec "$3" --batch=100',
        'while "$2" generate "$3" --max_new_tokens=0 The; do :; done',
    )

    def __init__(self, server):
        text = "Where is it ? " * 50
        self._processes = [
            subprocess.Popen(
                ["sh", "-c", command + " >/dev/null 2>&1", "sh", text, CLIENT, "--address=" + server.address],
                start_new_session=True,
            )
            for command in self.COMMANDS * 3
        ]

    def stop(self):
        for process in self._processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def crash(name, number):
    """Kills a server on one of its threads. Returns the block."""
    with Server("--max_batch_tokens=2048", "--instances=1") as server:
        calls = Calls(server)
        try:
            for series in ("sru_batch_sequences_count", "sru_decode_batch_sequences_count"):
                await_true(lambda: (server.metric(series) or 0) > 20, series)
            thread = busiest_thread(server.pid, name)
            tgkill(server.pid, thread, number)
            code = server.process.wait(timeout=30)
        finally:
            calls.stop()
        assert code == -number, code
        block = block_of(server.log())
        assert block["signal"] == number.name and int(block["number"]) == number, block[0]
        assert block["how"] == "sent by process %d" % os.getpid(), block[0]
        assert int(block["thread"]) == thread and block["name"] == name, block[0]
        assert int(block["process"]) == server.pid and int(block["memory"]) > 10, block[0]
        assert block["build_id"] == build_id_of(SERVER), block[0]
        assert "(commit %s;" % block["commit"] in run(SERVER, "--version").stdout, block[0]
        function, work = THREADS[name]
        assert re.fullmatch(work, block["work"]), block[0]
        assert function in functions(block), (block[0], functions(block))
        return block


def test_each_signal_on_each_thread():
    names = list(THREADS)
    for i, number in enumerate(SIGNALS):
        crash(names[i % len(names)], number)
    # A worker may be between two batches, or may not have what is wanted, so this is tried again.
    wanted = {"step", "batch"}
    for _ in range(40):
        wanted.discard(crash("sru_worker", signal.SIGSEGV)["work"].split(",")[0])
        if not wanted:
            break
    assert not wanted, "no worker had this in flight: %s" % wanted


def test_user_signals_are_ignored():
    with Server() as server:
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            os.kill(server.pid, number)
        assert "ok" in server.page("/healthz")
        assert server.stop() == 0


def crash_program(how):
    done = run(PROGRAM, how)
    return done.returncode, block_of(done.stderr), done.stderr


def test_reasons():
    abort, fault = -signal.SIGABRT, -signal.SIGSEGV
    for how, code, reason in (
        ("throw", abort, "'std::runtime_error'\n  what():  it is\tover\n"),
        ("throw_number", abort, "an instance of 'int'\n"),
        ("bad_alloc", abort, "an instance of 'std::bad_alloc'\n"),
        ("terminate", abort, "terminate called without an active exception\n"),
        ("check", abort, "the text has no end\n"),
        ("overflow", fault, None),
        ("fault", fault, None),
        ("nothing", fault, None),
        ("divide", -signal.SIGFPE, None),
        ("both", fault, None),
    ):
        returned, block, text = crash_program(how)
        assert returned == code, (how, returned)
        if reason is None:
            assert block["how"].startswith("address 0x"), block[0]
        else:
            assert reason in text[:block.start()], text
        assert block["work"] == "Classify, model a?b version 3", block[0]
        assert block["name"] == "crasher", block[0]
        assert block["build_id"] == build_id_of(PROGRAM), block[0]
        if how != "bad_alloc" and how != "check":
            want = "Overflow" if how == "overflow" else "Crash"
            assert want in functions(block), (how, functions(block))
        if how == "fault":
            assert block["how"] == "address 0x10", block[0]


def test_nobody_reads():
    """A full pipe holds up the end for a second or two, and not for ever."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    process = subprocess.Popen([PROGRAM, "fault"], stderr=writer)
    assert process.wait(timeout=60) == -signal.SIGSEGV
    os.close(reader)
    os.close(writer)


def main():
    for name, test in sorted(globals().items()):
        if name.startswith("test_"):
            print(name, flush=True)
            test()


main()
