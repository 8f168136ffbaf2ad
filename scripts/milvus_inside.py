"""Run Milvus in the network namespace that `servers.py` made, and relay to it from the socket handed in.

A socket belongs to the namespace in which it was opened: connections that arrive at the listener outside are accepted
here, inside, and joined to Milvus, which nothing else can reach. A Milvus that has ended, such as one that a test has
killed, is started again on its data; until it listens, connections are closed.
"""

import asyncio
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

from milvus import MilvusServer, MilvusServerConfig

SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1  # linux/sockios.h, linux/if.h


def raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack("16xh14x", fcntl.ioctl(control, SIOCGIFFLAGS, request))
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
    except ConnectionError:
        pass
    finally:
        sink.close()


async def keep_running(server: MilvusServer) -> None:
    server.wait_for_started = False
    while True:
        await asyncio.sleep(0.2)
        if server.server_proc.poll() is not None:
            server.start()


async def relay(listener: socket.socket, milvus: MilvusServer) -> None:
    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", milvus.listen_port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))

    server = await asyncio.start_server(join, sock=listener)
    print("milvus is ready", flush=True)
    await asyncio.gather(server.serve_forever(), keep_running(milvus))


def main() -> None:
    descriptor, data, programs = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    raise_loopback()
    # Unpacked once for all runs: Milvus compares checksums and leaves what is there.
    programs.mkdir(exist_ok=True)
    (data / "bin").symlink_to(programs)
    config = MilvusServerConfig(data_dir=str(data))
    config.set("proxy.timeTickInterval", 50)  # ms; a strongly consistent search waits for one tick
    server = MilvusServer(config)
    server.start()
    asyncio.run(relay(socket.socket(fileno=os.dup(descriptor)), server))


if __name__ == "__main__":
    main()
