#!/usr/bin/env python3
"""Checks every include line of the project against the table below.

  scripts/check_includes.py [FOLDER]

FOLDER is the project (by default the one that this script is in). Prints `file:line: rule` for each line
that breaks a rule and exits with 1 then. Part of `make lint`.

The rules:
  1. Every folder with C++ code has a row in the table. A row may also name one file, which then is a room
     of its own, or all folders of a folder ("tasks/*"), which then may not include one another.
  2. A room includes itself and the rooms that its row names. A row names only rows above it, so there is
     no circle between rooms.
  3. A room includes only the libraries that its row names. The C and C++ standard libraries and the
     system's headers are free.
  4. A unit test (*_test.cc) beside the code may also include what the rooms of its row may include, the
     helpers in tests/testing, and what TESTS_ALSO_INCLUDE names.
  5. A row names nothing that its room does without.
  6. A file of the project is included by its path from the root, in quotes.
  7. A function of Abseil that ABSEIL names has its header: the file includes it, or a file of the project that
     it includes does. Which headers of Abseil bring others along differs from version to version.
"""
import os
import re
import shutil
import subprocess
import sys

# A line without a room continues the row above it. The budgets are for scripts/weight.py.
#
# room                   | rooms that it may include                          | libraries | most lines: product, tests
TABLE = """
proto                    |                                                                    | protobuf                 | 1650 300
base                     |                                                                    | absl cli11 simdjson utf8proc | 1300 600

kernels                  |                                                                    |                          | 4500 0
kernels/common           |                                                                    |                          | 250 0
kernels/reference        | kernels                                                            |                          | 1150 0
kernels/cpu/base         | kernels kernels/common                                             | hwy openmp               | 1700 0
kernels/cpu/tiles        | kernels kernels/cpu/base                                           |                          | 750 0
kernels/cpu/isa          | kernels kernels/cpu/base kernels/cpu/tiles                         | dnnl hwy                 | 300 0
kernels/cpu/int8         | kernels kernels/cpu/base kernels/cpu/isa                           | hwy                      | 1150 0
kernels/cpu/isa/processor_other.cc | kernels/cpu/isa kernels/cpu/int8 kernels/cpu/tiles                 |                          | 50 0
kernels/cpu/stacks       | kernels kernels/common kernels/cpu/base                            | dnnl                     | 1950 0
                         | kernels/cpu/tiles kernels/cpu/int8                                 |
kernels/cpu/programs     | kernels kernels/cpu/base kernels/cpu/int8 kernels/cpu/stacks       | hwy                      | 3150 0
kernels/cpu              | kernels kernels/cpu/base kernels/cpu/isa                           |                          | 250 0
                         | kernels/cpu/int8 kernels/cpu/stacks kernels/cpu/programs           |
kernels/cuda/kernels     | kernels kernels/common                                             | cuda                     | 5200 0
kernels/cuda/device      | kernels kernels/common kernels/cuda/kernels                        | cuda                     | 1950 0
kernels/cuda/stack       | kernels kernels/common kernels/cuda/kernels                        |                          | 1850 0
                         | kernels/cuda/device                                                |
kernels/cuda/program     | kernels kernels/cuda/kernels                                       |                          | 2500 0
                         | kernels/cuda/device kernels/cuda/stack                             |
kernels/cuda/backend     | kernels kernels/cuda/kernels                                       |                          | 350 0
                         | kernels/cuda/device kernels/cuda/stack                             |
                         | kernels/cuda/program                                               |
kernels/backend.cc       | kernels kernels/cpu kernels/cuda/backend kernels/reference         |                          | 200 0
kernels/model_sizes.cc   | kernels kernels/cpu/base                                           |                          | 150 0
kernels/testing          | kernels                                                            |                          | 0 1200
kernels/bench            | kernels kernels/cpu/isa kernels/testing                            | benchmark cuda dnnl openmp | 1900 0
                         | kernels/cuda/kernels kernels/cuda/device kernels/cuda/stack        |

models/files             | base                                                               | absl libdeflate nlohmann | 650 350
models/text              | base                                                               | absl utf8proc            | 2450 1600
models/decoding          | models/text kernels base                                           | absl                     | 1700 1850
models/marian            | models/files base                                                  | absl libzip yaml_cpp     | 1300 750
models                   | models/files models/text models/decoding models/marian             | absl nlohmann openssl    | 5500 6250
                         | kernels base                                                       |

server/base              | base                                                               | absl nlohmann zlib       | 2200 900
server/batching/queue    | server/base base                                                   | absl                     | 2100 2450
server/batching/steps    | server/batching/queue server/base base                             | absl                     | 1900 1400
server/batching          | server/batching/queue server/batching/steps                        | absl                     | 3150 3400
                         | server/base models kernels base                                    |
server/calls             | server/base models base proto                                      | absl protobuf            | 1350 550
server/callers           | server/calls server/batching/queue server/base base                | absl boost               | 1000 400
server/calls/bounds      | server/base base proto                                             | absl protobuf            | 800 550
server/telemetry         | server/calls server/batching server/batching/queue                 | absl prometheus protobuf | 2100 1050
                         | server/batching/steps server/base                                  |
                         | kernels base                                                       |
server/tracing           | server/telemetry server/base base proto                            | absl boost grpc protobuf | 1000 500
server/lifecycle         | server/telemetry server/calls server/batching                      | absl                     | 1450 1150
                         | server/base models base                                            |
server/transport         | server/callers server/telemetry server/base base                   | absl boost openssl prometheus | 3550 1250
server/door              | server/transport server/callers server/calls                       | absl boost nghttp2 prometheus zlib | 4500 2300
                         | server/base base                                                   |
server/calls/messages    | server/base server/calls server/calls/bounds server/lifecycle      | absl protobuf            | 700 450
                         | server/telemetry server/batching/queue                             |
                         | models models/text kernels base proto                              |
server/calls/kinds       | server/callers server/calls server/calls/bounds server/calls/messages | absl protobuf            | 1600 400
                         | server/lifecycle server/telemetry server/tracing                   |
                         | server/batching/queue                                              |
                         | server/base models base                                            |
server/open_inference/tensors | server/calls server/calls/bounds                                   | absl protobuf            | 1700 500
                         | server/calls/messages server/lifecycle                             |
                         | models base proto                                                  |
server/tasks/programs    | server/batching server/batching/queue models kernels base          | absl                     | 300 0
server/tasks/stacks      | server/tasks/programs server/calls/messages server/batching        | absl                     | 200 0
                         | models kernels base                                                |
server/tasks/tasks.h     | server/calls server/calls/kinds server/calls/messages              | absl protobuf            | 100 0
                         | server/open_inference/tensors models proto                         |
server/tasks/*           | server/tasks/tasks.h server/tasks/programs server/tasks/stacks     | absl protobuf            | 5650 2850
                         | server/calls server/calls/bounds server/calls/kinds                |
                         | server/calls/messages server/open_inference/tensors                |
                         | server/batching server/batching/queue server/batching/steps        |
                         | models models/text models/decoding kernels/common                  |
                         | kernels base proto                                                 |
server/tasks             | server/tasks/tasks.h server/batching                               |                          | 100 650
server/open_inference    | server/tasks/tasks.h server/calls server/calls/kinds               | absl protobuf            | 1100 0
                         | server/calls/messages server/open_inference/tensors                |
                         | server/lifecycle server/tracing server/batching/queue server/base  |
                         | models kernels base proto                                          |
server/rpc               | server/tasks/tasks.h server/calls server/calls/kinds               | absl grpc protobuf       | 1200 350
                         | server/calls/messages server/callers server/door server/transport  |
                         | server/base base proto                                             |
server/http              | server/door server/transport server/telemetry server/calls         | absl boost nlohmann prometheus | 4450 2350
                         | server/base base                                                   |
server/rest              | server/callers server/calls server/calls/bounds                    | absl grpc nlohmann protobuf | 7650 4550
                         | server/http server/telemetry                                       |
                         | server/base base proto                                             |
server/translation       | server/calls server/calls/bounds server/lifecycle                  | absl cld2 icu nlohmann   | 3250 1250
                         | server/rest server/base models models/text base proto              |
server/options.h         | server/batching server/calls/bounds server/door                    | absl                     | 100 0
                         | server/http server/lifecycle server/telemetry                      |
                         | server/tracing server/transport server/base base                   |
server/wiring            | server/options.h                                                   | absl grpc                | 1800 100
                         | server/callers server/calls server/calls/bounds server/calls/kinds |
                         | server/rpc server/open_inference server/rest                       |
                         | server/http server/lifecycle server/transport                      |
                         | server/translation                                                 |
                         | server/telemetry server/tracing server/tasks/tasks.h server/batching |
                         | server/batching/steps server/base                                  |
                         | server/door models kernels base                                    |
server                   | server/options.h server/wiring server/lifecycle server/tracing     | absl grpc protobuf       | 750 400
                         | server/base kernels base                                           |

client                   | base proto                                                         | absl grpc nlohmann openssl protobuf | 2150 2300
client/commands          | client base proto                                                  | absl nlohmann protobuf   | 2400 0
client/sru_client.cc     | base client/commands                                               |                          | 50 0
client/example           | client                                                             |                          | 50 0
bench                    | client models kernels kernels/bench proto base                     | absl grpc nghttp2 nlohmann openssl protobuf | 3000 1050

tests/kernels/cuda_host  | kernels/cuda/kernels kernels/cuda/device kernels/cuda/stack        |                          | 0 1500
tests/kernels/cuda_runtime | kernels/cuda/device tests/kernels/cuda_host                        | cuda                     | 0 750
tests/testing            | tests/kernels/cuda_host server/batching server/batching/queue      | absl grpc nlohmann openssl protobuf sentencepiece zlib | 0 4950
                         | server/batching/steps server/tasks/* server/calls server/http         |
                         | server/rest server/base models models/decoding kernels base        |
                         | kernels/cpu/base kernels/cpu/isa kernels/cpu/tiles                 |
                         | kernels/cuda/backend proto                                         |
tests/gpu                | kernels kernels/testing                                            |                          | 0 1500
tests/kernels            | tests/testing tests/kernels/cuda_host tests/kernels/cuda_runtime tests/gpu kernels | hwy                      | 0 13000
                         | kernels/common kernels/cpu/base kernels/cpu/tiles                  |
                         | kernels/cpu/isa kernels/cpu/int8 kernels/cpu/stacks kernels/cpu/programs |
                         | kernels/cuda/kernels kernels/cuda/device kernels/cuda/stack        |
                         | kernels/cuda/program kernels/cuda/backend                          |
                         | kernels/bench kernels/testing                                      |
tests/golden             | tests/testing models models/decoding kernels                       | nlohmann                 | 0 3250
tests/fuzz               | tests/testing server server/base server/calls                      | absl grpc nlohmann protobuf | 0 2950
                         | server/calls/bounds server/calls/messages server/tasks/*           |
                         | server/door server/http server/open_inference/tensors server/rest  |
                         | server/telemetry server/translation server/transport models        |
                         | models/files models/marian models/text models/decoding kernels     |
                         | kernels/reference base proto                                       |
tests/integration        | tests/testing tests/kernels/cuda_host server                       | absl grpc nlohmann openssl protobuf | 0 14650
                         | server/base models kernels                                         |
                         | kernels/cuda/backend base proto                                    |
tests/interop            | tests/testing server/rpc server/door server/transport base         | absl grpc prometheus     | 0 2200
                         | server/calls server/base                                           |
tests/markup             | base server/translation                                            | absl                     | 0 450
tests/simulation         | tests/testing kernels server/batching server/base                  | absl                     | 0 1200
tests/deploy             | tests/testing client base                                          | absl                     | 0 3000
tests/chaos              | tests/testing server server/options.h server/base bench base       | absl protobuf            | 0 2950
.                        |                                                                    |                          | 100 0
.ci                      |                                                                    |                          | 250 0
cmake                    |                                                                    |                          | 700 0
deploy                   |                                                                    |                          | 650 0
scripts                  |                                                                    |                          | 3600 1200
client/python            |                                                                    |                          | 3700 2250
models/exporter          |                                                                    |                          | 3600 0
tests                    |                                                                    |                          | 0 9200
"""

