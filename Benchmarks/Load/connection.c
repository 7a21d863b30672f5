#include "connection.h"

#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static _Noreturn void die_of_openssl(const char *what) {
    char text[256] = "";
    ERR_error_string_n(ERR_peek_error(), text, sizeof text);
    die("%s failed: %s", what, text);
}

SSL_CTX *client_context(void) {
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (!context || !SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) ||
        !SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") || !SSL_CTX_set1_groups_list(context, "X25519"))
        die_of_openssl("the client's context");
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(context, 1);
    return context;
}

static struct sockaddr_in address(uint32_t host, int port) {
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(host)};
}

static int make_socket(int flags) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0), one = 1;
    if (fd < 0) die("socket: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

Connection connection_open(int port, SSL_CTX *context) {
    Connection connection = {.fd = make_socket(0)};
    struct sockaddr_in server = address(INADDR_LOOPBACK, port);
    if (connect(connection.fd, (struct sockaddr *)&server, sizeof server) != 0) die("connect: %s", strerror(errno));
    if (context) {
        connection_secure(&connection, context, NULL);
        if (SSL_connect(connection.ssl) != 1) die_of_openssl("a handshake");
    }
    fcntl(connection.fd, F_SETFL, O_NONBLOCK);
    return connection;
}

Connection connection_begin(int port) {
    static uint32_t turn;
    Connection connection = {.fd = make_socket(SOCK_NONBLOCK)};
    int one = 1;
    struct sockaddr_in own = address(INADDR_LOOPBACK + turn++ % 64, 0), server = address(INADDR_LOOPBACK, port);
    setsockopt(connection.fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    if (bind(connection.fd, (struct sockaddr *)&own, sizeof own) != 0) die("bind: %s", strerror(errno));
    if (connect(connection.fd, (struct sockaddr *)&server, sizeof server) != 0 && errno != EINPROGRESS)
        die("connect: %s", strerror(errno));
    return connection;
}

void connection_secure(Connection *connection, SSL_CTX *context, SSL_SESSION *session) {
    connection->ssl = SSL_new(context);
    if (!connection->ssl || !SSL_set_fd(connection->ssl, connection->fd)) die_of_openssl("SSL_new");
    if (session && !SSL_set_session(connection->ssl, session)) die_of_openssl("SSL_set_session");
    SSL_set_connect_state(connection->ssl);
}

int connection_handshake(Connection *connection, bool *wants_write) {
    ERR_clear_error();
    int result = SSL_do_handshake(connection->ssl);
    if (result == 1) return 1;
    int error = SSL_get_error(connection->ssl, result);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) die_of_openssl("a handshake");
    *wants_write = error == SSL_ERROR_WANT_WRITE;
    return 0;
}

static ssize_t answer_of_openssl(Connection *connection, int result, const char *what) {
    switch (SSL_get_error(connection->ssl, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: return connection_blocked;
    case SSL_ERROR_ZERO_RETURN: return connection_ended;
    default: die_of_openssl(what);
    }
}

ssize_t connection_read(Connection *connection, void *bytes, size_t count) {
    if (connection->ssl) {
        ERR_clear_error();
        int result = SSL_read(connection->ssl, bytes, count > 1 << 30 ? 1 << 30 : (int)count);
        return result > 0 ? result : answer_of_openssl(connection, result, "SSL_read");
    }
    ssize_t result = recv(connection->fd, bytes, count, 0);
    if (result > 0) return result;
    if (result == 0) return connection_ended;
    if (errno == EAGAIN || errno == EINTR) return connection_blocked;
    die("recv: %s", strerror(errno));
}

ssize_t connection_write(Connection *connection, const void *bytes, size_t count) {
    if (connection->ssl) {
        ERR_clear_error();
        int result = SSL_write(connection->ssl, bytes, count > 1 << 30 ? 1 << 30 : (int)count);
        return result > 0 ? result : answer_of_openssl(connection, result, "SSL_write");
    }
    ssize_t result = send(connection->fd, bytes, count, MSG_NOSIGNAL);
    if (result >= 0) return result;
    if (errno == EAGAIN || errno == EINTR) return connection_blocked;
    die("send: %s", strerror(errno));
}

void connection_finish(Connection *connection) {
    if (connection->ssl) SSL_shutdown(connection->ssl);
    shutdown(connection->fd, SHUT_WR);
}

void connection_close(Connection *connection) {
    SSL_free(connection->ssl);
    close(connection->fd);
    connection->ssl = NULL;
    connection->fd = -1;
}
