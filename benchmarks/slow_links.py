"""Links of a stated delay: a relay in front of every node that hands bytes on a while later.

``python -m benchmarks.slow_links SPEC.json`` is one of the processes that
:mod:`benchmarks.bench_federation` starts, where the kernel cannot delay packets itself.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

CHUNK = 1 << 16


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """Hand on what comes, each piece after the delay, in order."""
    loop = asyncio.get_running_loop()
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due, data = await under_way.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            writer.write(data)
            await writer.drain()
            if not data:
                writer.close()
                return

    delivering = asyncio.create_task(deliver())
    try:
        while data := await reader.read(CHUNK):
            under_way.put_nowait((loop.time() + delay, data))
    except ConnectionError:
        pass
    under_way.put_nowait((loop.time() + delay, b""))
    await asyncio.gather(delivering, return_exceptions=True)


async def serve(spec: dict[str, list[int]], delay: float) -> None:
    async def connect(port: int, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        try:
            far, forth = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            back.close()
            return
        await asyncio.gather(relay(near, forth, delay), relay(far, back, delay))

    servers = []
    for relayed, port in zip(spec["relay_ports"], spec["ports"], strict=True):

        def connected(
            near: asyncio.StreamReader, back: asyncio.StreamWriter, port: int = port
        ) -> asyncio.Task[None]:
            return asyncio.create_task(connect(port, near, back))

        servers.append(await asyncio.start_server(connected, "127.0.0.1", relayed))
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    told = json.loads(Path(sys.argv[1]).read_text())
    asyncio.run(serve(told, told["delay"]))