# What unit tests of a room may include as well: the other side of what two rooms must agree on, and
# libraries that only tests use.
TESTS_ALSO_INCLUDE = {
    "server/calls/kinds": "proto",  # the details of an error
    "server/batching": "server/tasks/tasks.h server/tasks/* server/tasks/stacks",  # models to compute with
    # requests of every task, what parsing them takes, and models to compute with
    "server/tasks": "server/tasks/* base models kernels server/base server/calls server/calls/bounds server/calls/messages server/open_inference/tensors models/text",
    "server/tasks/*": "server/base",  # a clock
    "server/calls": "proto",  # messages to call with
    "server/lifecycle": "kernels",  # a backend to load models of every task with
    "server/translation": "kernels",  # the same
    "server/http": "server/telemetry",  # metrics as the page gets them
    "models/decoding": "nlohmann",  # golden JSON
    "models/text": "kernels nlohmann re2",  # every value of an enum; words as RE2 would cut them; golden JSON
}
TEST_HELPERS = "tests/testing"
TEST_LIBRARIES = "gmock gtest"

# library -> what its headers' names begin with
LIBRARIES = {
    "absl": "absl/", "benchmark": "benchmark/", "boost": "boost/", "cld2": "cld2/", "cli11": "CLI/",
    "cuda": "cuda_runtime cuda_bf16 cuda.h cublas nvml", "dnnl": "dnnl oneapi/", "gmock": "gmock/",
    "grpc": "grpc/ grpcpp/", "gtest": "gtest/", "hwy": "hwy/", "icu": "unicode/",
    "libdeflate": "libdeflate.h", "libzip": "zip.h", "nghttp2": "nghttp2/", "nlohmann": "nlohmann/",
    "openmp": "omp.h", "openssl": "openssl/", "prometheus": "prometheus/",
    "protobuf": "google/protobuf/", "re2": "re2/", "sentencepiece": "sentencepiece_",
    "simdjson": "simdjson.h",
    "utf8proc": "utf8proc.h", "yaml_cpp": "yaml-cpp/", "zlib": "zlib.h",
}
# header of Abseil -> the names that are looked for
ABSEIL = {
    "absl/strings/ascii.h": r"ascii_\w+|AsciiStrTo\w+|Strip(?:Leading|Trailing)?AsciiWhitespace",
    "absl/strings/escaping.h": r"BytesToHexString|CEscape|CHexEscape|(?:WebSafe)?Base64(?:Une|E)scape|Utf8SafeC(?:Hex)?Escape",
    "absl/strings/match.h": r"StrContains|StartsWith|EndsWith|EqualsIgnoreCase",
    "absl/strings/numbers.h": r"Simple(?:Atob|Atod|Atof|Atoi|HexAtoi)",
    "absl/strings/str_cat.h": r"StrCat|StrAppend",
    "absl/strings/str_format.h": r"StrFormat|StrAppendFormat",
    "absl/strings/str_join.h": r"StrJoin",
    "absl/strings/str_replace.h": r"StrReplaceAll",
    "absl/strings/str_split.h": r"StrSplit",
    "absl/strings/strip.h": r"(?:Consume|Strip)(?:Prefix|Suffix)",
    "absl/synchronization/notification.h": r"Notification",
    "absl/time/clock.h": r"Now(?=\()|SleepFor",
}
ABSEIL_USED = {header: re.compile(r"\babsl::(?:%s)\b" % names) for header, names in ABSEIL.items()}
COMMENT = re.compile(r"//.*")
SYSTEM = ("arpa/", "linux/", "net/", "netinet/", "sanitizer/", "sys/")
GENERATED = ("sru/v1/", "inference/", "google/rpc/", "opentelemetry/")  # from proto/
SOURCES = (".h", ".cc", ".cu", ".cuh", ".proto")
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
IMPORT = re.compile(r'^\s*import\s+(?:public\s+|weak\s+)?(")([^"]+)"')


