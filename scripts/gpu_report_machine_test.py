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

PARTS = [part.__name__ for part in gpu_report.PARTS]

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
echo 1 checks, 0 failed"""
BENCH = """case "$1" in
  scan) echo '{"type": "bfloat16", "hidden": 128, "scan_us": 5.0, "of_the_copy_rate": 0.91}';;
  classify) cp "$OUT/gpu.json" "$OUT/gpu.log" "$HERE/"; echo '{"type": "float32", "gpu_and_copy_us": 50.0}';;
  systems) echo '{"name": "reader", "type": "float32", "sequences": 1, "rows": 142, "run_p50_us": 300.0}';;
  products) echo '{"k": 512, "own_us": 4.5}';;
  predict) echo '{"vocabulary": 32000, "one_block_us": 15.0, "cluster_us": 6.0}';;
  fused) echo '{"layers": 2, "plain_us": 20.0, "fused_us": 16.0}';;
esac"""
NCU = """echo "$*" >>"$HERE/traced"
echo '"ID","Kernel Name","gpu__time_duration.sum"
"","","ns"
"0","sru::Scan(int)","1500"'"""
SANITIZER = """[ "$1" != --help ] || { echo "  --kernel-name arg   --kernel-name-exclude arg"; exit 0; }
echo "$*" >>"$HERE/sanitized"
echo "========= ERROR SUMMARY: 0 errors\""""
COMPARE = """import json, sys
print(json.dumps({"shape": "paper", "batch": 1, "sru_us": 10.0, "lstm_us": 60.0, "total": float(sys.argv[3].split("=")[1])}))
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
        for name in ("gpu_report.sh", "gpu_report.py", "report_common.py"):
            shutil.copy(os.path.join(ROOT, "scripts", name), self.root + "/scripts/")
        self.write(self.root + "/kernels/bench/compare_pytorch.py", COMPARE)
        os.makedirs(self.root + "/tests")
        os.symlink(os.path.join(ROOT, "tests", "data"), self.root + "/tests/data")
        os.symlink(os.path.join(ROOT, "models"), self.root + "/models")
        # The machine.
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
        """Runs the script. Returns its exit code; self.rows has [figure, wanted, good] of each row, and self.failed those that are not."""
        path = f"{self.here}/tools:{self.here}/cuda/bin:{os.path.dirname(sys.executable)}:/usr/bin:/bin"
        variables = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA", "LD_", "CXX", "SRU_SHARED"))}
        started = time.monotonic()
        done = subprocess.run(
            [self.root + "/scripts/gpu_report.sh", "--out", self.out, "--build", self.build, f"--minutes={minutes}", "--seconds=0.1",
             *arguments],
            capture_output=True, text=True, check=False, timeout=100, env={**variables, "PATH": path, **(environment or {})})
        self.seconds = time.monotonic() - started
        with open(self.out + "/gpu.json", encoding="utf-8") as file:
            self.data = json.load(file)
        self.rows = {name: rest for rows in self.data["rows"].values() for name, *rest in rows}
        self.failed = {name: figure for name, (figure, _, good) in self.rows.items() if not good}
        self.said = done.stdout + done.stderr
        return done.returncode

    def lines(self, name):
        with open(os.path.join(self.here, name), encoding="utf-8") as file:
            return file.read().splitlines()

    def prefix(self):
        for name in ("gpu_check", "gpu_bench"):
            os.makedirs(self.here + "/made/bin", exist_ok=True)
            shutil.copy(os.path.join(self.here, name), self.here + "/made/bin/" + name)
        return self.here + "/made"

    def test_a_machine_on_which_everything_works(self):
        self.assertEqual(self.report(), 0, self.said)
        self.assertEqual(self.failed, {})
        self.assertEqual(sorted(os.listdir(self.out)), ["gpu.json", "gpu.log", "gpu.md"])
        self.assertIn("-DSRU_CUDA_ARCHITECTURES=90", self.lines("build/flags")[0])
        # In this order, where what needs an installation, and several GPUs, is not measured.
        self.assertEqual(self.data["done"], PARTS)
        self.assertEqual([part for part, rows in self.data["rows"].items() if not rows], ["texts", "served", "gpus"])
        types = ("float32", "bfloat16", "bfloat16_fused")
        self.assertLessEqual({f"{group}, {dtype}" for group in ("goldens", *gpu_report.GROUPS) for dtype in types}, set(self.rows))
        self.assertEqual(len(self.data["rows"]["checks"]), 5 * 3 + 8)
        self.assertEqual(len(self.data["rows"]["sanitizers"]), 27)
        self.assertEqual(len(self.data["rows"]["trace"]), len(gpu_report.TRACED))
        self.assertEqual(self.rows["float32"][0], "gpu and copy us 50")
        self.assertIn(" --only=goldens ", self.lines("checked")[0])
        # With one GPU nothing is hidden from anybody.
        self.assertEqual({line.split()[0] for line in self.lines("checked")}, {"unset"})
        with open(self.out + "/gpu.md", encoding="utf-8") as file:
            self.assertIn("GPU: NVIDIA Paper, 580.1, 9.0.", file.read())

    def test_named_parts_alone_are_run_and_a_later_run_goes_on_with_the_rest(self):
        self.program("gpu_check", 'case "$*" in *bits*--dtype=float32*) exec sleep 60;; esac\n' + CHECK)
        self.program("cuda/bin/compute-sanitizer", 'case "$*" in *Skinny*) exit 9;; esac\n' + SANITIZER)
        self.assertEqual(self.report("--parts=products,checks", minutes=0.3), 1)
        self.assertEqual(self.data["done"], ["goldens", "products"])
        self.assertNotIn("systems", self.data["rows"])
        self.assertIn("ran out of time", self.failed["bits, float32"])
        shutil.copy(self.out + "/gpu.json", self.here + "/first.json")
        self.program("gpu_check", CHECK)
        self.program("cuda/bin/compute-sanitizer", SANITIZER)
        os.remove(self.here + "/checked")
        os.remove(self.here + "/sanitized")
        self.assertEqual(self.report("--parts=checks", "--resume", self.here + "/first.json"), 0, self.said)
        self.assertEqual(self.rows["k 512"], ["own us 4.5", "", True])
        self.assertEqual([re.search("only=(\\w+)", line).group(1) for line in self.lines("checked")], ["bits"])
        self.assertEqual(sum("Skinny" in line for line in self.lines("sanitized")), len(self.lines("sanitized")), "others passed")
        self.assertEqual(self.data["done"], ["products", "goldens", "checks"])

    def test_programs_that_find_no_gpu_have_failed(self):
        for name in ("gpu_check", "gpu_bench"):
            self.program(name, f"echo {name}: needs a GPU; exit 77")
        self.assertEqual(self.report(), 1)
        # There is one reason, and it is there at once.
        self.assertEqual(list(self.data["rows"]), ["goldens"])
        self.assertRegex(self.said.splitlines()[-1], "gpu_report: exit code 77; gpu_check: needs a GPU")
        self.assertLess(self.seconds, 20)

    def test_a_group_that_loses_the_device_is_repeated_kernel_by_kernel(self):
        # The check that loses it says why, and later ones that it is lost.
        self.program("gpu_check", CHECK + """
