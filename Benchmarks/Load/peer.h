// A peer of a datagram server: a connected, non-blocking UDP socket, plaintext or DTLS 1.2
// (ECDHE-ECDSA-AES128-GCM-SHA256, X25519).
#pragma once

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { datagram_limit = 65507 };

typedef struct {
    int fd;
    SSL *ssl; // NULL: plaintext
} Peer;

Peer peer_open(int port, SSL_CTX *context);
bool peer_handshake(Peer *peer); // returns whether it is complete

// Sends a datagram of `count` bytes. Exits the program on failure.
void peer_send(Peer *peer, const void *bytes, size_t count);
ssize_t peer_receive(Peer *peer, void *bytes, size_t capacity); // returns -1 if no datagram is available

void peer_finish(Peer *peer); // close_notify
void peer_close(Peer *peer);

SSL_CTX *peer_context(void);
