"""How gpu_report.py comes by gpu_check and gpu_bench on a machine that may lack tools.

In this order: CMake, if it is new enough; the compilers called directly, which needs nvcc and g++ only;
the programs of the installation that was taken along (make gpu_prefix), which needs neither.
"""
import collections
import concurrent.futures
import glob
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LEAST_CMAKE = (3, 25)  # cmake_minimum_required() of kernels/
LEAST_CUDA = (12, 0)  # of cmake/SruCuda.cmake
# As in cmake/SruCuda.cmake and cmake/SruTargets.cmake.
NVCC_FLAGS = ["-std=c++17", "-O3", "-DNDEBUG", "-fmad=false", "-Xcompiler", "-fPIC"]
CXX_FLAGS = ["-std=c++17", "-O3", "-DNDEBUG", "-fPIC"]
LIBRARIES = ["-ldl", "-lrt", "-lpthread"]

Programs = collections.namedtuple("Programs", "check bench")
Toolkit = collections.namedtuple(
    "Toolkit", "nvcc version roots include_folder library_folder cmake_flags")


def output_of(command, seconds=30):
    """What it prints; nothing if it fails or takes longer."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=ROOT,
                              check=False)
        return done.stdout.strip() if done.returncode == 0 else ""
    except (OSError, subprocess.TimeoutExpired):
        return ""


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
    return Toolkit(nvcc, version_of([nvcc, "--version"], "release ") if nvcc else None, roots,
                   os.path.dirname(header) if header else None,
                   os.path.dirname(library) if library else None, flags)


def sources():
    """The sources of gpu_check, gpu_bench and of what both link, as kernels/ lists them without a CPU backend."""
    def files(*patterns):
        return sorted(os.path.relpath(f, ROOT) for p in patterns for f in glob.glob(os.path.join(ROOT, p)))
    shared = [f for f in files("kernels/*.cc", "kernels/reference/*.cc", "kernels/cuda/*.cc",
                               "kernels/cuda/*.cu")
              if f != "kernels/cuda/no_toolkit.cc"] + ["kernels/cpu/not_built.cc"]
    return shared, files("tests/gpu/*.cc"), ["kernels/bench/gpu_bench.cc"]


def cudart_of(toolkit):
    return next((f for r in toolkit.roots for f in
                 glob.glob(f"{r}/lib64/libcudart_static.a") + glob.glob(f"{r}/lib/libcudart_static.a") +
                 glob.glob(f"{r}/targets/*/lib/libcudart_static.a")), None)


def build_directly(steps, build, toolkit, architecture):
    """Calls nvcc and g++ for every source at once. Returns the programs, or None after a recorded failure."""
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    runtime = cudart_of(toolkit)
    if compiler is None or runtime is None or toolkit.include_folder is None:
        missing = [name for name, found in (("g++", compiler), ("libcudart_static.a", runtime),
                                            ("cublasLt.h", toolkit.include_folder)) if not found]
        steps.record("build without CMake", "failed", 0, "not found: " + ", ".join(missing))
        return None
    os.makedirs(os.path.join(build, "objects"), exist_ok=True)
    os.makedirs(os.path.join(build, "bin"), exist_ok=True)
    includes = ["-I" + ROOT] + [f for folder in dict.fromkeys(
        [toolkit.include_folder, toolkit.roots[0] + "/include"]) for f in ("-isystem", folder)]
    jobs = os.path.join(build, "compile.sh")
    shared, check, bench = sources()
    objects = {}
    commands = []
    for source in shared + check + bench:
        objects[source] = os.path.join(build, "objects", source.replace("/", "_") + ".o")
        if source.endswith(".cu"):
            command = [toolkit.nvcc, *NVCC_FLAGS, "-gencode",
                       f"arch=compute_{architecture},code=sm_{architecture}", *includes]
        else:
            command = [compiler, *CXX_FLAGS, *includes,
                       f'-DSRU_CUDA_LIBRARY_DIR="{toolkit.library_folder or ""}"']
        commands.append(command + ["-c", source, "-o", objects[source]])
    # The slow ones first.
    commands.sort(key=lambda c: not c[-3].endswith(".cu"))
    links = [[compiler, "-o", os.path.join(build, "bin", name),
              *[objects[s] for s in own + shared], runtime, *LIBRARIES]
             for name, own in (("gpu_check", check), ("gpu_bench", bench))]
    # One step of its own, so that its output and its limit are those of every other.
    with open(jobs, "w", encoding="utf-8") as file:
        file.write("\n".join("\x1f".join(c) for c in commands) + "\n\n" +
                   "\n".join("\x1f".join(c) for c in links))
    done = steps.run("build without CMake", [sys.executable, "-B", os.path.abspath(__file__), jobs], 150)
    return made(os.path.join(build, "bin")) if done is not None else None


def run_jobs(path):
    """Runs the commands of a file of build_directly(): all of a paragraph at once, then the next."""
    with open(path, encoding="utf-8") as file:
        paragraphs = [p.split("\n") for p in file.read().split("\n\n")]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        for commands in paragraphs:
            codes = list(pool.map(
                lambda c: subprocess.run(c.split("\x1f"), cwd=ROOT, check=False).returncode, commands))
            failed = [c.split("\x1f")[-3:] for c, code in zip(commands, codes) if code != 0]
            if failed:
                print("cannot be built:", failed[0])
                return 1
    print(f"{sum(map(len, paragraphs))} commands")
    return 0


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
    advice = ("install the CUDA toolkit (nvcc) and g++, or take programs along: make gpu_prefix where "
              "there is nvcc, then --prefix build-gpu_prefix/prefix.tar.gz here")
    if toolkit.nvcc is None or toolkit.version is None:
        why = "this machine has no nvcc"
    elif toolkit.version < LEAST_CUDA:
        why = "expected nvcc {}.{} or newer, found {}.{}".format(*LEAST_CUDA, *toolkit.version)
    else:
        cmake = version_of(["cmake", "--version"], "version ")
        if cmake is not None and cmake >= LEAST_CMAKE:
            built = build_with_cmake(steps, build, toolkit, architecture)
        else:
            found = "none" if cmake is None else "{}.{}".format(*cmake)
            print("gpu_report: expected CMake {}.{} or newer, found {}: the compilers are called "
                  "directly".format(*LEAST_CMAKE, found), flush=True)
            built = build_directly(steps, build, toolkit, architecture)
        if built:
            return built
        why = "they cannot be built here"
    if carried:
        steps.record("programs of --prefix", "ok", 0, why)
        return carried
    steps.record("programs", "failed", 0, f"{why}; {advice}")
    return None


if __name__ == "__main__":
    sys.exit(run_jobs(sys.argv[1]))