case "$*" in
  *=bits*) said='device 0 (Paper) has failed and is out of use';;
  *=large*) said='cudaEventSynchronize on device 0: illegal address (cudaErrorIllegalAddress)';;
  *=programs*) said='device 0 (Paper): it does not answer: it hangs';;
  *) said='3 of 40 differ';;
esac
echo "FAIL golden x: $said"; exit 1""")
        self.assertEqual(self.report("--parts=checks"), 1)
        for group, repeated in (("bits", 3), ("large", 3), ("programs", 3), ("others", 0)):
            blocking = [line.split()[1] for line in self.lines("checked") if "--only=" + group in line]
            self.assertEqual(sorted(blocking), ["0"] * 3 + ["1"] * repeated, group)
        self.assertIn("FAIL golden x: 3 of 40 differ", self.failed["others, float32"])
        self.assertIn("out of use", self.failed["bits, float32"])

    def test_whatever_hangs_the_report_ends_in_time_with_what_was_printed(self):
        hangs = 'echo \'{"name": "begun", "run_p50_us": 2.0}\'; exec sleep 600'
        self.program("gpu_bench", '[ "$1" = systems ] || exit 1; ' + hangs)
        self.program("cuda/bin/compute-sanitizer", '[ "$1" != --help ] || exit 0; ' + hangs)
        self.write(self.root + "/kernels/bench/compare_pytorch.py", "import time\ntime.sleep(600)\n")
        self.assertEqual(self.report(minutes=0.3), 1)
        self.assertLess(self.seconds, 0.3 * 60 + 8)
        self.assertEqual(self.rows["begun"][0], "run p50 us 2")
        self.assertIn("ran out of time", self.failed["systems"])
        self.program("gpu_check", hangs)
        self.assertEqual(self.report(minutes=0.3), 1)
        self.assertLess(self.seconds, 0.3 * 60 + 8)
        self.assertIn("ran out of time", self.failed["goldens, float32"])

    def test_servers_may_hang(self):
        prefix = self.prefix()
        self.program("made/bin/sru_server", "exec sleep 600")
        self.assertEqual(self.report("--prefix", prefix, minutes=0.3), 1)
        self.assertLess(self.seconds, 0.3 * 60 + 8)
        self.assertIn("the server does not start", self.failed["float32"])
        self.assertEqual(self.rows["layers 2"][0], "plain us 20, fused us 16")

    def test_programs_that_do_nothing_have_failed(self):
        for name in ("gpu_check", "gpu_bench", "cuda/bin/compute-sanitizer", "tools/ncu"):
            self.program(name, "exit 0")
        self.assertEqual(self.report(), 1)
        for name in ("goldens, float32", "bits, bfloat16_fused", "scan", "classify", "systems", "translator, float32, 1",
                     "initcheck of all kernels, large, bfloat16_fused"):
            self.assertIn(name, self.failed)

    def test_only_pytorch_and_tools_may_be_missing(self):
        self.write(self.root + "/kernels/bench/compare_pytorch.py", "import sys\nprint('no torch')\nsys.exit(77)\n")
        os.remove(self.here + "/tools/ncu")
        self.assertEqual(self.report(), 0, self.said)
        self.assertIn("not measured: exit code 77; no torch", self.said)
        self.assertEqual((self.data["rows"]["pytorch"], self.data["rows"]["trace"]), ([], []))

    def test_steps_that_hang_are_cut_and_pytorch_keeps_its_part(self):
        # On two cores the steps that hang take turns.
        self.program("gpu_check", 'case "$*" in *goldens*fuse* | *bits*fuse* | *large*fuse*) exec sleep 60;; esac\n' + CHECK)
        self.program("cuda/bin/compute-sanitizer", SANITIZER.replace("echo \"========= ERROR", """case "$*" in *kns=sru*large*fuse*)