def read_table(text):
    """room -> (rooms, libraries), in the order of the rows, and what is wrong with the table itself."""
    table, problems, room = {}, [], None
    for line in filter(None, (line.strip() for line in text.splitlines())):
        name, rooms, libraries = (cell.strip() for cell in line.split("|")[:3])
        if name in table:
            problems.append("table: %s has two rows" % name)
        for named in rooms.split():
            if named not in table or named == (name or room):
                problems.append("table: %s may not include %s, which is not a row above it: arrows "
                                "between rooms must not form a circle" % (name or room, named))
        for library in libraries.split():
            if library not in LIBRARIES:
                problems.append("table: %s names an unknown library: %s" % (name or room, library))
        room = name or room
        allowed = table.setdefault(room, (set(), set()))
        allowed[0].update(rooms.split())
        allowed[1].update(libraries.split())
    return table, problems


def read_budgets(text):
    """room -> (lines of product, lines of tests) that it may have at most."""
    cells = [[cell.strip() for cell in line.split("|")] for line in text.splitlines() if line.count("|") == 3]
    return {row[0]: tuple(int(number.replace(",", "")) for number in row[3].split()) for row in cells if row[0]}


def room_of(path, table):
    """The row of the room of a file of the project; None where the table has none."""
    if path in table:
        return path
    folder = os.path.dirname(path)
    while folder.startswith("proto/"):  # the packages of the contract
        folder = os.path.dirname(folder)
    each = os.path.dirname(folder) + "/*"
    return folder if folder in table else each if each in table else None


