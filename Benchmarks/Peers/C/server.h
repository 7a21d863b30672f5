// The floor: a single-threaded epoll loop, and OpenSSL with buffers that are shared by all connections.
//
// One buffer holds received bytes until they are handled. Another collects the output, which is sent in one
// call after the event. A connection has buffers of its own only for output that the kernel does not accept
// and for an incomplete line.
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
    SSL *ssl;                  // NULL while in plaintext
    bool is_secure, is_over;   // the handshake is complete; the connection closes after this event and its reply
    bool wants_to_write;       // the kernel accepted only part of a write
    bool waits_to_write;       // the loop is polling for writability
    Buffer backlog;            // bytes that the kernel has not accepted
    Buffer partial;            // an incomplete line or header
    uint64_t expected, position, right; // the state of a bulk transfer
    uint64_t chunk;
    struct Connection *next_closed;
} Connection;

extern Mode server_mode;

// application.c: what the server does with a connection's bytes.
void application_receive(Connection *connection, const uint8_t *bytes, size_t count);
void application_continue(Connection *connection); // the socket is writable again

// wire.c: reading and writing.
void wire_write(Connection *connection, const void *bytes, size_t count);
bool wire_is_full(const Connection *connection);
void wire_secure(Connection *connection);
void wire_receive(Connection *connection);
void wire_resume(Connection *connection); // the socket is writable again
void wire_flush(Connection *connection);
size_t wire_offer(Connection *connection, const struct iovec *pieces, size_t count); // returns the number of bytes accepted; plaintext only
void wire_close(Connection *connection);

// tls.c: the SSL context, and the BIO on the loop's buffers.
void tls_prepare(const char *certificate, const char *key, int tickets);
SSL *tls_make(void);
extern Buffer tls_input, tls_output;

// datagrams.c: the UDP modes, which use one thread and one socket.
int datagrams_listen(int port); // returns the port
void datagrams_prepare(const char *certificate, const char *key); // DTLS 1.2 for `mode_udp_echo`
_Noreturn void datagrams_run(void);