echo '========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sru::ScanKernel+0x10
=========     and Read access at sru::ScanKernel+0x20'
exec sleep 60;; esac
echo \"========= ERROR"""))
        self.assertEqual(self.report(minutes=0.3), 1)
        self.assertLess(self.seconds, 0.3 * 60 + 5)  # Python's own starts are slow on a busy machine
        self.assertIn("ran out of time", self.failed["goldens, bfloat16_fused"])
        self.assertEqual(self.rows["goldens, float32"][0], "1 checks, 0 failed")
        self.assertIn("ran out of time; no summary, 1 reports until then", self.failed["racecheck of sru kernels, large, bfloat16_fused"])
        self.assertRegex(self.rows["paper"][0], "lstm_us 60, total [2-9]")

    def test_results_are_there_while_later_steps_run(self):
        self.assertEqual(self.report("--parts=scan,classify"), 0, self.said)
        # What the step "classify" saw in the report's folder.
        with open(self.here + "/gpu.json", encoding="utf-8") as file:
            seen = json.load(file)
        self.assertEqual(list(seen["rows"]), ["goldens", "scan"])
        self.assertIn("of the copy rate 0.91", seen["rows"]["scan"][0][1])
        self.assertIn("1 checks, 0 failed", "\n".join(self.lines("gpu.log")))

    def test_of_eight_gpus_the_idlest_is_used_and_all_are_checked_shortly(self):
        self.gpus(8, memory=(9, 8, 7, 30, 2, 1, 4, 5))
        self.assertEqual(self.report("--parts=checks,gpus"), 0, self.said)
        seen = [line.split() for line in self.lines("checked")]
        self.assertEqual([words[0] for words in seen], ["5"] * 18 + ["unset"])
        self.assertEqual(seen[18][2:], ["--small"])
        self.assertIn("all", self.rows)

    def test_whoever_chose_a_gpu_keeps_it(self):
        self.gpus(8, memory=(9, 8, 7, 30, 2, 1, 4, 5))
        self.assertEqual(self.report("--parts=checks,gpus", environment={"CUDA_VISIBLE_DEVICES": "3"}), 0, self.said)
        self.assertEqual({line.split()[0] for line in self.lines("checked")}, {"3"})
        self.assertNotIn("all", self.rows)

    def test_a_gpu_for_one_process_gets_one_at_a_time(self):
        self.program("cuda/bin/compute-sanitizer",
                     'mkdir "$HERE/busy" || exit 77\nsleep 0.05; rmdir "$HERE/busy"\n' + SANITIZER)
        self.gpus(1, mode="Exclusive_Process")
        self.assertEqual(self.report("--parts=sanitizers"), 0, self.said)
        self.assertEqual(len(self.data["rows"]["sanitizers"]), 27)

    def test_the_slow_tools_look_at_our_kernels_only(self):
        self.assertEqual(self.report("--parts=sanitizers"), 0)
        runs = self.lines("sanitized")
        for kind in ("memcheck", "racecheck", "synccheck"):
            self.assertEqual(sum(f"--tool {kind} --kernel-name kns=sru " in run for run in runs), 6)
        # initcheck must see what the library writes.
        self.assertEqual(sorted(run.split()[3] for run in runs if "kns" not in run), ["initcheck"] * 6 + ["memcheck"] * 3)
        # An old one has no such option.
        os.remove(self.here + "/sanitized")
        self.program("cuda/bin/compute-sanitizer", SANITIZER.replace("--kernel-name", "--other"))
        self.assertEqual(self.report("--parts=sanitizers"), 0)
        self.assertNotIn("kns", " ".join(self.lines("sanitized")))

    def test_the_programs_of_an_installation_are_not_built_again(self):
        self.program("cuda/bin/nvcc", "exit 127")
        self.assertEqual(self.report("--prefix", self.prefix(), "--parts=checks,served"), 1)
        self.assertFalse(os.path.exists(self.build + "/flags"))
        # The installation of this test has no server.
        self.assertEqual(set(self.failed), set(gpu_report.SERVED))
        self.assertIn("sru_server does not start", self.failed["float32"])

    def test_without_anything_it_says_what_to_do(self):
        self.program("tools/cmake", "echo CMake 3.25 or higher is required; exit 1")
        self.assertEqual(self.report(), 1)
        self.assertEqual(self.rows, {})
        for wanted in ("CMake 3.25 or higher", "make gpu_prefix", "--prefix build-gpu_prefix/prefix.tar.gz"):
            self.assertIn(wanted, self.said)

    def test_a_damaged_installation_and_a_failing_tool_do_not_stop_the_rest(self):
        self.write(self.here + "/damaged.tar.gz", "no archive")
        self.program("cuda/bin/compute-sanitizer", SANITIZER + '\ncase "$*" in *racecheck*=large*) exit 9;; esac')
        self.program("gpu_bench", '[ "$1" != classify ] || exit 1\n' + BENCH)
        self.assertEqual(self.report("--prefix", self.here + "/damaged.tar.gz"), 1)
        self.assertIn("--prefix: tar: ", self.said)
        self.assertEqual(set(self.failed), {"classify", *(f"racecheck of {kernels} kernels, large, {dtype}" for kernels, dtype in (
            ("Fused", "bfloat16_fused"), ("sru", "float32"), ("sru", "bfloat16_fused")))})

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
        self.assertEqual(self.report("--prefix", self.prefix(), "--parts=goldens"), 1)
        self.assertIn("libcublasLt.so.13 cannot be loaded", self.said.splitlines()[-1])
        self.assertEqual(self.report("--prefix", self.prefix(), "--parts=goldens", "--cublaslt", archive), 0, self.said)


if __name__ == "__main__":
    unittest.main()
