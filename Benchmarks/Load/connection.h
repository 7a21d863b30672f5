// A connection to the server under test, plaintext or TLS 1.3 (TLS_AES_128_GCM_SHA256, X25519). Non-blocking
// once established.
#pragma once

#include "load.h"

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct {
    int fd;
    SSL *ssl; // NULL: plaintext
} Connection;

enum { connection_blocked = 0, connection_ended = -1 };

// Connects and performs the handshake. Blocks until both are complete.
Connection connection_open(int port, SSL_CTX *context);
// Starts to connect without blocking. Rotates the source addresses, so that ports do not run out.
Connection connection_begin(int port);
// Adds a TLS client to the connection. Does not perform the handshake.
void connection_secure(Connection *connection, SSL_CTX *context, SSL_SESSION *session);
// Returns 1 if complete, or 0 if it must continue after `EPOLLIN`, or `EPOLLOUT` if `*wants_write`.
int connection_handshake(Connection *connection, bool *wants_write);

// Returns the number of bytes or one of the constants above. Exits the program on failure.
ssize_t connection_read(Connection *connection, void *bytes, size_t count);
ssize_t connection_write(Connection *connection, const void *bytes, size_t count);

void connection_finish(Connection *connection); // close_notify and FIN
void connection_close(Connection *connection);

SSL_CTX *client_context(void);

// Opens `count` connections that echo one byte each and stay open.
void hold_connections(const Options *options, SSL_CTX *context, int count);
