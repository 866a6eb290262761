#!/usr/bin/env python3
"""Tests cmake/SruCuda.cmake with toolkits of which there is nothing but the names of the files and the version."""
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(toolkit LANGUAGES NONE)
set(CMAKE_FIND_LIBRARY_PREFIXES lib)
set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH FALSE)  # this machine may have a toolkit
set(CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH FALSE)
set(SRU_SOURCE_ROOT {root})
include({root}/cmake/SruCuda.cmake)
message(STATUS "found ${{SRU_CUDA_FOUND}} for ${{SRU_CUDA_ARCHITECTURES}}")
"""


class ToolkitTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = folder.name
        self.write("CMakeLists.txt", PROJECT.format(root=ROOT))

    def write(self, name, text):
        path = os.path.join(self.here, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def toolkit(self, says, header="include/cublasLt.h", library="lib64/libcudart_static.a"):
        nvcc = self.write("cuda/bin/nvcc", f"#!/bin/sh\necho '{says}'\n")
        os.chmod(nvcc, 0o755)
        self.write("cuda/" + header, "")
        self.write("cuda/" + library, "")
        return "-DSRU_NVCC=" + nvcc

    def configure(self, *flags):
        build = tempfile.mkdtemp(dir=self.here)
        done = subprocess.run(["cmake", "-S", self.here, "-B", build, *flags], capture_output=True, text=True,
                              check=False)
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    def test_the_architectures_are_those_that_the_toolkit_knows(self):
        for version, wanted in (("13.0", "80;86;89;90;100;120"), ("12.8", "80;86;89;90;100;120"),
                                ("12.6", "80;86;89;90"), ("12.0", "80;86;89;90")):
            flag = self.toolkit(f"Cuda compilation tools, release {version}, V{version}.1")
            code, said = self.configure(flag, "-DSRU_CUDA=ON")
            self.assertEqual(code, 0, said)
            self.assertIn("found TRUE for " + wanted, said, version)
        flag = self.toolkit("release 12.4, V12.4.1")
        self.assertIn("found TRUE for 87", self.configure(flag, "-DSRU_CUDA_ARCHITECTURES=87")[1])
        self.toolkit("release 13.0, V", "targets/x86_64-linux/include/cublasLt.h",
                     "targets/x86_64-linux/lib/libcudart_static.a")
        self.assertIn("found TRUE", self.configure(flag, "-DSRU_CUDA=ON")[1])

    def test_by_default_the_gpus_of_the_machine_decide(self):
        flag = self.toolkit("release 13.0, V")
        code, said = self.configure(flag)
        self.assertEqual(code, 0, said)
        self.assertIn("CUDA kernels: off, no GPU here; SRU_CUDA=ON compiles for all", said)
        self.assertIn("found FALSE", said)
        smi = self.write("nvidia-smi", "#!/bin/sh\nprintf '9.0\\n12.0\\n9.0\\n'\n")
        os.chmod(smi, 0o755)
        self.assertIn("found TRUE for 90;120", self.configure(flag, "-DSRU_NVIDIA_SMI=" + smi)[1])
        os.chmod(self.write("nvidia-smi", "#!/bin/sh\necho 'no devices were found'\nexit 6\n"), 0o755)
        self.assertIn("off, no GPU here", self.configure(flag, "-DSRU_NVIDIA_SMI=" + smi)[1])

    def test_a_toolkit_that_is_too_old_is_not_used(self):
        flag = self.toolkit("Cuda compilation tools, release 11.8, V11.8.89")
        code, said = self.configure(flag, "-DSRU_CUDA_ARCHITECTURES=90")
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r"CUDA kernels: off, \S+/nvcc is of CUDA 11.8, expected 12.0 or newer")
        self.assertIn("found FALSE", said)
        code, said = self.configure(flag, "-DSRU_CUDA=ON")
        self.assertNotEqual(code, 0)
        self.assertRegex(said, r"SRU_CUDA=ON: \S+/nvcc is of CUDA 11.8, expected 12.0 or newer; name another")
        self.assertIn("found FALSE", self.configure(flag, "-DSRU_CUDA=OFF")[1])

    def test_what_is_no_toolkit_is_not_used(self):
        flag = self.toolkit("not a compiler")
        code, said = self.configure(flag, "-DSRU_CUDA_ARCHITECTURES=90")
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r"CUDA kernels: off, \S+/nvcc does not say its version")
        flag = self.toolkit("release 13.0, V")
        os.remove(self.here + "/cuda/lib64/libcudart_static.a")
        code, said = self.configure(flag, "-DSRU_CUDA_ARCHITECTURES=90")
        self.assertEqual(code, 0, said)
        self.assertIn("CUDA kernels: off, no toolkit with nvcc, cublasLt.h and cudart_static", said)
        self.assertIn("off under sanitizers", self.configure(flag, "-DSRU_SANITIZE=thread")[1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
