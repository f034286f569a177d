#!/usr/bin/env python3
"""A relay beside each worker of a chain: connections to whoever the firewall hides go through the neighbours.

Usage: tree_relay.py WORKER      (in the namespace and the group of tree_dial.py --relay, which redirects to it)
A connection of worker K's agent that the kernel redirected here is passed on to the relay of the next worker on the chain, with one
line that says where it wants to go, until a neighbour of its end dials that. It carries bytes only: TLS is the agents' own, from
end to end. A dial that fails closes the whole way back. Memory: 64 KiB a direction and connection; a slow reader slows the writer.
This is no part of Crowdsurf: it shows what a relay inside the agents would be worth (docs/decisions.md).
"""
import asyncio
import socket
import sys

PORT = 29000  # of the relays among themselves; in a namespace of their own nobody else has it
REDIRECTED = 29100  # + worker: what its agent dialed
ORIGINAL_DESTINATION = 80  # linux/netfilter_ipv4.h, SO_ORIGINAL_DST
PIECE = 1 << 16  # bytes


def address(worker):
    return f"127.0.1.{worker + 1}"


def worker_of(host):
    return int(host.rsplit(".", 1)[1]) - 1


async def copy(reader, writer):
    try:
        while piece := await reader.read(PIECE):
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.transport.abort()


class Relay:
    def __init__(self, worker):
        self.worker = worker

    async def pass_on(self, reader, writer, host, port):
        end = worker_of(host)
        try:
            if abs(end - self.worker) <= 1:
                there = await asyncio.open_connection(host, port, limit=PIECE)
            else:
                step = 1 if end > self.worker else -1
                there = await asyncio.open_connection(address(self.worker + step), PORT, limit=PIECE)
                there[1].write(f"{host} {port}\n".encode())
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))
        for side in (writer, there[1]):
            side.close()

    async def from_agent(self, reader, writer):
        wanted = writer.get_extra_info("socket").getsockopt(socket.SOL_IP, ORIGINAL_DESTINATION, 16)
        await self.pass_on(reader, writer, socket.inet_ntoa(wanted[4:8]), int.from_bytes(wanted[2:4], "big"))

    async def from_relay(self, reader, writer):
        host, port = (await reader.readline()).decode().split()
        await self.pass_on(reader, writer, host, int(port))

    async def serve(self):
        servers = [await asyncio.start_server(self.from_agent, "127.0.0.1", REDIRECTED + self.worker, limit=PIECE),
                   await asyncio.start_server(self.from_relay, address(self.worker), PORT, limit=PIECE)]
        print("ready", flush=True)
        await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    asyncio.run(Relay(int(sys.argv[1])).serve())
