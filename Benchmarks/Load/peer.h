// One peer of a datagram server: a connected UDP socket, plain or DTLS 1.2 (ECDHE-ECDSA-AES128-GCM-SHA256,
// X25519). It does not block.
#pragma once

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { datagram_limit = 65507 };

typedef struct {
    int fd;
    SSL *ssl; // NULL: plain
} Peer;

Peer peer_open(int port, SSL_CTX *context);
bool peer_handshake(Peer *peer); // true: it is complete

// A datagram of `count` bytes. A failure ends the program.
void peer_send(Peer *peer, const void *bytes, size_t count);
ssize_t peer_receive(Peer *peer, void *bytes, size_t capacity); // -1: none is there

void peer_finish(Peer *peer); // close_notify
void peer_close(Peer *peer);

SSL_CTX *peer_context(void);
