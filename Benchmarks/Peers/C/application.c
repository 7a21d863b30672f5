#include "server.h"

#include "../../Load/pattern.h"

#include <stdlib.h>
#include <string.h>

static const char go_ahead[] = "220 go ahead\r\n";
enum { gather_size = 16384, piece_size = 65536, pieces_at_once = 4 };

static void answer_line(Connection *connection, const uint8_t *line, size_t count) {
    if (server_mode == mode_starttls) {
        wire_write(connection, go_ahead, sizeof go_ahead - 1);
        wire_secure(connection);
    } else if (server_mode == mode_count) {
        uint64_t length = count;
        wire_write(connection, &length, sizeof length);
    } else {
        wire_write(connection, line, count);
    }
}

static void receive_lines(Connection *connection, const uint8_t *bytes, size_t count) {
    Buffer *partial = &connection->partial;
    while (count > 0) {
        const uint8_t *end = memchr(bytes, '\n', count);
        size_t part = end ? (size_t)(end - bytes) + 1 : count;
        if (end && partial->begin == partial->end) {
            answer_line(connection, bytes, part);
        } else {
            buffer_append(partial, bytes, part);
            if (end) answer_line(connection, partial->bytes + partial->begin, partial->end - partial->begin);
            if (end) buffer_clear(partial);
        }
        bytes += part;
        count -= part;
    }
}

// An eight-byte length, then the bytes. Checks the first and last byte of each piece.
static void receive_bulk(Connection *connection, const uint8_t *bytes, size_t count) {
    while (count > 0) {
        if (connection->expected == 0) {
            Buffer *header = &connection->partial;
            size_t part = sizeof(uint64_t) - (header->end - header->begin);
            if (part > count) part = count;
            buffer_append(header, bytes, part);
            bytes += part;
            count -= part;
            if (header->end - header->begin < sizeof(uint64_t)) return;
            memcpy(&connection->expected, header->bytes + header->begin, sizeof(uint64_t));
            buffer_clear(header);
            connection->position = connection->right = 0;
            continue;
        }
        uint64_t left = connection->expected - connection->position;
        size_t part = left < count ? (size_t)left : count;
        if (bytes[0] == pattern_byte(connection->position) && bytes[part - 1] == pattern_byte(connection->position + part - 1))
            connection->right += part;
        connection->position += part;
        bytes += part;
        count -= part;
        if (connection->position < connection->expected) continue;
        wire_write(connection, &connection->right, sizeof connection->right);
        connection->expected = 0;
    }
}

static const uint8_t *pattern_for(uint64_t chunk) {
    static uint8_t *pattern;
    static uint64_t size;
    if (size < chunk) {
        pattern = realloc(pattern, chunk + pattern_period);
        size = chunk;
        for (uint64_t i = 0; i < size + pattern_period; i++) pattern[i] = pattern_byte(i);
    }
    return pattern;
}

static size_t next_write(const Connection *connection) {
    uint64_t left = connection->expected - connection->position;
    size_t part = left < connection->chunk ? (size_t)left : (size_t)connection->chunk;
    return part < piece_size ? part : piece_size;
}

// As many small writes as fit in a record.
static size_t gather(Connection *connection, const uint8_t *pattern, uint8_t *gathered) {
    size_t filled = 0;
    for (size_t part; (part = next_write(connection)) > 0 && filled + part <= gather_size; filled += part) {
        memcpy(gathered + filled, pattern + connection->position % pattern_period, part);
        connection->position += part;
    }
    return filled;
}

// Several large writes per call, because each call wakes the peer.
static void offer_bulk(Connection *connection, const uint8_t *pattern) {
    struct iovec pieces[pieces_at_once];
    size_t count = 0;
    uint64_t begin = connection->position;
    for (size_t part; count < pieces_at_once && (part = next_write(connection)) > 0; connection->position += part)
        pieces[count++] = (struct iovec){(void *)(pattern + connection->position % pattern_period), part};
    wire_flush(connection);
    connection->position = begin + wire_offer(connection, pieces, count);
}

// Small writes are combined up to the size of a record. Large ones are sent in pieces.
static void send_bulk(Connection *connection) {
    static uint8_t gathered[gather_size];
    const uint8_t *pattern = pattern_for(connection->chunk < piece_size ? connection->chunk : piece_size);
    while (connection->position < connection->expected && !wire_is_full(connection) && !connection->is_over) {
        size_t part = next_write(connection);
        const uint8_t *bytes = pattern + connection->position % pattern_period;
        if (part < gather_size / 2) {
            wire_write(connection, gathered, gather(connection, pattern, gathered));
        } else if (connection->is_secure) {
            wire_write(connection, bytes, part);
            connection->position += part;
        } else {
            offer_bulk(connection, pattern);
        }
        if (wire_is_full(connection)) wire_flush(connection);
    }
    wire_flush(connection);
}

static void receive_request(Connection *connection, const uint8_t *bytes, size_t count) {
    Buffer *request = &connection->partial;
    buffer_append(request, bytes, count);
    if (request->end - request->begin < 2 * sizeof(uint64_t)) return;
    memcpy(&connection->expected, request->bytes + request->begin, sizeof(uint64_t));
    memcpy(&connection->chunk, request->bytes + request->begin + sizeof(uint64_t), sizeof(uint64_t));
    buffer_clear(request);
    connection->position = 0;
    if (connection->chunk == 0) connection->is_over = true;
    else send_bulk(connection);
}

void application_receive(Connection *connection, const uint8_t *bytes, size_t count) {
    switch (server_mode) {
    case mode_echo: return wire_write(connection, bytes, count);
    case mode_lines:
    case mode_count: return receive_lines(connection, bytes, count);
    case mode_receive: return receive_bulk(connection, bytes, count);
    case mode_source: return receive_request(connection, bytes, count);
    case mode_udp_echo: case mode_udp_receive: case mode_udp_source: break; // datagrams.c
    case mode_starttls:
        if (connection->is_secure) return wire_write(connection, bytes, count);
        return receive_lines(connection, bytes, count);
    }
}

void application_continue(Connection *connection) {
    if (server_mode == mode_source) send_bulk(connection);
}
