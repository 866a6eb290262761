#!/usr/bin/env python3
"""Follows a page of the documentation as a reader would: runs its commands and compares their output.

  scripts/run_page.py docs/production.md
  scripts/run_page.py README.md --section "A first call" --build build

What a page's fenced blocks mean:

  ```sh              commands, run by bash, in the order of the page, all in one shell and one folder. A command that
                     fails ends the run.
  ```console         lines that begin with "$ " are commands; what follows up to the next is the output that is
                     expected. "..." in it stands for anything, also for several lines.
  ```python ask.py   a file of this name, which later commands use; likewise for any other language. If the project has the
                     file (```cpp client/example/ask.cc), the block must be equal to it.
  ```sh needs=NAME   run only if NAME is a program of this machine or stands in --with, else left out, which is printed; so is
                     ```console needs=NAME. `network`: the block installs packages.
  other blocks       are not run

The folder is a new one in which every entry of the project's root has a link of its name, `build` to --build: commands
are written, and run, as in the root, and what they write is gone afterwards. Pages name the default ports. As these may be taken, each port of --ports is replaced, wherever the page has it after a
colon, by one that is free; programs of this project learn of them by their environment. python3 is the one that runs this. Prints each
block, how long it took, and the time since the page's first one; the exit code is 1 if a command failed or
printed something else, and 77 (skipped) if the command of --skip_without fails. What the page has started is stopped at
the end.
"""

import argparse
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from report_common import ROOT

# Where the programs look for what their flags do not say.
ENVIRONMENT = {"SRU_LISTEN": "127.0.0.1:50051", "SRU_HTTP_LISTEN": "127.0.0.1:8080", "SRU_METRICS_LISTEN": "127.0.0.1:9090",
               "SRU_ADDRESS": "localhost:50051"}  # fmt: skip
# Starts the server on the bundled models and waits until it is ready.
SERVE = """
build/bin/sru_server --model_repository=models/pretrained >server.log 2>&1 &
until curl -sf localhost:9090/readyz >ready.log; do kill -0 $! || { cat server.log; exit 1; }; sleep 0.1; done
"""
FENCE = re.compile(r"^```(\S*)[ \t]*(\S*)\s*$")


class Block:
    def __init__(self, language, file, line):
        self.language, self.file, self.line, self.lines = language, file, line, []

    @property
    def text(self):
        return "\n".join(self.lines) + "\n"

    @property
    def runs(self):
        return self.language in ("sh", "console")

    @property
    def needs(self):
        """What must be there for the block to run, or None."""
        return self.file[len("needs=") :] if self.runs and self.file.startswith("needs=") else None


def blocks_of(text, section=None):
    """The fenced blocks of a page; with `section`, those below the heading of that name."""
    found, block, inside = [], None, section is None
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        heading = re.match(r"^#+\s+(.*?)\s*$", line)
        if block is not None and not fence:
            block.lines.append(line)
        elif block is not None:
            found += [block] if inside else []
            block = None
        elif fence:
            block = Block(fence.group(1), fence.group(2), number)
        elif heading and section is not None:
            inside = heading.group(1) == section
    return found


def steps_of(block):
    """[(command, expected output or None)] of a block that is run."""
    if block.language == "sh":
        return [(block.text, None)]
    steps = []
    for line in block.lines:
        if line.startswith("$ "):
            steps.append([line[2:] + "\n", ""])
        elif not steps:
            raise ValueError("line %d: a console block begins with a command ('$ ...')" % block.line)
        elif steps[-1][0].endswith("\\\n"):
            steps[-1][0] += line + "\n"
        else:
            steps[-1][1] += line + "\n"
    return [tuple(step) for step in steps]


def matches(expected, found):
    """Whether an output is the expected one, in which ... stands for anything. Blanks at the ends of lines do not count."""

    def tidy(text):
        return "\n".join(line.rstrip() for line in text.strip().splitlines())

    parts = [re.escape(part.strip(" ")) for part in tidy(expected).split("...")]
    return re.fullmatch(r"\s*.*?\s*".join(parts), tidy(found), re.DOTALL) is not None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def with_ports(text, ports):
    """`ports`: {the page's port: the one to use}."""
    return re.sub(r"(?<=:)\d+\b", lambda found: str(ports.get(found.group(0), found.group(0))), text)


