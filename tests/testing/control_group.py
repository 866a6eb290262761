"""Control groups for processes of a test. Uses the standard library only."""

import os
import re


MEMORY_FILES = (
    {
        "limit": "memory.limit_in_bytes",
        "used": "memory.usage_in_bytes",
        "peak": "memory.max_usage_in_bytes",
        "stat": "memory.stat",
        "inactive": "total_inactive_file",
        "events": "memory.oom_control",
    },
    {
        "limit": "memory.max",
        "used": "memory.current",
        "peak": "memory.peak",
        "stat": "memory.stat",
        "inactive": "inactive_file",
        "events": "memory.events",
    },
)


class ControlGroup:
    """A control group, in which the kernel kills what takes more than `memory` bytes and which gets the time of at most
    `cpus` cores; version 2, or 1 where that has the controllers. Raises OSError where this process may make none."""

    def __init__(self, name, memory, cpus=None):
        is_v2 = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
        self._names = MEMORY_FILES[is_v2]
        files = {"memory": {self._names["limit"]: str(memory)}}
        if cpus is not None:
            quota = str(round(cpus * 100000))
            files["cpu"] = {"cpu.max": quota + " 100000"} if is_v2 else {"cpu.cfs_quota_us": quota}
        name = "sru-%d-%s" % (os.getpid(), name)
        self._folders = []
        try:
            for controller, limits in files.items():
                root = "/sys/fs/cgroup" if is_v2 else "/sys/fs/cgroup/" + controller
                if is_v2:
                    self._write(os.path.join(root, "cgroup.subtree_control"), "+" + controller)
                folder = os.path.join(root, name)
                if folder not in self._folders:
                    os.mkdir(folder)
                    self._folders.append(folder)
                for file, limit in limits.items():
                    self._write(os.path.join(folder, file), limit)
        except OSError:
            self._remove_folders()
            raise

    def _memory_file(self, what):
        return os.path.join(self._folders[0], self._names[what])

    def _read(self, what):
        with open(self._memory_file(what), encoding="ascii") as file:
            return file.read()

    def used(self):
        """Bytes, without the pages of files that the system drops when it needs memory."""
        inactive = re.search(rf"^{self._names['inactive']} (\d+)$", self._read("stat"), re.MULTILINE)
        return int(self._read("used")) - int(inactive.group(1))

    def limit(self, memory):
        self._write(self._memory_file("limit"), str(int(memory)))

    def peak(self):
        """The most bytes so far, those pages included."""
        return int(self._read("peak"))

    @staticmethod
    def _write(path, text):
        with open(path, "w", encoding="ascii") as file:
            file.write(text)

    def _remove_folders(self):
        for folder in self._folders:
            os.rmdir(folder)

    def within(self, command):
        """The same command, in the group from its beginning: a server reads its limits when it starts."""
        for folder in self._folders:
            command = ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', os.path.join(folder, "cgroup.procs"), *command]
        return command

    def remove(self):
        """Once its processes have ended. Returns how many the kernel has killed in it."""
        kills = int(re.search(r"^oom_kill (\d+)$", self._read("events"), re.MULTILINE).group(1))
        self._remove_folders()
        return kills
