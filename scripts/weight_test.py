#!/usr/bin/env python3
"""Tests weight.py on a small project, and that the project's own table has a row with budgets for every file."""
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_includes  # noqa: E402
import weight  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TABLE = """
base           |       | absl | 5 1
house          | base  |      | 100 10
house/rooms/*  | house |      | 7 0
               | base  |      |
"""
FILES = {
    "base/a.h": "1\n2\n3\n", "base/a_test.cc": "1\n", "base/testing/fake.h": "1\n2\n", "base/data.bin": "1\n" * 99,
    "house/deep/inside/b.py": "1\n2\n", "house/CMakeLists.txt": "1\n", "house/m_pb2.py": "1\n" * 50,
    "house/rooms/kitchen/c.cc": "1\n" * 8, "house/rooms/bath/d.cc": "1\n",
    "README.md": "one two\nthree\n", "docs/new.md": "word " * 3, "docs/decisions/0001-a.md": "word " * 351,
}


class WeightTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = self.folder.name
        for path, text in FILES.items():
            os.makedirs(os.path.dirname(os.path.join(self.root, path)), exist_ok=True)
            with open(os.path.join(self.root, path), "w", encoding="utf-8") as file:
                file.write(text)
        os.symlink("a.h", os.path.join(self.root, "base/link.h"))
        subprocess.run(["git", "init", "-q", self.root], check=True)
        self.budgets = check_includes.read_budgets(TABLE)

    def test_a_line_belongs_to_the_nearest_room_and_a_test_is_told_by_its_path(self):
        by_room, by_language = weight.lines_by_room(self.root, self.budgets)
        self.assertEqual(dict(by_room), {"base": [3, 3], "house": [3, 0], "house/rooms/*": [9, 0]})
        self.assertEqual(dict(by_language), {"C++": [12, 3], "Python": [2, 0], "CMake": [1, 0]})

    def test_each_budget_that_is_exceeded_is_named_with_the_excess(self):
        by_room, _ = weight.lines_by_room(self.root, self.budgets)
        said = "\n".join(weight.excess(by_room, weight.words_by_page(self.root), self.budgets))
        self.assertIn("base has 3 lines of tests, 2 more than its budget of 1", said)
        self.assertIn("house/rooms/* has 9 lines of product, 2 more than its budget of 7", said)
        self.assertIn("docs/new.md has no budget of words", said)
        self.assertIn("docs/decisions/0001-a.md has 351 words, 1 more than its budget of 350", said)
        self.assertEqual(said.count("\n"), 3, said)

    def test_the_sum_of_all_pages_has_a_budget(self):
        said = weight.excess({}, {"README.md": 1, "docs/rest.md": weight.ALL}, {})
        self.assertEqual(len([line for line in said if "ARCHITECTURE.md and docs/ have 36,001 words, 1 more" in line]), 1)

    def test_what_compiled_a_target_is_summed_and_a_file_that_was_compiled_again_counts_once(self):
        log = "# ninja log v5\n" + "".join(f"{start}\t{end}\t0\t{output}\t0\n" for start, end, output in [
            (0, 9000, "a/CMakeFiles/one.dir/x.cc.o"), (1000, 3500, "a/CMakeFiles/one.dir/x.cc.o"), (0, 500, "a/CMakeFiles/one.dir/y.cc.o"),
            (0, 2000, "b/k.cu.o"), (0, 2000, "/root/b/k.cu.o"), (0, 9000, "bin/one")])
        self.assertEqual(dict(weight.compiled_by_target(log)), {"one": [2, 3.0], "b": [1, 2.0]})

    def test_every_file_of_the_project_has_a_room_with_a_budget(self):
        budgets = check_includes.read_budgets(check_includes.TABLE)
        by_room, _ = weight.lines_by_room(ROOT, budgets)
        self.assertEqual(set(by_room) - set(budgets), set())


if __name__ == "__main__":
    unittest.main()
