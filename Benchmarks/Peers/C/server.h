// The floor: an epoll loop in one thread, and OpenSSL over memory of the loop's own, which all connections share.
//
// What a connection receives lies in one buffer until it is handled, and what it sends is gathered in another and leaves with one call when the
// event has been handled. A connection has memory of its own for what the kernel does not take, and for a line that is not complete.
#pragma once

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

typedef struct {
    uint8_t *bytes;
    size_t begin, end, capacity;
} Buffer;

void buffer_append(Buffer *buffer, const void *bytes, size_t count);
void buffer_clear(Buffer *buffer); // gives the memory back when it is much

typedef enum { mode_echo, mode_lines, mode_count, mode_receive, mode_source, mode_starttls } Mode;

typedef struct Connection {
    int fd;
    SSL *ssl;                  // NULL: plain, so far
    bool is_secure, is_over;   // the handshake is complete; the connection ends with this event, once its answer is out
    bool wants_to_write;       // the kernel has taken less than it was offered
    bool waits_to_write;       // the loop waits for it to take more
    Buffer backlog;            // what the kernel has not taken
    Buffer partial;            // an incomplete line or header
    uint64_t expected, position, right; // of a bulk transfer
    uint64_t chunk;
    struct Connection *next_closed;
} Connection;

extern Mode server_mode;

// application.c: what is done with the bytes of a connection.
void application_receive(Connection *connection, const uint8_t *bytes, size_t count);
void application_continue(Connection *connection); // the kernel takes bytes again

// wire.c: how bytes get in and out.
void wire_write(Connection *connection, const void *bytes, size_t count);
bool wire_is_full(const Connection *connection);
void wire_secure(Connection *connection);
void wire_receive(Connection *connection);
void wire_resume(Connection *connection); // the kernel takes bytes again
void wire_flush(Connection *connection);
size_t wire_offer(Connection *connection, const struct iovec *pieces, size_t count); // the bytes that the kernel takes now, without TLS
void wire_close(Connection *connection);

// tls.c: the context, and the connection between SSL and the loop's buffers.
void tls_prepare(const char *certificate, const char *key, int tickets);
SSL *tls_make(void);
extern Buffer tls_input, tls_output;
