"""HAProxy and nginx in front of the servers. Each passes TLS through on one port, terminates TLS on a second port and
encrypts the connection to the server, and passes STARTTLS through on a third port."""
import socket

from programs import Program, free_port, wait_until

# `inter` also limits the handshakes of health checks, and handshakes take longer during the attack.
HAPROXY = """
global
    maxconn 9000
    tune.ssl.lifetime 3600
    log stdout format raw local0
defaults
    mode tcp
    log global
    log-format "%[date(0,ms)] %ci:%cp %s"
    timeout connect 10s
    timeout client 90s
    timeout server 90s
    timeout check 10s
    retries 3
    option redispatch 1
    default-server send-proxy-v2 check inter 5s downinter 500ms fall 2 rise 1
listen passing
    bind 127.0.0.1:{passing}
    server a 127.0.0.1:{a.port}
    server b 127.0.0.1:{b.port}
listen encrypting
    bind 127.0.0.1:{encrypting} ssl crt {folder}/balancer.pem
    default-server ssl verify required ca-file {folder}/ca.pem sni str(localhost) verifyhost localhost
    server a 127.0.0.1:{a.port}
    server b 127.0.0.1:{b.port}
listen starttls
    bind 127.0.0.1:{starttls}
    server a 127.0.0.1:{a.starttls_port}
    server b 127.0.0.1:{b.starttls_port}
"""

NGINX = """
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off;
user root;
pid {folder}/nginx.pid;
error_log stderr warn;
worker_processes 1;
worker_rlimit_nofile {files};
events {{ worker_connections {files}; }}
stream {{
    log_format servers '$msec $remote_addr:$remote_port $upstream_addr';
    access_log {folder}/nginx-connections.log servers;
    proxy_protocol on;
    proxy_connect_timeout 10s;
    proxy_timeout 90s;
    upstream tls {{
        server 127.0.0.1:{a.port} max_fails=1 fail_timeout=1s;
        server 127.0.0.1:{b.port} max_fails=1 fail_timeout=1s;
    }}
    upstream starttls {{
        server 127.0.0.1:{a.starttls_port} max_fails=1 fail_timeout=1s;
        server 127.0.0.1:{b.starttls_port} max_fails=1 fail_timeout=1s;
    }}
    server {{
        listen 127.0.0.1:{passing} backlog=4096;
        proxy_pass tls;
    }}
    server {{
        listen 127.0.0.1:{encrypting} backlog=4096 ssl;
        ssl_certificate {folder}/balancer.pem;
        ssl_certificate_key {folder}/balancer.pem;
        ssl_protocols TLSv1.2 TLSv1.3;
        ssl_session_timeout 1h;
        proxy_ssl on;
        proxy_ssl_protocols TLSv1.2 TLSv1.3;
        proxy_ssl_name localhost;
        proxy_ssl_server_name on;
        proxy_ssl_verify on;
        proxy_ssl_trusted_certificate {folder}/ca.pem;
        proxy_pass tls;
    }}
    server {{
        listen 127.0.0.1:{starttls} backlog=4096;
        proxy_pass starttls;
    }}
}}
"""


class Balancer:
    """A load balancer with three ports."""

    def __init__(self, name, configuration, folder, a, b, **values):
        self.name, self.folder = name, folder
        self.ports = {port: free_port() for port in ("passing", "encrypting", "starttls")}
        with open(f"{folder}/{name}.conf", "w", encoding="utf-8") as file:
            file.write(configuration.format(folder=folder, a=a, b=b, **self.ports, **values))

    def start(self, command):
        self.program = Program(self.name, command, self.folder)
        for port in self.ports.values():
            wait_until(lambda: listens(port), f"{self.name} listens: see {self.program.log}")

    def routes(self, *kinds):
        return [f"{self.name}-{kind}=127.0.0.1:{self.ports[kind]}" for kind in kinds]


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class HAProxy(Balancer):
    def __init__(self, folder, a, b):
        super().__init__("haproxy", HAPROXY, folder, a, b)
        self.start(["haproxy", "-db", "-f", f"{folder}/haproxy.conf"])

    def servers(self):
        """Yields the time, the client and the server of each connection."""
        with open(self.program.log, encoding="utf-8", errors="replace") as file:
            for line in file:
                words = line.split()
                if len(words) == 3 and words[0].isdigit():
                    yield int(words[0]) / 1000, words[1], words[2]


class Nginx(Balancer):
    def __init__(self, folder, a, b, files):
        self.names = {f"127.0.0.1:{port}": server.name for server in (a, b) for port in (server.port, server.starttls_port)}
        super().__init__("nginx", NGINX, folder, a, b, files=files)
        self.start(["nginx", "-c", f"{folder}/nginx.conf", "-p", folder])

    def servers(self):
        """Yields the time, the client and the server of each connection."""
        with open(f"{self.folder}/nginx-connections.log", encoding="utf-8", errors="replace") as file:
            for line in file:
                words = line.replace(",", " ").split()
                yield float(words[0]), words[1], self.names.get(words[-1], words[-1])
