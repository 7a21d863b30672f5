"""The server of cocoa-messenger: frames of a JSON header, CRLF and a body.

    messenger_server.py PORT [bad-header|long-header|huge-body]

It passes messages on, keeps those for users who are not there, and sends receipts. With a second argument it
breaks the protocol after the first login, and behaves from the second on.
"""

import asyncio
import json
import sys

users = {}
mailboxes = {}
faults = sys.argv[2:]
broken = {
    "bad-header": b"this is not JSON\r\n",
    "long-header": b'{"type":"' + b"x" * 100_000,
    "huge-body": b'{"type":"text","from":"eve","id":0,"size":99999999999}\r\n',
}


def frame(kind, body=b"", **fields):
    header = {"type": kind, "size": len(body), **fields}
    return json.dumps(header).encode() + b"\r\n" + body


async def serve(reader, writer):
    name = None
    try:
        while True:
            line = await reader.readuntil(b"\r\n")
            header = json.loads(line)
            body = await reader.readexactly(header["size"])
            kind = header["type"]
            if kind == "login":
                name = header["from"]
                print(f"{name} logged in", flush=True)
                writer.write(broken[faults.pop()] if faults else frame("welcome"))
                users[name] = writer
                for kept in mailboxes.pop(name, []):
                    writer.write(kept)
            elif kind == "heartbeat":
                writer.write(frame("heartbeat"))
            elif kind == "bye":
                print(f"{name} said bye", flush=True)
                return
            else:
                message = frame(kind, body, **{"from": name, "id": header["id"], "to": header["to"]})
                print(f"{kind} {header['id']} from {name} to {header['to']}: {len(body)} bytes", flush=True)
                if header["to"] in users:
                    users[header["to"]].write(message)
                else:
                    mailboxes.setdefault(header["to"], []).append(message)
                writer.write(frame("receipt", id=header["id"]))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        print(f"{name} is gone", flush=True)
    finally:
        if users.get(name) is writer:
            del users[name]
        writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), reuse_address=True)
    print("listening", flush=True)
    async with server:
        await server.serve_forever()


asyncio.run(main())