class Shell:
    """One bash that runs commands one after the other, and everything that they start."""

    def __init__(self, folder, environment):
        self._output = os.path.join(folder, ".output")
        with open(self._output, "ab") as output:
            self._process = subprocess.Popen(
                ["bash", "-e", "-u", "-o", "pipefail"], cwd=folder, env=environment, stdin=subprocess.PIPE,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def run(self, command, timeout):
        """(whether it succeeded, its output)"""
        begin = os.path.getsize(self._output)
        done = self._output + ".done"
        self._process.stdin.write(("%s\n: >'%s'\n" % (command, done)).encode())
        self._process.stdin.flush()
        deadline = time.monotonic() + timeout
        while not os.path.exists(done) and self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        success = os.path.exists(done)
        if success:
            os.remove(done)
        with open(self._output, "rb") as file:
            file.seek(begin)
            return success, file.read().decode(errors="replace")

    def close(self):
        """Ends what is still running: first as an operator would, then by force."""
        for number, patience in ((signal.SIGTERM, 10), (signal.SIGKILL, 5)):
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                break
            deadline = time.monotonic() + patience
            while time.monotonic() < deadline:
                self._process.poll()
                try:
                    os.killpg(self._process.pid, 0)
                except ProcessLookupError:
                    break
                time.sleep(0.05)
        self._process.stdin.close()
        self._process.wait()


def link_project(folder, build):
    """Makes a folder look like the project's root."""
    for entry in os.listdir(ROOT):
        if not entry.startswith((".", "build")):
            os.symlink(os.path.join(ROOT, entry), os.path.join(folder, entry))
    os.symlink(os.path.abspath(build), os.path.join(folder, "build"))


def write_file(folder, block, text):
    """Why the block is not what the project has; None if the project does not have it, and it was written."""
    path = ROOT / block.file
    if not path.exists():
        pathlib.Path(folder, block.file).write_text(text, encoding="utf-8")
        return None
    if path.read_text(encoding="utf-8").strip() == block.text.strip():
        return None
    return "line %d: FAILED: it is not equal to %s" % (block.line, block.file)


def follow(page, section, build, ports, timeout, setup="", present=(), out=sys.stdout):
    """Runs a page, after the command `setup`; 1 if a block failed, else 0. `present`: what blocks may need that is no program."""
    blocks = blocks_of(pathlib.Path(page).read_text(encoding="utf-8"), section)
    if not any(block.runs for block in blocks):
        raise ValueError("%s has no commands%s" % (page, " in '%s'" % section if section else ""))
    chosen = {port: free_port() for port in ports}
    folder = tempfile.mkdtemp(prefix="page")
    link_project(folder, build)
    environment = {name: with_ports(value, chosen) for name, value in ENVIRONMENT.items()}
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    shell = Shell(folder, {**os.environ, **environment, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"})
    try:
        success, output = shell.run(with_ports(setup, chosen), timeout)
        if not success:
            print("FAILED: %s\n%s" % (setup, output), file=out)
            return 1
        start = time.monotonic()
        for block in blocks:
            if block.needs and block.needs not in present and not shutil.which(block.needs):
                print("line %d: left out, there is no %s: %s" % (block.line, block.needs, block.lines[0]), file=out)
                continue
            if block.file and not block.needs:
                difference = write_file(folder, block, with_ports(block.text, chosen))
                if difference is not None:
                    print(difference, file=out)
                    return 1
            if not block.runs:
                continue
            begin = time.monotonic()
            for command, expected in steps_of(block):
                success, output = shell.run(with_ports(command, chosen), timeout)
                if not success or (expected is not None and not matches(with_ports(expected, chosen), output)):
                    print("line %d: FAILED\n%s" % (block.line, command), file=out)
                    if success:
                        print("expected:\n%s" % expected, file=out)
                    print("found:\n%s" % output, file=out)
                    return 1
            now = time.monotonic()
            times = (block.line, now - begin, now - start, block.lines[0])
            print("line %d: ok, %.1f s, at %.1f s: %s" % times, file=out, flush=True)
    finally:
        shell.close()
        shutil.rmtree(folder)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page")
    parser.add_argument("--section", help="run only what is below this heading")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="build folder (%(default)s)")
    parser.add_argument("--setup", default="", help="a command to run before those of the page")
    parser.add_argument("--serve", action="store_true", help="start the server on the bundled models after --setup")
    parser.add_argument("--with", dest="present", default="", metavar="NAMES", help="what blocks need that is no program: network")
    parser.add_argument("--ports", default="50051,8080,9090", help="ports to replace by free ones (%(default)s)")
    parser.add_argument("--skip_without", default="true", metavar="COMMAND", help="what fails where the page cannot be followed")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for a command (%(default)s)")
    arguments = parser.parse_args()
    if subprocess.run(["sh", "-c", arguments.skip_without], stdout=subprocess.DEVNULL, check=False).returncode != 0:
        print("SKIPPED: this machine lacks what the page needs: " + arguments.skip_without)
        sys.exit(77)
    sys.exit(
        follow(
            arguments.page, arguments.section, arguments.build, arguments.ports.split(","), arguments.timeout,
            arguments.setup + (SERVE if arguments.serve else ""), arguments.present.split(","),
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
