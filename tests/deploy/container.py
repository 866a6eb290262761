"""Runs a program in a root file system as a container engine would, as far as the image's test needs it.

container.py ROOT USER GROUP PROGRAM [ARGUMENT...]

To be started in namespaces of its own (unshare or nsenter --mount --pid --net). The root is mounted read-only, with a
/proc; the program has no capability, cannot gain any, and has the environment of the caller. Where the namespaces
are new, CONTAINER_SETUP=1 makes the mounts and brings up the loopback device.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys

MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
SIOCSIFFLAGS, IFF_UP = 0x8914, 1

LIBC = ctypes.CDLL(None, use_errno=True)


def mount(source, target, kind, flags):
    if LIBC.mount(source.encode(), target.encode(), kind.encode() if kind else None, flags, None) != 0:
        raise OSError(ctypes.get_errno(), "mount " + target)


def set_up(root):
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount(root, root, None, MS_BIND)
    mount(root, root, None, MS_BIND | MS_REMOUNT | MS_RDONLY)
    mount("proc", root + "/proc", "proc", 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))


def main():
    root, user, group, *command = sys.argv[1:]
    environment = dict(os.environ)
    if environment.pop("CONTAINER_SETUP", ""):
        set_up(root)
    with open("/proc/sys/kernel/cap_last_cap", encoding="ascii") as file:
        last = int(file.read())
    # From here on Python finds no module of its own.
    os.chroot(root)
    os.chdir("/")
    if not os.statvfs("/").f_flag & os.ST_RDONLY:
        sys.exit("the root file system can be written")
    for capability in range(last + 1):
        LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    os.setgroups([])
    os.setgid(int(group))
    os.setuid(int(user))
    os.execve(command[0], command, environment)


if __name__ == "__main__":
    main()
