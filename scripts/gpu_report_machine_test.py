#!/usr/bin/env python3
"""Runs gpu_report.sh on machines of paper: nvidia-smi, compilers, CMake, compute-sanitizer, PyTorch and the
programs only say what real ones would, and each test breaks another of them."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import gpu_report  # noqa: E402

SMI = """case "$1" in
  *name*) {lines};;
  *memory.used*) {memory};;
  *compute_mode*) echo {mode};;
esac"""
CMAKE = """if [ "$1" = --version ]; then echo "cmake version {version}"
elif [ "$1" = -S ]; then mkdir -p "$4/bin"; echo "$@" >"$4/flags"
else cp "$HERE/gpu_check" "$HERE/gpu_bench" "$2/bin/"
fi"""
NVCC = 'echo "Cuda compilation tools, release VERSION, V1"'
CHECK = """echo "${CUDA_VISIBLE_DEVICES-unset} ${CUDA_LAUNCH_BLOCKING-0} $*" >>"$HERE/checked"
for a; do case $a in
  --json=*) echo '{"name": "golden x", "ok": true, "detail": ""}' >"${a#--json=}";; esac; done
echo 1 checks, 0 failed"""
BENCH = """case "$1" in
  scan) echo '[
{"dtype": "bfloat16", "directions": 2, "hidden": 128, "sequences": 4, "length": 8, "us": 5, "bytes_per_s": 4e12, "ratio": 0.91}
]';;
  classify) cp "$OUT/gpu.json" "$OUT/gpu.log" "$HERE/"
    echo '[
{"type": "float32", "tokens": 10, "gpu_and_copy_us": 50.0, "without_token_table_us": 66.0, "run_p50_us": 70.0, "run_p99_us": 90.0}
]';;
  systems) echo '[
{"name": "reader", "type": "float32", "sequences": 1, "rows": 142, "run_p50_us": 300.0, "run_p99_us": 320.0, "weights_us": 0, "workspace_mb": 80.5, "load_s": 1}
]';;
  products) echo '{"k": 512, "own_us": 4.5}';;
  predict) echo '{"vocabulary": 32000, "rows": 1, "asked": "top_p 0.9", "one_block_us": 15.0, "cluster_us": 6.0}';;
  fused) echo '{"layers": 2, "batch": 32, "plain_us": 20.0, "fused_us": 16.0}';;
esac"""
NCU = """echo "$*" >>"$HERE/traced"
echo '"ID","Kernel Name","gpu__time_duration.sum"
"","","ns"
"0","sru::Scan(int)","1500"'"""
SANITIZER = """[ "$1" != --help ] || { echo "  --kernel-name arg   --kernel-name-exclude arg"; exit 0; }
echo "$*" >>"$HERE/sanitized"
echo "========= ERROR SUMMARY: 0 errors\""""
COMPARE = """import argparse, json
parser = argparse.ArgumentParser()
for name in ("--gpu_bench", "--out", "--seconds"):
    parser.add_argument(name)
parser.add_argument("--published", action="store_true")
flags = parser.parse_args()
json.dump({"torch": "paper", "cudnn": 9, "results": [], "left_out": [], "errors": [],
           "summary": None, "seconds": float(flags.seconds)}, open(flags.out, "w"))
"""


class MachineTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = folder.name
        self.out = self.here + "/report"
        self.build = self.here + "/build"
        # A copy of the project as far as the report uses it, with a comparison of paper.
        self.root = self.here + "/project"
        os.makedirs(self.root + "/scripts")
        os.makedirs(self.root + "/kernels/bench")
        for name in ("gpu_report.sh", "gpu_report.py", "gpu_build.py", "report_common.py"):
            shutil.copy(os.path.join(ROOT, "scripts", name), self.root + "/scripts/")
        self.write(self.root + "/kernels/bench/compare_pytorch_gpu.py", COMPARE)
        # The machine.
        self.write(self.here + "/python/torch/__init__.py", "")
        self.write(self.here + "/python/sru/__init__.py", "")
        self.write(self.here + "/python/sru/cuda_functional.py", "")
        self.write(self.here + "/cuda/include/cublasLt.h", "")
        self.write(self.here + "/cuda/include/cuda_runtime_api.h", "")
        self.write(self.here + "/cuda/lib64/libcublasLt.so.13", "")
        self.gpus(1)
        self.program("cuda/bin/nvcc", NVCC.replace("VERSION", "13.0"))
        self.program("cuda/bin/compute-sanitizer", SANITIZER)
        self.program("tools/ncu", NCU)
        self.program("tools/cmake", CMAKE.format(version="3.28.1"))
        self.program("gpu_check", CHECK)
        self.program("gpu_bench", BENCH)

    def write(self, path, text):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def program(self, name, text):
        path = os.path.join(self.here, name)
        self.write(path, f"#!/bin/sh\nHERE='{self.here}' OUT='{self.out}'\n{text}\n")
        os.chmod(path, 0o755)

    def gpus(self, count, memory=(0,), mode="Default"):
        lines = "; ".join(['echo "NVIDIA Paper, 580.1, 9.0"'] * count)
        self.program("tools/nvidia-smi", SMI.format(
            lines=lines, memory="; ".join(f"echo {m} MiB" for m in memory), mode=mode))

    def report(self, *arguments, minutes=8.0, environment=None):
        """Runs the script. Returns its exit code; self.results has the result of each step."""
        path = f"{self.here}/tools:{self.here}/cuda/bin:{os.path.dirname(sys.executable)}:/usr/bin:/bin"
        variables = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA", "LD_", "CXX", "SRU_SHARED"))}
        self.started = time.monotonic()
        done = subprocess.run(
            [self.root + "/scripts/gpu_report.sh", "--out", self.out, "--build", self.build,
             f"--minutes={minutes}", *arguments],
            capture_output=True, text=True, check=False, timeout=100,
            env={**variables, "PATH": path, "PYTHONPATH": self.here + "/python", **(environment or {})})
        self.seconds = time.monotonic() - self.started
        with open(self.out + "/gpu.json", encoding="utf-8") as file:
            self.data = json.load(file)
        self.results = {s["name"]: s["result"] for s in self.data["steps"]}
        self.notes = {s["name"]: s["note"] for s in self.data["steps"]}
        self.said = done.stdout + done.stderr
        return done.returncode

    def lines(self, name):
        with open(os.path.join(self.here, name), encoding="utf-8") as file:
            return file.read().splitlines()

    def steps_but(self, *names):
        return {n: r for n, r in self.results.items() if not any(re.match(w, n) for w in names)}

    def prefix(self):
        for name in ("gpu_check", "gpu_bench"):
            os.makedirs(self.here + "/made/bin", exist_ok=True)
            shutil.copy(os.path.join(self.here, name), self.here + "/made/bin/" + name)
        return self.here + "/made"

    def test_a_machine_on_which_everything_works(self):
        self.assertEqual(self.report(), 0, self.said)
        self.assertEqual(set(self.results.values()), {"ok"}, self.results)
        self.assertEqual(sum(n.startswith("sanitizer") for n in self.results), 35)
        self.assertEqual(self.data["checks"]["large, bfloat16"][0]["name"], "golden x")
        self.assertEqual(self.data["scan"][0]["ratio"], 0.91)
        self.assertEqual(self.data["pytorch"]["torch"], "paper")
        self.assertEqual(sorted(os.listdir(self.out)), ["gpu.json", "gpu.log", "gpu.md"])
        self.assertIn("-DSRU_CUDA_ARCHITECTURES=90", self.lines("build/flags")[0])
        types = ("float32", "bfloat16", "bfloat16_fused")
        self.assertEqual({n for n in self.results if n.startswith("checks")}, {
            f"checks, {g}, {t}" for g in ("goldens", "bits", "programs", "large", "reference", "others") for t in types})
        self.assertEqual([n for n in self.results if not n.startswith(("checks", "sanitizer"))], [
            "configure", "build", "products", "systems", *(f"trace, {system}, {dtype}, {count}" for system, dtype, count in gpu_report.TRACED),
            "predict", "fused", "scan", "classify", "published kernel", "against PyTorch"])
        # What runs beside each other ends in any order.
        kinds = list(dict.fromkeys(re.sub(r"(sanitizer \w+ of|sanitizer|checks).*", r"\1", n) for n in self.results))
        self.assertLess(kinds.index("fused"), kinds.index("sanitizer synccheck of"))
        self.assertLess(kinds.index("sanitizer racecheck of"), kinds.index("scan"))
        self.assertLess(kinds.index("against PyTorch"), kinds.index("sanitizer"))
        self.assertIn(" --only=goldens ", self.lines("checked")[0])
        self.assertEqual(self.data["parts"], list(gpu_report.PARTS))
        # With one GPU nothing is hidden from anybody.
        self.assertEqual({l.split()[0] for l in self.lines("checked")}, {"unset"})
        self.assertEqual(self.data["trace"][0]["kernel"], "Scan")

    def test_named_parts_alone_are_run_and_a_later_run_goes_on_with_the_rest(self):
        self.program("gpu_check", 'case "$*" in *bits*--dtype=float32*) exec sleep 60;; esac\n' + CHECK)
        self.program("cuda/bin/compute-sanitizer", 'case "$*" in *Skinny*) exit 9;; esac\n' + SANITIZER)
        self.assertEqual(self.report("--parts=checks,products", minutes=0.3), 1)
        self.assertEqual(self.data["parts"], ["products"])
        self.assertNotIn("systems", self.results)
        self.assertIn("ran out of time", self.notes["checks, bits, float32"])
        shutil.copy(self.out + "/gpu.json", self.here + "/first.json")
        self.program("gpu_check", CHECK)
        self.program("cuda/bin/compute-sanitizer", SANITIZER)
        os.remove(self.here + "/checked")
        os.remove(self.here + "/sanitized")
        self.assertEqual(self.report("--parts=checks", "--resume", self.here + "/first.json"), 0, self.said)
        self.assertEqual(self.data["products"], [{"k": 512, "own_us": 4.5}])
        self.assertEqual([re.search("only=(\\w+)", line).group(1) for line in self.lines("checked")], ["bits"])
        self.assertEqual(sum("Skinny" in line for line in self.lines("sanitized")), len(self.lines("sanitized")), "others passed")
        self.assertEqual(self.data["parts"], ["products", "checks"])

    def test_programs_that_find_no_gpu_have_failed(self):
        for name in ("gpu_check", "gpu_bench"):
            self.program(name, f"echo {name}: needs a GPU; exit 77")
        self.program("cuda/bin/compute-sanitizer", 'echo skipped; exit 77')
        self.assertEqual(self.report(), 1)
        # There is one reason, and it is there at once.
        self.assertEqual(self.steps_but("configure", "build"), {"checks, goldens, float32": "failed"})
        self.assertRegex(self.said.splitlines()[-1], "gpu_report: exit code 77; gpu_check: needs a GPU")
        self.assertLess(self.seconds, 20)

    def test_a_group_that_loses_the_device_is_repeated_kernel_by_kernel(self):
        # The check that loses it says why, and later ones that it is lost.
        self.program("gpu_check", """case "$*" in
  *=bits*) said='device 0 (Paper) has failed and is out of use';;
  *=large*) said='cudaEventSynchronize on device 0: illegal address (cudaErrorIllegalAddress)';;
  *=programs*) said='device 0 (Paper): it does not answer: it hangs';;
  *) said='3 of 40 differ';;
esac
""" + CHECK.replace('"ok": true, "detail": ""', '"ok": false, "detail": "\'"$said"\'"') + "\nexit 1")
        self.assertEqual(self.report(), 1)
        for group, repeated in (("bits", 3), ("large", 3), ("programs", 3), ("others", 0)):
            blocking = [l.split()[1] for l in self.lines("checked") if "--only=" + group in l]
            self.assertEqual(sorted(blocking), ["0"] * 3 + ["1"] * repeated, group)
        self.assertFalse(self.data["checks"]["bits, float32, kernel by kernel"][0]["ok"])
        self.assertEqual(self.results["against PyTorch"], "ok")

    def test_whatever_hangs_the_report_ends_in_time_with_what_was_printed(self):
        hangs = 'echo \'{"name": "begun", "type": "x", "rows": 1, "run_p50_us": 2, "run_p99_us": 3, "sequences": 1, "workspace_mb": 1, "weights_us": 1, "load_s": 1}\'; exec sleep 600'
        self.program("gpu_bench", '[ "$1" = systems ] || exit 1; ' + hangs)
        self.program("cuda/bin/compute-sanitizer", hangs)
        self.write(self.root + "/kernels/bench/compare_pytorch_gpu.py", "import time\ntime.sleep(600)\n")
        self.assertEqual(self.report(minutes=0.3), 1)
        self.assertLess(self.seconds, 0.3 * 60 + 8)
        self.assertEqual(self.data["systems"][0]["name"], "begun")
        self.assertIn("ran out of time", self.notes["systems"])
        self.program("gpu_check", hangs)
        self.assertEqual(self.report(minutes=0.3), 1)
        self.assertLess(self.seconds, 0.3 * 60 + 8)
        self.assertIn("ran out of time", self.notes["checks, goldens, float32"])

    def test_servers_may_hang(self):
        prefix = self.prefix()
        self.program("made/bin/sru_server", "exec sleep 600")
        self.assertEqual(self.report("--prefix", prefix, minutes=0.3), 1)
        self.assertLess(self.seconds, 0.3 * 60 + 8)
        self.assertIn("the server does not start", self.notes["server, float32"])
        self.assertEqual(self.results["fused"], "ok")

    def test_programs_that_do_nothing_have_failed(self):
        self.program("gpu_check", "exit 0")
        self.program("gpu_bench", "exit 0")
        self.program("cuda/bin/compute-sanitizer", "exit 0")
        self.assertEqual(self.report(), 1)
        for name in ("results of checks, goldens, float32", "results of checks, bits, bfloat16_fused",
                     "results of scan", "results of classify", "results of systems", "sanitizer racecheck, bfloat16_fused, large"):
            self.assertEqual(self.results[name], "failed", name)

    def test_only_pytorch_may_be_missing(self):
        shutil.rmtree(self.here + "/python")
        self.write(self.root + "/kernels/bench/compare_pytorch_gpu.py",
                   "import sys\nprint('no torch')\nsys.exit(77)\n")
        self.assertEqual(self.report(), 0, self.said)
        self.assertEqual(self.results["against PyTorch"], "skipped")

    def test_steps_that_hang_are_cut_and_pytorch_keeps_its_part(self):
        # On two cores the steps that hang take turns.
        self.program("gpu_check", 'case "$*" in *goldens*fuse* | *bits*fuse* | *large*fuse*) exec sleep 60;; esac\n' + CHECK)
        self.program("cuda/bin/compute-sanitizer", SANITIZER.replace("echo \"========= ERROR SUMMARY: 0 errors\"", """case "$*" in *kns=sru*);; *) echo "========= ERROR SUMMARY: 0 errors"; exit;; esac
echo '========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sru::ScanKernel+0x10
=========     and Read access at sru::ScanKernel+0x20'
exec sleep 60"""))
        self.assertEqual(self.report(minutes=0.3), 1)
        self.assertLess(self.seconds, 0.3 * 60 + 5)  # Python's own starts are slow on a busy machine
        self.assertIn("ran out of time", self.notes["checks, goldens, bfloat16_fused"])
        self.assertEqual(self.results["checks, goldens, float32"], "ok")
        for kind in ("racecheck", "synccheck"):
            self.assertIn("ran out of time; no summary, 1 reports until then", self.notes[f"sanitizer {kind}, bfloat16_fused, large"])
        self.assertEqual(self.results["against PyTorch"], "ok")
        self.assertGreater(self.data["pytorch"]["seconds"], 1.9)

    def test_results_are_there_while_later_steps_run(self):
        self.assertEqual(self.report(), 0)
        # What the step "classify" saw in the report's folder.
        with open(self.here + "/gpu.json", encoding="utf-8") as file:
            seen = json.load(file)
        self.assertEqual(seen["steps"][-1]["name"], "scan")
        self.assertEqual(seen["checks"]["bits, float32"][0]["name"], "golden x")
        self.assertIn("1 checks, 0 failed", "\n".join(self.lines("gpu.log")))

    def test_of_eight_gpus_the_idlest_is_used_and_all_are_checked_shortly(self):
        self.gpus(8, memory=(9, 8, 7, 30, 2, 1, 4, 5))
        self.assertEqual(self.report(), 0, self.said)
        seen = [l.split() for l in self.lines("checked")]
        self.assertEqual([l[0] for l in seen], ["5"] * 18 + ["unset"])
        self.assertEqual(seen[18][2:], ["--small"])
        self.assertEqual(self.results["short check on all GPUs"], "ok")

    def test_whoever_chose_a_gpu_keeps_it(self):
        self.gpus(8, memory=(9, 8, 7, 30, 2, 1, 4, 5))
        self.assertEqual(self.report(environment={"CUDA_VISIBLE_DEVICES": "3"}), 0, self.said)
        self.assertEqual({l.split()[0] for l in self.lines("checked")}, {"3"})
        self.assertNotIn("short check on all GPUs", self.results)

    def test_a_gpu_for_one_process_gets_one_at_a_time(self):
        self.program("cuda/bin/compute-sanitizer",
                     'mkdir "$HERE/busy" || exit 77\nsleep 0.05; rmdir "$HERE/busy"\n' + SANITIZER)
        self.gpus(1, mode="Exclusive_Process")
        self.assertEqual(self.report(), 0, self.said)
        self.assertEqual(sum(n.startswith("sanitizer") for n in self.results), 35)

    def test_the_slow_tools_look_at_our_kernels_only(self):
        self.assertEqual(self.report(), 0)
        runs = self.lines("sanitized")
        for kind in ("memcheck", "racecheck", "synccheck"):
            self.assertEqual(sum(f"--tool {kind} --kernel-name kns=sru " in r for r in runs), 6)
        # initcheck must see what the library writes.
        self.assertEqual(sorted(r.split()[3] for r in runs if "kns" not in r),
                         ["initcheck"] * 6 + ["memcheck"] * 3)
        # An old one has no such option.
        os.remove(self.here + "/sanitized")
        self.program("cuda/bin/compute-sanitizer", SANITIZER.replace("--kernel-name", "--other"))
        self.assertEqual(self.report(), 0)
        self.assertEqual(len(self.lines("sanitized")), 32)
        self.assertNotIn("kns", " ".join(self.lines("sanitized")))

    def test_the_programs_of_an_installation_are_not_built_again(self):
        for nvcc in (NVCC.replace("VERSION", "13.0"), "exit 127"):
            self.program("cuda/bin/nvcc", nvcc)
            self.report("--prefix", self.prefix())
            # The installation of this test has no server.
            self.assertEqual(self.results["server, float32"], "failed")
            self.assertEqual(set(self.steps_but("server", "texts", "trained").values()), {"ok"}, self.results)
            self.assertEqual(self.results["trained models"], "skipped", "there are no checkpoints")
            self.assertNotIn("build", self.results)
            self.assertEqual(len(self.data["checks"]), 18)

    def test_without_anything_it_says_what_to_do(self):
        nvcc, cmake = NVCC.replace("VERSION", "13.0"), CMAKE.format(version="3.28.1")
        for nvcc, cmake, missing in ((NVCC.replace("VERSION", "11.8"), cmake, "expected nvcc 12.0 or newer, found 11.8"),
                                     ("exit 127", cmake, "nvcc"), (nvcc, "exit 127", "CMake 3.25 or newer, found none"),
                                     (nvcc, CMAKE.format(version="3.22.1"), "CMake 3.25 or newer, found 3.22")):
            self.program("cuda/bin/nvcc", nvcc)
            self.program("tools/cmake", cmake)
            self.assertEqual(self.report(), 1)
            self.assertEqual(self.results, {"programs": "failed"})
            self.assertIn(missing, self.notes["programs"])
            self.assertIn("--prefix build-gpu_prefix/prefix.tar.gz", self.notes["programs"])

    def test_a_damaged_installation_and_a_failing_tool_do_not_stop_the_rest(self):
        self.write(self.here + "/damaged.tar.gz", "no archive")
        self.program("cuda/bin/compute-sanitizer", SANITIZER + '\ncase "$*" in *racecheck*=large*) exit 9;; esac')
        self.program("gpu_bench", '[ "$1" != classify ] || exit 1\n' + BENCH)
        self.assertEqual(self.report("--prefix", self.here + "/damaged.tar.gz"), 1)
        failed = {n for n, r in self.results.items() if r == "failed"}
        self.assertEqual(failed, {"--prefix", "classify", "sanitizer racecheck of Fused kernels, bfloat16_fused", "sanitizer racecheck, float32, large",
                                  "sanitizer racecheck, bfloat16_fused, large"})

    def test_the_installation_for_gpu_machines_has_the_programs_of_the_report(self):
        with open(ROOT + "/CMakePresets.json", encoding="utf-8") as file:
            presets = {p["name"]: p for p in json.load(file)["buildPresets"]}
        self.assertLessEqual({"gpu_check", "gpu_bench"}, set(presets["gpu_prefix"]["targets"]))
        install = """mkdir -p "$4/bin"
case "$*" in *"--component gpu"*) names=NAMES;; *) names=sru_server;; esac
for name in $names; do echo >"$4/bin/$name"; chmod +x "$4/bin/$name"; done"""
        os.makedirs(self.build)
        for names, wanted in (("gpu_check gpu_bench", 0), ("gpu_check", 1)):
            self.program("tools/cmake", install.replace("NAMES", f'"{names}"'))
            done = subprocess.run([ROOT + "/scripts/gpu_prefix.sh", self.build], capture_output=True,
                                  text=True, check=False, env={"PATH": self.here + "/tools:/usr/bin:/bin"})
            self.assertEqual(done.returncode, wanted, done.stdout + done.stderr)
            if wanted:
                self.assertIn("has no gpu_bench", done.stderr)
                continue
            listed = subprocess.run(["tar", "-tzf", self.build + "/prefix.tar.gz"], capture_output=True,
                                    text=True, check=True).stdout
            for name in ("sru_server", "gpu_check", "gpu_bench"):
                self.assertIn("prefix/bin/" + name, listed)

    def test_the_library_for_a_machine_with_the_driver_alone_travels_in_an_archive(self):
        self.program("tools/cmake", 'mkdir -p "$4/bin"; for n in gpu_check gpu_bench; do echo >"$4/bin/$n"; chmod +x "$4/bin/$n"; done')
        os.makedirs(self.build)
        done = subprocess.run([ROOT + "/scripts/gpu_prefix.sh", "--with=cublaslt", self.build], capture_output=True, text=True, check=False,
                              env={"PATH": f"{self.here}/tools:{self.here}/cuda/bin:/usr/bin:/bin"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        archive = shutil.copy(self.build + "/cublaslt.tar.gz", self.here)
        shutil.rmtree(self.here + "/cuda")
        # The library of this test is empty, unlike one that this machine may have.
        self.program("gpu_check", 'found=; IFS=:; for f in $LD_LIBRARY_PATH; do [ ! -e "$f/libcublasLt.so.13" ] || [ -s "$f/libcublasLt.so.13" ] || found=1; done; unset IFS\n'
                                  '[ "$found" ] || { echo gpu_check: libcublasLt.so.13 cannot be loaded; exit 77; }\n' + CHECK)
        self.assertEqual(self.report("--prefix", self.prefix()), 1)
        self.assertIn("libcublasLt.so.13 cannot be loaded", self.said.splitlines()[-1])
        self.report("--prefix", self.prefix(), "--cublaslt", archive)
        self.assertEqual(self.results["checks, goldens, float32"], "ok")


if __name__ == "__main__":
    unittest.main()
