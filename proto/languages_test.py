"""Generates stubs of the contracts in other languages: what a caller who has no client of ours begins with.

languages_test.py PROTOC
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
PROTOC = "protoc"
# The contracts that callers use, and a Java class of each.
CONTRACTS = {
    "sru/v1/inference.proto": "sru/v1/ClassifyRequest.java",
    "sru/v1/admin.proto": "sru/v1/LoadModelRequest.java",
    "inference/open_inference.proto": "inference/ModelInferRequest.java",
}
# Plugins of protoc that not every machine has.
PLUGINS = {"go": "protoc-gen-go", "go-grpc": "protoc-gen-go-grpc"}


def generate(language, contract, folder):
    return subprocess.run(
        [PROTOC, "-I", FOLDER, "--%s_out=%s" % (language, folder), contract],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )


def option(contract, name):
    with open(os.path.join(FOLDER, contract), encoding="utf-8") as file:
        found = re.findall(r'^option %s = "?([^";]*(?:;[^"]*)?)"?;$' % name, file.read(), re.MULTILINE)
    return found[0] if len(found) == 1 else None


class LanguagesTest(unittest.TestCase):
    def check(self, language, contract):
        """The names of the files that are generated."""
        with tempfile.TemporaryDirectory() as folder:
            done = generate(language, contract, folder)
            if "hasn't been updated to support optional fields in proto3" in done.stdout:
                self.skipTest("this plugin is older than the fields `optional` of proto3: " + language)
            self.assertEqual(done.returncode, 0, done.stdout)
            return [
                os.path.relpath(os.path.join(path, name), folder)
                for path, _, names in os.walk(folder)
                for name in names
            ]

    def test_protoc_makes_stubs_of_its_own_languages(self):
        for contract in CONTRACTS:
            for language in ("csharp", "java", "objc", "php", "python", "ruby"):
                with self.subTest(language, contract=contract):
                    self.assertTrue(self.check(language, contract))

    def test_a_java_class_for_each_message(self):
        for contract, name in CONTRACTS.items():
            with self.subTest(contract):
                self.assertIn(name, self.check("java", contract))

    def test_go_has_a_package_to_import(self):
        # What protoc-gen-go demands: a path with a dot or a slash, and the name of the package.
        for contract in CONTRACTS:
            with self.subTest(contract):
                self.assertRegex(option(contract, "go_package") or "", r"^[\w-]+([./][\w-]+)+;[a-z][a-z0-9]*$")

    def test_plugins_accept_the_contracts(self):
        for language, program in PLUGINS.items():
            if shutil.which(program) is None:
                continue
            for contract in CONTRACTS:
                with self.subTest(program, contract=contract):
                    self.assertTrue(self.check(language, contract))


if __name__ == "__main__":
    PROTOC = sys.argv[1]
    unittest.main(argv=sys.argv[:1])