def library_of(header):
    for library, prefixes in LIBRARIES.items():
        if header.startswith(tuple(prefixes.split())):
            return library
    return None


class Checker:
    """Holds include lines against the table and notes which of its arrows are used."""

    def __init__(self, root, table):
        self.root = root
        self.table = table
        self.used = {room: set() for room in table}

    def allowed(self, path):
        """The rooms and the libraries that a file may include."""
        room = room_of(path, self.table)
        rooms, libraries = self.table[room]
        is_test = path.endswith("_test.cc")
        if is_test and not path.startswith("tests/"):
            also = set(TESTS_ALSO_INCLUDE.get(room, "").split())
            rooms = rooms | {TEST_HELPERS} | (also & set(self.table))
            reached = [self.table[name][1] for name in rooms if name in self.table]
            libraries = libraries.union(also - set(self.table), *reached)
        if is_test or path.startswith("tests/"):
            libraries = libraries | set(TEST_LIBRARIES.split())
        return rooms, libraries

    def rule_broken(self, path, quote, header):
        """Why the file may not have this include line; None where it may."""
        room = room_of(path, self.table)
        rooms, libraries = self.allowed(path)
        target = None
        if header.startswith(GENERATED):
            target = "proto"
        elif "/" in header and os.path.isdir(os.path.join(self.root, header.split("/")[0])):
            target = room_of(header, self.table)
            if target is None:
                return "%s is in a folder that has no row in scripts/check_includes.py" % header
            if quote != '"':
                return "%s is a file of the project: expected it in quotes" % header
        if target is not None:
            self.used[room].add(target)
            siblings = target == room and room.endswith("/*") and os.path.dirname(path) != os.path.dirname(header)
            if (target == room or target in rooms) and not siblings:
                return None
            return "%s may not include %s (%s): its row names %s" % (
                os.path.dirname(path) if siblings else room, target, header,
                ", ".join(sorted(rooms)) or "no other room")
        library = library_of(header)
        if library is not None:
            self.used[room].add(library)
            if library in libraries:
                return None
            return "%s may not use %s (%s): its row names %s" % (
                room, library, header, ", ".join(sorted(libraries)) or "no library")
        if quote == '"':
            return ("%s: expected a path from the root of the project, or a library that LIBRARIES "
                    "names" % header)
        if "/" in header and not header.startswith(SYSTEM):
            return "%s belongs to no library that LIBRARIES names" % header
        return None

    def unused(self):
        """What rows name for nothing."""
        return ["table: %s names %s and does not include it" % (room, name)
                for room, cells in self.table.items()
                for name in sorted(set().union(*cells) - self.used[room])]


