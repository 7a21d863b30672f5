"""A mail server behind an attacker who puts replies in plaintext behind the one to STARTTLS.

    injecting_smtp_server.py PORT CERTIFICATE KEY
"""

import socket
import ssl
import sys

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2], sys.argv[3])
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
connection, _ = listener.accept()
connection.settimeout(30)
connection.sendall(b"220 ready\r\n")
connection.recv(1000)
connection.sendall(b"250-hello\r\n250 STARTTLS\r\n")
connection.recv(1000)
connection.sendall(b"220 go ahead\r\n250 injected\r\n250 injected\r\n250 injected\r\n")
try:
    secure = context.wrap_socket(connection, server_side=True)
    print("received", secure.recv(1000), flush=True)
except (ssl.SSLError, OSError) as error:
    print("no TLS:", error, flush=True)
