"""The other side of cocoa-discovery.

    discovery.py announce GROUP PORT    answers with two services, after datagrams that are not answers
    discovery.py browse GROUP PORT      asks, and prints the first answer
"""

import json
import socket
import struct
import sys

role, group, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
loopback = socket.inet_aton("127.0.0.1")
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.settimeout(30)

if role == "announce":
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind(("", port))
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + loopback)
    print("listening", flush=True)
    while True:
        question, asker = sock.recvfrom(2048)
        if question != b"WHO IS THERE?":
            continue
        print("asked", flush=True)
        sock.sendto(b"not JSON", asker)
        sock.sendto(b"", asker)
        sock.sendto(b'{"service": 5}', asker)
        for name, number in (("printer", 631), ("scanner", 9100)):
            sock.sendto(json.dumps({"service": name, "port": number}).encode(), asker)
else:
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, loopback)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, struct.pack("b", 1))
    sock.sendto(b"SOMETHING ELSE", (group, port))
    sock.sendto(b"WHO IS THERE?", (group, port))
    answer, address = sock.recvfrom(2048)
    print(answer.decode(), "from", address[0], flush=True)
