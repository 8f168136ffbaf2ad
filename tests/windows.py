"""What Windows lacks of POSIX, taken away from processes on Linux.

This shows that nothing else is asked for on a path. It does not show how Windows itself behaves.
"""

import os
from pathlib import Path

# Imported by every process at its start, the workers that decode included. `msvcrt` is a stand-in whose lock is held by
# another process the first time it is asked for.
LACKS = """
import os, select, signal, subprocess, sys, types

sys.modules.update(fcntl=None, resource=None, uvloop=None)  # None in the place of a module means that it is not there
for module, names in (
    (select, ("poll",)),
    (signal, ("setitimer", "pthread_sigmask", "SIGALRM", "SIGPROF", "SIGHUP")),
    (os, ("O_DIRECTORY", "fork", "pipe2")),
):
    for name in names:
        delattr(module, name)
opened = os.open

def no_folder(path, flags, *others, **named):
    if flags == os.O_RDONLY and os.path.isdir(path):
        raise PermissionError(13, "Permission denied", path)
    return opened(path, flags, *others, **named)

held = [True]

def locking(descriptor, mode, size):
    os.fstat(descriptor)
    assert (mode, size) == (2, 1)
    if held:
        held.clear()
        raise PermissionError(13, "Permission denied")

os.open = no_folder
sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=2, locking=locking)
"""


def path_that_lacks(folder: Path) -> str:
    """A PYTHONPATH that takes it all away."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(LACKS)
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
