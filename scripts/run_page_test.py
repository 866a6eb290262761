"""run_page.py on small pages."""

import io
import os
import subprocess
import tempfile
import time
import unittest

import run_page


class PageTest(unittest.TestCase):
    def follow(self, text, section=None, ports=(), setup="", present=()):
        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "page.md")
            with open(page, "w", encoding="utf-8") as file:
                file.write(text)
            out = io.StringIO()
            failed = run_page.follow(page, section, folder, ports, timeout=20, setup=setup, present=present, out=out)
            return failed, out.getvalue()

    def test_commands_share_a_shell_and_files_are_written(self):
        failed, out = self.follow(
            "# Page\n```sh\nname=world\n```\n\n```python greet.py\nimport sys\nprint('hello', sys.argv[1])\n```\n"
            "```console\n$ python3 greet.py \\\n  $name\nhello world\n$ echo a; echo b; echo c\na\n...\nc\n```\n"
            "```\nnot a command\n```\n"
        )
        self.assertEqual(failed, 0, out)
        self.assertEqual(out.count(": ok"), 2)

    def test_the_folder_looks_like_the_project(self):
        failed, out = self.follow("```sh\ntest -f models/FORMAT.md && test -e build/page.md && touch new && test ! -e .git\n```\n")
        self.assertEqual(failed, 0, out)
        self.assertFalse(os.path.exists(os.path.join(run_page.ROOT, "new")))

    def test_a_file_of_the_project_must_be_equal(self):
        with open(os.path.join(run_page.ROOT, "LICENSE"), encoding="utf-8") as file:
            text = file.read()
        self.assertEqual(self.follow("```text LICENSE\n%s```\n```sh\ntrue\n```\n" % text)[0], 0)
        failed, out = self.follow("```text LICENSE\n%s more\n```\n```sh\ntrue\n```\n" % text)
        self.assertEqual(failed, 1)
        self.assertIn("not equal to LICENSE", out)

    def test_the_setup_comes_first(self):
        self.assertEqual(self.follow("```console\n$ echo $name\nvalue\n```\n", setup="name=value")[0], 0)
        self.assertEqual(self.follow("```sh\ntrue\n```\n", setup="false")[0], 1)

    def test_a_block_may_need_what_is_not_there(self):
        text = "```sh needs=%s\necho it runs >&2\nfalse\n```\n```console\n$ echo later\nlater\n```\n"
        failed, out = self.follow(text % "absent_program")
        self.assertEqual(failed, 0, out)
        self.assertIn("line 1: left out, there is no absent_program: echo it runs", out)
        self.assertEqual(out.count(": ok"), 1)
        self.assertEqual(self.follow(text % "absent_program", present=["absent_program"])[0], 1)
        self.assertEqual(self.follow(text % "bash")[0], 1)

    def test_another_output_fails_and_is_shown(self):
        failed, out = self.follow("```console\n$ echo found\nexpected\n```\n```sh\necho later\n```\n")
        self.assertEqual(failed, 1)
        self.assertIn("expected:\nexpected", out)
        self.assertIn("found:\nfound", out)
        self.assertNotIn("later", out)

    def test_a_command_that_fails_ends_the_run(self):
        for command in ("false", "cat /nonexistent", "false | cat", "echo $unset_variable", "exit 3"):
            failed, out = self.follow("```sh\n%s\n```\n```sh\necho later\n```\n" % command)
            self.assertEqual(failed, 1, command)
            self.assertNotIn("later", out)

    def test_only_the_section(self):
        text = "# One\n```sh\nfalse\n```\n## Two\n```sh\ntrue\n```\n### Three\n```sh\nfalse\n```\n"
        self.assertEqual(self.follow(text, section="Two")[0], 0)
        self.assertEqual(self.follow(text, section="Three")[0], 1)
        with self.assertRaisesRegex(ValueError, "no commands in 'Four'"):
            self.follow(text, section="Four")

    def test_ports_are_replaced(self):
        failed, out = self.follow(
            "```python show.py\nprint('localhost:8080')\n```\n```console\n$ python3 show.py | tr -d 8 ; echo 8080 :80801\nlocalhost:...\n8080 :80801\n```\n",
            ports=["8080"],
        )
        self.assertEqual(failed, 0, out)

    def test_what_was_started_is_stopped(self):
        with tempfile.TemporaryDirectory() as folder:
            pid_file = os.path.join(folder, "pid")
            self.assertEqual(self.follow("```sh\nsleep 1000 & echo $! >%s\n```\n" % pid_file)[0], 0)
            with open(pid_file, encoding="utf-8") as file:
                pid = file.read().strip()
        deadline = time.monotonic() + 10
        while subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True).stdout.strip() not in ("", "Z"):
            self.assertLess(time.monotonic(), deadline, "it still runs")

    def test_wildcards(self):
        self.assertTrue(run_page.matches("a ... c", "a b c"))
        self.assertTrue(run_page.matches("a\n...\nz\n", "a\nb\nc\nz"))
        self.assertTrue(run_page.matches("0.9...", "0.9713"))
        self.assertFalse(run_page.matches("a ... c", "a b d"))
        self.assertFalse(run_page.matches("a", "a\nb"))
        self.assertTrue(run_page.matches("", ""))
        self.assertFalse(run_page.matches("", "something"))


if __name__ == "__main__":
    unittest.main()
