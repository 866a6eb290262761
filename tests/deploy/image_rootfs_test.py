"""Tests deploy/image_rootfs.sh with a small program instead of the server: what is in the root file system, and that its
loader finds the driver's library wherever the container toolkit of a node puts it.

That the server's own image works is image_test.py's.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

import running

SCRIPT = os.path.join(running.ROOT, "deploy", "image_rootfs.sh")
PROGRAM = r"""#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char** argv) {
  void* library = dlopen(argv[argc - 1], RTLD_NOW);
  int (*number)(void) = library ? (int (*)(void))dlsym(library, "number") : 0;
  if (!number) return puts(dlerror()), 1;
  return printf("%d\n", number()), 0;
}
"""


def compile_to(path, source, *flags):
    subprocess.run(["cc", "-x", "c", "-", "-o", path, *flags], input=source, check=True, universal_newlines=True)


def gpu_image_variable(name):
    """What the stage runtime-cuda of the Dockerfile sets."""
    stage = re.search(r"(?s)AS runtime-cuda\n(.*?)\nFROM", running.read("Dockerfile")).group(1)
    return re.search(r"\b%s=(\S+)" % name, stage).group(1)


class RootFileSystemTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        work = tempfile.TemporaryDirectory()
        cls.addClassCleanup(work.cleanup)
        cls.work = work.name
        cls.prefix = os.path.join(cls.work, "prefix")
        os.makedirs(cls.prefix + "/bin")
        os.makedirs(cls.prefix + "/share/sru/models")
        compile_to(cls.prefix + "/bin/sru_server", PROGRAM, "-ldl")
        os.makedirs(cls.work + "/loaded")
        compile_to(cls.work + "/loaded/libloaded.so", "int number(void) { return 7; }", "-shared",
                   "-Wl,-soname,libloaded.so.3")
        compile_to(cls.work + "/libcuda.so.1", "int number(void) { return 42; }", "-shared", "-Wl,-soname,libcuda.so.1")

    def make(self, name, *libraries, wanted=0, **environment):
        root = os.path.join(self.work, name)
        done = running.run(SCRIPT, self.prefix, root, *libraries, env={**os.environ, **environment}, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, wanted, done.stdout)
        return root, done.stdout

    def loads(self, root, library, **environment):
        """Whether the program loads it there. Needs root, for chroot."""
        done = running.run("chroot", root, "/usr/local/bin/sru_server", library,
                           env={"PATH": "/usr/sbin:/usr/bin", **environment})
        self.assertIn(done.stdout.strip(), ("7", "42") if done.returncode == 0 else (done.stdout.strip(),))
        return done.returncode == 0

    def mount_driver(self, root, folder):
        os.makedirs(root + folder, exist_ok=True)
        with open(self.work + "/libcuda.so.1", "rb") as source, open(root + folder + "/libcuda.so.1", "wb") as target:
            target.write(source.read())

    def test_has_what_container_toolkits_look_at(self):
        root, _ = self.make("hooks", "libloaded.so", LD_LIBRARY_PATH=self.work + "/loaded")
        with open(root + "/etc/ld.so.conf", encoding="ascii") as file:
            self.assertEqual(file.read(), "include /etc/ld.so.conf.d/*.conf\n")
        self.assertEqual(os.path.exists(root + "/etc/debian_version"), os.path.exists("/etc/debian_version"))
        cached = running.run("/sbin/ldconfig", "-r", root, "-p", check=True).stdout
        self.assertIn("libc.so.6", cached)
        self.assertIn("libloaded.so.3", cached)

    @unittest.skipIf(os.geteuid() != 0, "needs root, for chroot")
    def test_the_loader_finds_the_driver_wherever_it_is_mounted(self):
        variable = gpu_image_variable("LD_LIBRARY_PATH")
        folders = ["/usr/lib64", "/usr/local/nvidia/lib64"]
        if os.path.exists("/etc/debian_version"):
            folders.append("/usr/lib/%s-linux-gnu" % os.uname().machine)
        for number, folder in enumerate(folders):
            root, _ = self.make("mounted%d" % number)
            self.assertFalse(self.loads(root, "libcuda.so.1", LD_LIBRARY_PATH=variable), "the image has none of its own")
            self.mount_driver(root, folder)
            self.assertTrue(self.loads(root, "libcuda.so.1", LD_LIBRARY_PATH=variable), folder)

    @unittest.skipIf(os.geteuid() != 0, "needs root, for chroot")
    def test_the_hosts_ldconfig_finds_the_driver_too(self):
        for number, folder in enumerate(("/usr/lib64", "/usr/local/nvidia/lib64")):
            root, _ = self.make("cached%d" % number)
            self.mount_driver(root, folder)
            subprocess.run(["/sbin/ldconfig", "-r", root], check=True)
            self.assertTrue(self.loads(root, "libcuda.so.1"), folder)

    @unittest.skipIf(os.geteuid() != 0, "needs root, for chroot")
    def test_a_library_that_is_loaded_by_name_is_there(self):
        root, _ = self.make("by_name", "libloaded.so", LD_LIBRARY_PATH=self.work + "/loaded")
        self.assertTrue(self.loads(root, "libloaded.so.3"))

    def test_a_library_that_ldconfig_lists_first_is_found(self):
        listed = running.run("/sbin/ldconfig", "-p", check=True)
        entries = [line.split() for line in listed.stdout.splitlines() if " => " in line]
        name = next(e[0] for e in entries if os.path.exists(e[-1]))
        # A pipe that is closed early ended the script by chance, without a word.
        for attempt in range(3):
            root, _ = self.make("first%d" % attempt, name, LD_LIBRARY_PATH="")
            self.assertTrue(os.path.isdir(root + "/etc"))

    def test_what_is_missing_is_named(self):
        _, said = self.make("missing", "libnone.so", wanted=1)
        self.assertIn("library libnone.so was not found", said)


if __name__ == "__main__":
    running.need_command("cc", "chroot")
    unittest.main(argv=sys.argv[:1], verbosity=2)
