#!/usr/bin/env python3
"""Tests that the commands of the Makefile build what they need and no more. Runs nothing: `make -n` prints what it would."""
import os
import re
import subprocess
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAMS = ["sru_server sru_client sru_bench"]


class MakefileTest(unittest.TestCase):
    def test_each_command_builds_its_targets(self):
        for goal, expected in (
            ("demo", PROGRAMS),
            ("serve", PROGRAMS),
            ("wheel", PROGRAMS),
            ("deb", PROGRAMS),
            ("bench", ["sru_bench kernel_benchmarks"]),
            ("gpu_prefix", ["--preset gpu_prefix"]),  # CMakePresets.json has its targets
            ("lint", []),
            ("test", [""]),  # everything
            ("build", [""]),
        ):
            printed = subprocess.run(["make", "-n", goal, "JOBS=1"], cwd=ROOT, capture_output=True, text=True, check=True)
            builds = re.findall(r"^cmake --build (?!--preset)\S+ -j 1(?: --target (.*))?$", printed.stdout, re.MULTILINE)
            builds += re.findall(r"^cmake --build (--preset \S+) -j 1$", printed.stdout, re.MULTILINE)
            self.assertEqual(builds, expected, goal)


if __name__ == "__main__":
    unittest.main()
