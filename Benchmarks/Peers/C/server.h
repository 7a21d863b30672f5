// The floor: an epoll loop in one thread, and OpenSSL over the loop's own memory, which all connections
// share.
//
// One buffer holds received bytes until they are handled. Another gathers the bytes to send, which leave with
// one call after the event. A connection has its own memory only for bytes that the kernel does not take, and
// for an incomplete line.
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
void buffer_clear(Buffer *buffer); // frees the memory if it is large

typedef enum { mode_echo, mode_lines, mode_count, mode_receive, mode_source, mode_starttls, mode_udp_echo, mode_udp_receive, mode_udp_source } Mode;

typedef struct Connection {
    int fd;
    SSL *ssl;                  // NULL: plain, so far
    bool is_secure, is_over;   // the handshake is complete; the connection ends with this event, after its reply
    bool wants_to_write;       // the kernel took less than it was offered
    bool waits_to_write;       // the loop waits until it takes more
    Buffer backlog;            // bytes that the kernel has not taken
    Buffer partial;            // an incomplete line or header
    uint64_t expected, position, right; // the state of a bulk transfer
    uint64_t chunk;
    struct Connection *next_closed;
} Connection;

extern Mode server_mode;

// application.c: what the server does with the bytes of a connection.
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

// tls.c: the context, and the link between SSL and the loop's buffers.
void tls_prepare(const char *certificate, const char *key, int tickets);
SSL *tls_make(void);
extern Buffer tls_input, tls_output;

// datagrams.c: the modes of UDP, in one thread that waits for its one socket.
int datagrams_listen(int port); // returns the port
void datagrams_prepare(const char *certificate, const char *key); // DTLS 1.2 for `mode_udp_echo`
_Noreturn void datagrams_run(void);
