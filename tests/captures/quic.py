"""A QUIC server and client for record.sh, on aioquic (not part of a usual system: the script skips
the QUIC recordings where `import aioquic` fails).

  quic.py serve PORT CERT KEY
  quic.py get FROM_PORT ADDRESS PORT NAME VERSION [WORDS]

VERSION is 1 or 2 (RFC 9000, RFC 9369). WORDS further application protocols make the ClientHello too
big for one packet.
"""

import asyncio
import ssl
import sys

from aioquic.asyncio import connect, serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.packet import QuicProtocolVersion

VERSIONS = {"1": QuicProtocolVersion.VERSION_1, "2": QuicProtocolVersion.VERSION_2}


def echo(reader, writer):
    async def copy():
        writer.write(await reader.read(64))
        writer.write_eof()

    asyncio.get_running_loop().create_task(copy())


async def run_server(port, certificate, key):
    configuration = QuicConfiguration(
        is_client=False, alpn_protocols=["lab"], supported_versions=list(VERSIONS.values())
    )
    configuration.load_cert_chain(certificate, key)
    await serve("::", int(port), configuration=configuration, stream_handler=echo)
    await asyncio.sleep(115)


async def run_client(from_port, address, port, name, version, words="0"):
    # The client says NAME; the address stands in for it as if DNS had given it.
    configuration = QuicConfiguration(
        alpn_protocols=[f"lab-protocol-{number:04}" for number in range(int(words))] + ["lab"],
        server_name=name,
        verify_mode=ssl.CERT_NONE,
        original_version=VERSIONS[version],
        supported_versions=[VERSIONS[version]],
    )
    async with connect(
        address, int(port), configuration=configuration, local_port=int(from_port)
    ) as client:
        reader, writer = await client.create_stream()
        writer.write(b"hello")
        writer.write_eof()
        await asyncio.wait_for(reader.read(), 5)


if __name__ == "__main__":
    COMMANDS = {"serve": run_server, "get": run_client}
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(__doc__)
    asyncio.run(COMMANDS[sys.argv[1]](*sys.argv[2:]))
