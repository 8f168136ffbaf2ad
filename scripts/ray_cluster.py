"""Run commands on a Ray cluster of two nodes on this machine, each a process of its own with one processor.

    python scripts/ray_cluster.py kenthash hash shards --model runs/photos --out codes
    python scripts/ray_cluster.py --kill codes kenthash hash shards --model runs/photos --out codes
    python scripts/ray_cluster.py kenthash bench hash

`--ray` and the address of the cluster are added to each command; several are separated by "+". `--kill RESULTS` kills
the second node, with all its processes, as soon as three shards in the folder of the last command's results are
finished. `--cache FOLDER` is the user's cache on the nodes. The last line on standard output is JSON: the commands'
exit codes, and how many shards were finished when the node died.

Ray listens on all addresses, without a password. So all of this runs in a network namespace that has nothing but a
loopback, and in a process namespace, which the kernel clears when it ends. Linux; needs util-linux.
"""

import argparse
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from itertools import groupby
from pathlib import Path

CONTAINED = [
    "unshare",
    "--user",
    "--map-root-user",
    "--net",
    "--ipc",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
]
SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1  # linux/sockios.h, linux/if.h
PORT = 6399
# Nodes notice soon that one is gone, and work as fast as other processes on a busy machine.
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "300",
    "RAY_health_check_failure_threshold": "5",
}


def start(folder: Path, log: str, *options: str) -> subprocess.Popen[bytes]:
    command = [str(Path(sys.executable).with_name("ray")), "start", *options, "--node-ip-address=127.0.0.1"]
    command += ["--num-cpus=1", "--object-store-memory=100000000", "--block"]
    with (folder / log).open("wb") as output:
        return subprocess.Popen(
            command, env=os.environ | SETTINGS, stdout=output, stderr=output, start_new_session=True
        )


def answers() -> bool:
    try:
        socket.create_connection(("127.0.0.1", PORT), 1).close()
    except OSError:
        return False
    return True


def finished(results: Path) -> int:
    """The number of shards that the manifests in the folder of results, or of a pack that is being made, list."""
    manifests = list(results.parent.glob(f"{results.name}*/**/manifest.jsonl"))
    return sum(line.startswith('{"shard"') for manifest in manifests for line in manifest.read_text().splitlines())


def run_inside(folder: Path, cache: str, kill: str, commands: list[list[str]]) -> None:
    with socket.socket() as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
    if cache:
        SETTINGS["XDG_CACHE_HOME"] = cache
    start(folder, "head.log", "--head", f"--port={PORT}", "--include-dashboard=false", f"--temp-dir={folder}")
    while not answers():
        time.sleep(0.05)
    node = start(folder, "node.log", f"--address=127.0.0.1:{PORT}")
    while "Ray runtime started" not in (folder / "node.log").read_text():
        time.sleep(0.05)
    codes, at_death = [], None
    for number, command in enumerate(commands, start=1):
        if command[0] == "kenthash":
            command = [sys.executable, "-m", *command]
        run = subprocess.Popen([*command, "--ray", f"127.0.0.1:{PORT}"])
        if kill and number == len(commands):
            while finished(Path(kill)) < 3 and run.poll() is None:
                time.sleep(0.01)
            os.killpg(node.pid, signal.SIGKILL)
            at_death = finished(Path(kill))
        codes.append(run.wait())
    print(json.dumps({"exit": codes, "at_death": at_death}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", default="")
    parser.add_argument("--kill", default="", metavar="RESULTS")
    parser.add_argument("--inside", default="", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    commands = [list(group) for is_break, group in groupby(given.command, key="+".__eq__) if not is_break]
    if not commands:
        parser.error("give a command")
    if given.inside:
        run_inside(Path(given.inside), given.cache, given.kill, commands)
        return
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # a short name, for the sockets in it
    try:
        inside = [sys.executable, __file__, "--inside", folder, *sys.argv[1:]]
        sys.exit(subprocess.run([*CONTAINED, *inside]).returncode)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
