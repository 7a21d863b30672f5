#include "server.h"

#include <errno.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { receive_size = 65536, write_limit = 1 << 16, direct_size = 16384, kept_size = 1 << 18 };

static uint8_t plain[receive_size];

void buffer_append(Buffer *buffer, const void *bytes, size_t count) {
    if (buffer->begin == buffer->end) buffer->begin = buffer->end = 0;
    if (buffer->end + count > buffer->capacity && buffer->begin > 0) {
        memmove(buffer->bytes, buffer->bytes + buffer->begin, buffer->end - buffer->begin);
        buffer->end -= buffer->begin;
        buffer->begin = 0;
    }
    if (buffer->end + count > buffer->capacity) {
        buffer->capacity = 2 * (buffer->end + count);
        buffer->bytes = realloc(buffer->bytes, buffer->capacity);
        if (!buffer->bytes) abort();
    }
    memcpy(buffer->bytes + buffer->end, bytes, count);
    buffer->end += count;
}

void buffer_clear(Buffer *buffer) {
    buffer->begin = buffer->end = 0;
    if (buffer->capacity <= kept_size) return;
    free(buffer->bytes);
    *buffer = (Buffer){0};
}

size_t wire_offer(Connection *connection, const struct iovec *pieces, size_t count) {
    size_t offered = 0;
    for (size_t i = 0; i < count; i++) offered += pieces[i].iov_len;
    if (offered == 0 || connection->wants_to_write) return 0;
    struct msghdr message = {.msg_iov = (struct iovec *)pieces, .msg_iovlen = count};
    ssize_t sent = sendmsg(connection->fd, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) connection->is_over = true;
    else if (sent < (ssize_t)offered) connection->wants_to_write = true;
    return sent < 0 ? 0 : (size_t)sent;
}

// Writes as much as the kernel accepts, and queues the rest.
static void transmit(Connection *connection, const uint8_t *bytes, size_t count) {
    size_t done = wire_offer(connection, &(struct iovec){(void *)bytes, count}, 1);
    if (done < count && !connection->is_over) buffer_append(&connection->backlog, bytes + done, count - done);
}

bool wire_is_full(const Connection *connection) {
    size_t gathered = tls_output.end - tls_output.begin;
    return connection->wants_to_write || gathered >= write_limit;
}

void wire_write(Connection *connection, const void *bytes, size_t count) {
    if (connection->is_secure) {
        for (size_t done = 0, written; done < count; done += written) {
            ERR_clear_error();
            if (!SSL_write_ex(connection->ssl, (const uint8_t *)bytes + done, count - done, &written)) {
                connection->is_over = true;
                return;
            }
        }
    } else if (count >= direct_size && tls_output.begin == tls_output.end) {
        transmit(connection, bytes, count);
    } else {
        buffer_append(&tls_output, bytes, count);
    }
}

void wire_flush(Connection *connection) {
    if (tls_output.begin == tls_output.end) return;
    transmit(connection, tls_output.bytes + tls_output.begin, tls_output.end - tls_output.begin);
    buffer_clear(&tls_output);
}

void wire_secure(Connection *connection) {
    connection->ssl = tls_make();
}

static void shake_hands(Connection *connection) {
    ERR_clear_error();
    int result = SSL_do_handshake(connection->ssl);
    if (result == 1) connection->is_secure = true;
    else if (SSL_get_error(connection->ssl, result) != SSL_ERROR_WANT_READ) connection->is_over = true;
}

static void decrypt(Connection *connection) {
    if (!connection->is_secure) shake_hands(connection);
    while (connection->is_secure && !connection->is_over) {
        ERR_clear_error();
        int count = SSL_read(connection->ssl, plain, sizeof plain);
        if (count > 0) {
            application_receive(connection, plain, (size_t)count);
            continue;
        }
        int error = SSL_get_error(connection->ssl, count);
        if (error == SSL_ERROR_WANT_READ) return;
        if (error == SSL_ERROR_ZERO_RETURN) SSL_shutdown(connection->ssl); // replies with a close_notify
        connection->is_over = true;
    }
}

void wire_receive(Connection *connection) {
    static uint8_t received[receive_size];
    // Only one read per event, so that no connection starves the others. epoll reports the remaining bytes
    // again.
    ssize_t count = recv(connection->fd, received, sizeof received, 0);
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
        connection->is_over = true;
        return;
    }
    if (connection->ssl) {
        tls_input = (Buffer){.bytes = received, .end = (size_t)count, .capacity = sizeof received};
        decrypt(connection);
    } else {
        application_receive(connection, received, (size_t)count);
    }
    wire_flush(connection);
}


void wire_resume(Connection *connection) {
    Buffer *backlog = &connection->backlog;
    connection->wants_to_write = false;
    struct iovec rest = {backlog->bytes + backlog->begin, backlog->end - backlog->begin};
    backlog->begin += wire_offer(connection, &rest, 1);
    if (connection->wants_to_write || connection->is_over) return;
    buffer_clear(backlog);
    application_continue(connection);
    wire_flush(connection);
}
