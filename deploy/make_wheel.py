#!/usr/bin/env python3
"""Makes the wheel sru-server of a build folder: the programs, their libraries except glibc, and the bundled models.

  deploy/make_wheel.py [BUILD [OUT]]    default: build, and BUILD/packages; prints the wheel's path

BUILD has been made with the preset release, or cross-compiled for arm64 (scripts/arm64.sh). deploy/image_rootfs.sh
collects the libraries and their licenses, as for the image. The wheel's tag names the oldest glibc that they run with.
"""

import base64
import glob
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GLIBC = re.compile(r"lib(c|m|dl|rt|pthread|resolv|util|anl|mvec)\.so|ld-linux")
MACHINES = {"Advanced Micro Devices X86-64": "x86_64", "AArch64": "aarch64"}
METADATA = """Metadata-Version: 2.1
Name: sru-server
Version: %s
Summary: Inference server for Simple Recurrent Units
License: Apache-2.0; the libraries in the wheel have their own, in licenses/
Requires-Python: >=3.8
Description-Content-Type: text/markdown

`sru_server --demo` serves the bundled models, `sru_server --model_repository=DIR` yours; `sru_server --help` has the
flags. `sru_client classify "Where is Lake Titicaca ?"` asks it, and so does the package sru-inference.
"""
ENTRY_POINTS = "[console_scripts]\nsru_server = sru_server:main\nsru_client = sru_server:client\n"


def output_of(*command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, **options).stdout


def make_rootfs(build, work):
    """The image's root file system, made in the folder `work`."""
    prefix, rootfs = os.path.join(work, "prefix"), os.path.join(work, "rootfs")
    output_of("cmake", "--install", build, "--prefix", prefix, "--component", "runtime", "--strip")
    cache = pathlib.Path(build, "CMakeCache.txt").read_text(encoding="utf-8")
    sysroot = re.search(r"^SRU_SYSROOT:\w+=(.*)$", cache, re.MULTILINE)
    environment = {**os.environ, "SRU_SYSROOT": sysroot[1] if sysroot else ""}
    output_of(os.path.join(ROOT, "deploy", "image_rootfs.sh"), prefix, rootfs, env=environment)
    return rootfs


def tag_of(binaries):
    """py3-none-manylinux_2_36_x86_64, for instance."""
    machine = re.search(r"Machine: +(.*)", output_of("readelf", "-h", binaries[0]))[1]
    versions = re.findall(r"Name: GLIBC_2\.(\d+)", output_of("readelf", "--version-info", "--wide", *binaries))
    return "py3-none-manylinux_2_%d_%s" % (max(map(int, versions)), MACHINES[machine])


def tree(folder, place):
    """{path in the wheel: file} of all files below a folder."""
    return {os.path.join(place, os.path.relpath(path, folder)): path
            for parent, _, names in os.walk(folder) for path in (os.path.join(parent, name) for name in names)}


def make_wheel(rootfs, out):
    version = pathlib.Path(ROOT, "VERSION").read_text(encoding="utf-8").strip()
    info = "sru_server-%s.dist-info" % version
    programs = tree(os.path.join(rootfs, "usr/local/bin"), "sru_server/bin")
    libraries = {"sru_server/lib/" + os.path.basename(path): path for path in glob.glob(rootfs + "/usr/lib/*/lib*.so*")
                 if not GLIBC.match(os.path.basename(path))}
    tag = tag_of([*programs.values(), *libraries.values()])
    files = {**programs, **libraries, **tree(os.path.join(rootfs, "models"), "sru_server/share/sru/models"),
             **tree(os.path.join(ROOT, "deploy/wheel/sru_server"), "sru_server"),
             **tree(os.path.join(rootfs, "usr/share/doc"), info + "/licenses"),
             # Names and versions of the Debian packages that the libraries come from.
             **tree(os.path.join(rootfs, "var/lib/dpkg/status.d"), "sru_server/share/dpkg/status.d")}
    texts = {info + "/METADATA": METADATA % version, info + "/entry_points.txt": ENTRY_POINTS,
             info + "/WHEEL": "Wheel-Version: 1.0\nGenerator: make_wheel\nRoot-Is-Purelib: false\nTag: %s\n" % tag}
    path = os.path.join(out, "sru_server-%s-%s.whl" % (version, tag))
    os.makedirs(out, exist_ok=True)
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:

        def add(name, data, mode):
            entry = zipfile.ZipInfo(name)  # of 1980, so that the same files make the same wheel
            entry.external_attr, entry.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append("%s,sha256=%s,%d\n" % (name, digest, len(data)))

        for name, source in sorted(files.items()):
            if "__pycache__" not in name:
                add(name, pathlib.Path(source).read_bytes(), 0o755 if source in programs.values() else 0o644)
        for name, text in texts.items():
            add(name, text.encode(), 0o644)
        add(info + "/RECORD", ("".join(record) + info + "/RECORD,,\n").encode(), 0o644)
    return path


def main():
    if len(sys.argv) > 3 or any(argument.startswith("-") for argument in sys.argv[1:]):
        sys.exit(__doc__)
    build = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build")
    if not os.path.exists(os.path.join(build, "bin", "sru_server")):
        sys.exit("make_wheel: expected the programs in %s/bin, found none; build them with: make programs" % build)
    with tempfile.TemporaryDirectory() as work:
        print(make_wheel(make_rootfs(build, work), sys.argv[2] if len(sys.argv) > 2 else os.path.join(build, "packages")))


if __name__ == "__main__":
    main()
