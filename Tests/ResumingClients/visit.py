"""Python's ssl: visits a port of 127.0.0.1 four times with TLS 1.2, and four times with TLS 1.3."""

import socket
import ssl
import sys

for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    session = None
    for _ in range(4):
        plain = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        with context.wrap_socket(plain, session=session) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            while connection.recv(4096):
                pass
            print(connection.version(), connection.session_reused)
            session = connection.session
