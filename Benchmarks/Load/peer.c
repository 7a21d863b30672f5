#include "peer.h"

#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

SSL_CTX *peer_context(void) {
    SSL_CTX *context = SSL_CTX_new(DTLS_client_method());
    if (!context || !SSL_CTX_set_min_proto_version(context, DTLS1_2_VERSION)) die("no context for DTLS");
    // In TLS 1.2, the groups also apply to certificates.
    if (!SSL_CTX_set_cipher_list(context, "ECDHE-ECDSA-AES128-GCM-SHA256") || !SSL_CTX_set1_groups_list(context, "X25519:P-256"))
        die("the context takes no cipher");
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
    return context;
}

Peer peer_open(int port, SSL_CTX *context) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    Peer peer = {.fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    if (peer.fd < 0 || connect(peer.fd, (struct sockaddr *)&address, sizeof address) != 0) die("connect: %s", strerror(errno));
    if (!context) return peer;
    BIO *bio = BIO_new_dgram(peer.fd, BIO_NOCLOSE);
    BIO_ctrl(bio, BIO_CTRL_DGRAM_SET_CONNECTED, 0, &address);
    peer.ssl = SSL_new(context);
    SSL_set_bio(peer.ssl, bio, bio);
    SSL_set_connect_state(peer.ssl);
    return peer;
}

bool peer_handshake(Peer *peer) {
    ERR_clear_error();
    int result = SSL_do_handshake(peer->ssl);
    if (result == 1) return true;
    if (SSL_get_error(peer->ssl, result) != SSL_ERROR_WANT_READ) die("the DTLS handshake failed: %s", ERR_error_string(ERR_peek_error(), NULL));
    return false;
}

void peer_send(Peer *peer, const void *bytes, size_t count) {
    ssize_t sent = peer->ssl ? SSL_write(peer->ssl, bytes, (int)count) : send(peer->fd, bytes, count, 0);
    if (sent != (ssize_t)count) die("a datagram could not be sent: %s", strerror(errno));
}

ssize_t peer_receive(Peer *peer, void *bytes, size_t capacity) {
    if (!peer->ssl) {
        ssize_t count = recv(peer->fd, bytes, capacity, 0);
        if (count < 0 && errno != EAGAIN) die("recv: %s", strerror(errno));
        return count;
    }
    ERR_clear_error();
    int count = SSL_read(peer->ssl, bytes, (int)capacity);
    if (count > 0) return count;
    if (SSL_get_error(peer->ssl, count) != SSL_ERROR_WANT_READ) die("the server ended DTLS");
    return -1;
}

void peer_finish(Peer *peer) {
    if (peer->ssl) SSL_shutdown(peer->ssl);
}

void peer_close(Peer *peer) {
    SSL_free(peer->ssl);
    close(peer->fd);
}
