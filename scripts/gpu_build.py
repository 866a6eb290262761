"""How gpu_report.py comes by gpu_check and gpu_bench on a machine that may lack tools.

They are those of the installation that was taken along (make gpu_prefix); without one, CMake builds them, if it is new enough and there is
nvcc.
"""
import collections
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LEAST_CMAKE = (3, 25)  # cmake_minimum_required() of kernels/
LEAST_CUDA = (12, 0)  # of cmake/SruCuda.cmake
KILL_SECONDS = 3  # in which a killed process ends, unless the driver hangs

Programs = collections.namedtuple("Programs", "check bench")
Toolkit = collections.namedtuple(
    "Toolkit", "nvcc version library_folder cmake_flags")


def end_of(process, seconds):
    """Its exit code, or None if it takes longer and is killed with all that it has started.

    A driver that hangs keeps a process from dying: it is left behind then."""
    try:
        return process.wait(timeout=max(0.1, seconds))
    except subprocess.TimeoutExpired:
        try:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=KILL_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            pass
        return None


def output_of(command, seconds=30):
    """What it prints; nothing if it fails or takes longer."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as out:
        try:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, cwd=ROOT,
                                       start_new_session=True)
        except OSError:
            return ""
        if end_of(process, seconds) != 0:
            return ""
        out.seek(0)
        return out.read().strip()


def version_of(command, pattern):
    """(major, minor) as the program says; None if there is no such program."""
    found = re.search(pattern + r"(\d+)\.(\d+)", output_of(command))
    return (int(found.group(1)), int(found.group(2))) if found else None


def find_toolkit():
    """nvcc and cuBLASLt, which may be beside it or in PyTorch's packages."""
    nvcc = shutil.which("nvcc") or next(
        (n for n in ["/usr/local/cuda/bin/nvcc"] if os.access(n, os.X_OK)), None)
    roots = [os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))] if nvcc else []
    roots += ["/usr/local/cuda"] + sorted(glob.glob("/usr/local/cuda-1*"), reverse=True)
    site = output_of([sys.executable, "-c",
                      "import site, sys; print('\\n'.join(site.getsitepackages() + sys.path))"])
    packages = [p for s in dict.fromkeys(site.splitlines()) for p in
                sorted(glob.glob(os.path.join(s, "nvidia", "*")))]
    header = next((h for r in roots + packages
                   for h in (glob.glob(f"{r}/include/cublasLt.h") +
                             glob.glob(f"{r}/targets/*/include/cublasLt.h"))), None)
    library = next((l for r in roots + packages
                    for l in (glob.glob(f"{r}/lib64/libcublasLt.so.*") +
                              glob.glob(f"{r}/lib/libcublasLt.so.*") +
                              glob.glob(f"{r}/targets/*/lib/libcublasLt.so.*"))), None)
    flags = []
    if header and not any(header.startswith(r + "/") for r in roots):
        flags.append(f"-DSRU_CUDA_INCLUDE_DIR={os.path.dirname(header)}")
        if not os.path.exists(os.path.join(os.path.dirname(header), "cuda_runtime_api.h")):
            # This is a package of cuBLAS alone; the runtime's headers are beside nvcc.
            flags.append(f"-DCMAKE_CXX_FLAGS=-isystem {roots[0]}/include")
    return Toolkit(nvcc, version_of([nvcc, "--version"], "release ") if nvcc else None,
                   os.path.dirname(library) if library else None, flags)


def build_with_cmake(steps, build, toolkit, architecture):
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    built = steps.run("configure", ["cmake", "-S", "tests/gpu", "-B", build, *generator,
                                    "-DSRU_CPU=OFF", "-DSRU_CUDA=ON",
                                    f"-DSRU_CUDA_ARCHITECTURES={architecture}",
                                    *toolkit.cmake_flags], 60)
    if built is not None:
        built = steps.run("build", ["cmake", "--build", build, "--parallel",
                                    str(os.cpu_count() or 2)], 150)
    return made(os.path.join(build, "bin")) if built is not None else None


def made(folder):
    """The programs in a folder, None if one is missing."""
    found = Programs(os.path.join(folder, "gpu_check"), os.path.join(folder, "gpu_bench"))
    return found if all(os.access(p, os.X_OK) for p in found) else None


def programs(steps, build, toolkit, architecture, prefix):
    """gpu_check and gpu_bench, or None with a failed step that says what to do."""
    carried = made(os.path.join(prefix, "bin")) if prefix else None
    if carried:
        return carried
    advice = ("install the CUDA toolkit (nvcc), g++ and CMake, or take programs along: make gpu_prefix where "
              "there are these, then --prefix build-gpu_prefix/prefix.tar.gz here")
    cmake = version_of(["cmake", "--version"], "version ")
    why = "they cannot be built here"
    if toolkit.nvcc is None or toolkit.version is None:
        why = "this machine has no nvcc"
    elif toolkit.version < LEAST_CUDA:
        why = "expected nvcc {}.{} or newer, found {}.{}".format(*LEAST_CUDA, *toolkit.version)
    elif cmake is None or cmake < LEAST_CMAKE:
        found = "none" if cmake is None else "{}.{}".format(*cmake)
        why = "expected CMake {}.{} or newer, found {}".format(*LEAST_CMAKE, found)
    else:
        built = build_with_cmake(steps, build, toolkit, architecture)
        if built:
            return built
    steps.record("programs", "failed", 0, f"{why}; {advice}")
    return None

