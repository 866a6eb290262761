#!/usr/bin/env python3
"""Tests check_includes.py on small projects that break one rule each, and its table on itself."""
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import check_includes  # noqa: E402

TABLE = """
base           |                | absl
house          | base           |
house/room     | house          | grpc
house/front.cc | house/room base |
               | house          |
tests/testing  | base           |
"""


class CheckIncludesTest(unittest.TestCase):
    def check(self, changed=None, table=TABLE):
        """What the check says of a project that keeps all rules, with these files changed."""
        files = {
            "base/a.h": '#include <string>\n#include <sys/socket.h>\n#include "absl/time/time.h"\n',
            "house/b.h": '#include "base/a.h"\n',
            "house/room/c.cc": '  #  include "house/b.h"\n#include <grpc/grpc.h>\n',
            "house/room/c_test.cc": '#include "tests/testing/t.h"\n#include "house/b.h"\n'
                                    '#include "gtest/gtest.h"\n',
            "house/front.cc": '#include "house/room/c.h"\n#include "base/a.h"\n#include "house/b.h"\n',
            "tests/testing/t.h": '#include "base/a.h"\n',
        }
        files.update(changed or {})
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            return check_includes.check(root, table)

    def test_a_project_that_keeps_the_rules(self):
        self.assertEqual(self.check(), [])

    def test_a_forbidden_arrow_is_named_with_file_line_and_rule(self):
        self.assertEqual(
            self.check({"house/room/c.cc": '#include "house/b.h"\n#include <grpc/grpc.h>\n\n'
                                           '#include "base/a.h"\n'}),
            ["house/room/c.cc:4: house/room may not include base (base/a.h): its row names house"])

    def test_an_arrow_upward(self):
        self.assertEqual(
            self.check({"base/a.h": '#include "absl/time/time.h"\n#include "house/b.h"\n'}),
            ["base/a.h:2: base may not include house (house/b.h): its row names no other room"])

    def test_a_room_may_not_include_a_file_that_is_a_room_of_its_own(self):
        self.assertEqual(
            self.check({"house/b.h": '#include "base/a.h"\n#include "house/front.cc"\n'}),
            ["house/b.h:2: house may not include house/front.cc (house/front.cc): its row names base"])

    def test_folders_with_one_row_may_not_include_one_another(self):
        table = TABLE + "house/rooms/*  | base           |\nyard           | house/rooms/*  |\n"
        changed = {"house/rooms/a/e.h": '#include "base/a.h"\n#include "house/rooms/a/f.h"\n', "house/rooms/a/f.h": "\n",
                   "house/rooms/b/e.h": '#include "base/a.h"\n', "yard/g.h": '#include "house/rooms/a/e.h"\n'}
        self.assertEqual(self.check(changed, table), [])
        changed["house/rooms/b/e.h"] += '#include "house/rooms/a/f.h"\n'
        self.assertEqual(
            self.check(changed, table),
            ["house/rooms/b/e.h:2: house/rooms/b may not include house/rooms/* (house/rooms/a/f.h): its row names base"])

    def test_a_library_of_another_room(self):
        for line in ('#include "grpcpp/grpcpp.h"', "#include <grpc/grpc.h>"):
            problems = self.check({"base/d.cc": line + "\n"})
            self.assertEqual(len(problems), 1)
            self.assertIn("base/d.cc:1: base may not use grpc (grpc", problems[0])

    def test_an_unknown_library_and_an_unknown_path(self):
        self.assertEqual(self.check({"base/d.cc": "#include <folly/Range.h>\n"}),
                         ["base/d.cc:1: folly/Range.h belongs to no library that LIBRARIES names"])
        self.assertEqual(self.check({"base/d.cc": '#include "a.h"\n'}),
                         ["base/d.cc:1: a.h: expected a path from the root of the project, or a "
                          "library that LIBRARIES names"])

    def test_a_file_of_the_project_in_angle_brackets(self):
        self.assertEqual(self.check({"house/d.cc": "#include <base/a.h>\n"}),
                         ["house/d.cc:1: base/a.h is a file of the project: expected it in quotes"])

    def test_a_folder_without_a_row(self):
        self.assertEqual(self.check({"house/cellar/d.cc": "\n"}),
                         ["house/cellar/d.cc:1: the folder has no row in scripts/check_includes.py"])
        self.assertEqual(
            self.check({"house/d.cc": '#include "base/below/d.h"\n', "base/below/d.txt": ""}),
            ["house/d.cc:1: base/below/d.h is in a folder that has no row in scripts/check_includes.py"])

    def test_helpers_of_tests_are_for_tests(self):
        self.assertEqual(
            self.check({"house/d.cc": '#include "tests/testing/t.h"\n'}),
            ["house/d.cc:1: house may not include tests/testing (tests/testing/t.h): its row names base"])
        self.assertEqual(self.check({"house/d.cc": '#include "gtest/gtest.h"\n'}),
                         ["house/d.cc:1: house may not use gtest (gtest/gtest.h): its row names no library"])

    def test_a_circle_between_rooms(self):
        problems = self.check(table=TABLE.replace("base           |                |",
                                                  "base           | house          |"))
        self.assertEqual(len(problems), 1)
        self.assertIn("table: base may not include house, which is not a row above it", problems[0])
        self.assertIn("circle", problems[0])
        self.assertIn("circle", self.check(table=TABLE.replace("| house          | grpc",
                                                               "| house/room     | grpc"))[0])

    def test_a_row_that_names_too_much(self):
        self.assertEqual(self.check(table=TABLE.replace("| house          | grpc",
                                                        "| house base     | grpc absl")),
                         ["table: house/room names absl and does not include it",
                          "table: house/room names base and does not include it"])

    def test_rows_that_cannot_be(self):
        self.assertIn("table: base has two rows", self.check(table=TABLE + "base | | \n"))
        self.assertIn("table: base names an unknown library: folly",
                      self.check(table=TABLE.replace("| absl", "| absl folly")))

    def test_a_header_of_abseil_that_comes_by_chance(self):
        text = '#include "absl/strings/ascii.h"\n// absl::StrJoin\nauto a = absl::StrCat(1);\nauto b = absl::StrCat(2);\n'
        self.assertEqual(self.check({"base/z.cc": text}),
                         ["base/z.cc:3: absl::StrCat needs absl/strings/str_cat.h"])
        self.assertEqual(self.check({"base/z.cc": '#include "absl/strings/str_cat.h"\n' + text}), [])
        # By way of a file of the project.
        self.assertEqual(self.check({"base/z.cc": '#include "base/y.h"\n' + text,
                                     "base/y.h": '#include "absl/strings/str_cat.h"\n'}), [])

    def test_the_projects_own_table_has_no_circle(self):
        self.assertEqual(check_includes.read_table(check_includes.TABLE)[1], [])

    def test_the_program_exits_with_1_and_prints_what_is_wrong(self):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "base"))
            with open(os.path.join(root, "base", "a.cc"), "w", encoding="utf-8") as file:
                file.write('#include "grpcpp/grpcpp.h"\n')
            run = subprocess.run([sys.executable, "-B", os.path.join(ROOT, "scripts", "check_includes.py"),
                                  root], stdout=subprocess.PIPE, text=True, check=False)
        self.assertEqual(run.returncode, 1)
        self.assertIn("base/a.cc:1: base may not use grpc", run.stdout)


if __name__ == "__main__":
    unittest.main()