def reached(path, included, found):
    """Adds all headers that a file includes, itself or by way of the project's files."""
    for header in included.get(path, ()):
        if header not in found:
            found.add(header)
            reached(header, included, found)
    return found


def missing_headers(texts):
    """Where a function is used whose header is not included, for {path: text}."""
    included = {path: [m[2] for m in map(INCLUDE.match, text.splitlines()) if m] for path, text in texts.items()}
    problems = []
    for path, text in texts.items():
        wanted = None
        for number, line in enumerate(text.splitlines(), 1):
            if "absl::" not in line:
                continue
            wanted = reached(path, included, set()) if wanted is None else wanted
            for header, used in ABSEIL_USED.items():
                match = used.search(COMMENT.sub("", line))
                if match and header not in wanted:
                    wanted.add(header)  # said once
                    problems.append("%s:%d: %s needs %s" % (path, number, match[0], header))
    return problems


def sources(root):
    """The project's files by git, or all of them where there is no git, relative to the root."""
    git = None
    if shutil.which("git"):
        git = subprocess.run(["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard"],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    if git is not None and git.returncode == 0:
        paths = git.stdout.splitlines()
    else:
        paths = [os.path.relpath(os.path.join(folder, name), root)
                 for folder, _, names in os.walk(root) for name in names
                 if not os.path.relpath(folder, root).startswith("build")]
    return sorted(p for p in paths if p.endswith(SOURCES) and os.path.isfile(os.path.join(root, p)))


def check(root, text=TABLE):
    """All that is wrong, as lines to print."""
    table, problems = read_table(text)
    if problems:
        return problems

    checker = Checker(root, table)
    texts = {}
    for path in sources(root):
        if room_of(path, table) is None:
            problems.append("%s:1: the folder has no row in scripts/check_includes.py" % path)
            continue
        pattern = IMPORT if path.endswith(".proto") else INCLUDE
        with open(os.path.join(root, path), encoding="utf-8") as file:
            texts[path] = file.read()
        for number, line in enumerate(texts[path].splitlines(), 1):
            match = pattern.match(line)
            broken = match and checker.rule_broken(path, match[1], match[2])
            if broken:
                problems.append("%s:%d: %s" % (path, number, broken))
    return problems + missing_headers(texts) + checker.unused()


def main():
    """Prints what the check says of the project, and returns the exit code."""
    if len(sys.argv) > 2 or (len(sys.argv) == 2 and not os.path.isdir(sys.argv[1])):
        print(__doc__, file=sys.stderr)
        return 2
    root = sys.argv[1] if len(sys.argv) == 2 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    problems = check(root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
