// Consecutive transfers on each connection. `receive`: the client sends an eight-byte length and that many
// bytes, and the server replies with the number of correct bytes in eight bytes. `source`: the client
// requests a number of bytes and a write size in sixteen bytes, and the server sends them.
//
// With one connection, the measurement starts and ends between two transfers.
#include "connection.h"
#include "load.h"
#include "pattern.h"
#include "report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

enum { write_size = 65536 };

typedef struct {
    Connection connection;
    uint64_t sent, received;
    uint64_t begun;
} Transfer;

static struct {
    const Options *options;
    int epoll;
    bool sends, is_over;
    uint8_t *pattern, *scratch;
    uint64_t operations, completed;
    Histogram histogram;
} load;

static void watch(Transfer *transfer, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = transfer};
    if (epoll_ctl(load.epoll, operation, transfer->connection.fd, &event) != 0) die("epoll_ctl: %s", strerror(errno));
}

static void begin(Transfer *transfer) {
    uint64_t header[2] = {load.options->size, load.options->chunk};
    size_t size = load.sends ? 8 : 16;
    if (connection_write(&transfer->connection, header, size) != (ssize_t)size) die("the kernel took no whole header");
    transfer->sent = transfer->received = 0;
    transfer->begun = now_ns();
    watch(transfer, EPOLL_CTL_MOD, load.sends ? EPOLLOUT : EPOLLIN);
}

static void end(Transfer *transfer) {
    load.operations++;
    histogram_record(&load.histogram, now_ns() - transfer->begun);
    load.completed++;
}

static void send_more(Transfer *transfer) {
    size_t limit = load.options->piece > 0 ? load.options->piece : write_size;
    for (int i = 0; i < 16 && transfer->sent < load.options->size; i++) {
        uint64_t left = load.options->size - transfer->sent;
        const uint8_t *bytes = load.pattern + transfer->sent % pattern_period;
        ssize_t count = connection_write(&transfer->connection, bytes, left < limit ? (size_t)left : limit);
        if (count == connection_ended) die("the server closed a connection");
        if (count == connection_blocked) return;
        transfer->sent += (uint64_t)count;
    }
    if (transfer->sent == load.options->size) watch(transfer, EPOLL_CTL_MOD, EPOLLIN);
}

static void read_verdict(Transfer *transfer) {
    uint8_t *verdict = load.scratch;
    ssize_t count = connection_read(&transfer->connection, verdict, 8);
    if (count == connection_blocked) return;
    uint64_t expected = load.options->size;
    // The eight bytes always arrive together, because they are one small write on an otherwise idle
    // connection.
    if (count != 8 || memcmp(verdict, &expected, 8) != 0) die("the server received other bytes");
    end(transfer);
    if (!load.is_over) begin(transfer);
}

static void receive_more(Transfer *transfer) {
    for (int i = 0; i < 16; i++) {
        uint64_t left = load.options->size - transfer->received;
        ssize_t count = connection_read(&transfer->connection, load.scratch, left < write_size ? (size_t)left : write_size);
        if (count == connection_ended) die("the server closed a connection");
        if (count == connection_blocked) return;
        if (memcmp(load.scratch, load.pattern + transfer->received % pattern_period, (size_t)count) != 0)
            die("the server sent other bytes");
        transfer->received += (uint64_t)count;
        if (transfer->received < load.options->size) continue;
        end(transfer);
        if (load.is_over) return;
        begin(transfer);
    }
}

static void handle(Transfer *transfer, uint32_t events) {
    if (!load.sends) {
        // OpenSSL may have buffered complete records, for which epoll reports no event.
        do receive_more(transfer); while (transfer->connection.ssl && SSL_has_pending(transfer->connection.ssl) && !load.is_over);
    } else if (events & EPOLLOUT) {
        send_more(transfer);
    } else {
        read_verdict(transfer);
    }
}

// Runs until the first transfer that completes after `end`.
static void run_until(uint64_t end) {
    struct epoll_event events[64];
    uint64_t limit = end + 60000000000u, completed = load.completed;
    for (uint64_t now; (now = now_ns()) < end || completed == load.completed;) {
        if (now > limit) die("a transfer does not end");
        if (now < end) completed = load.completed;
        int count = epoll_wait(load.epoll, events, 64, load.options->spins ? 0 : 100);
        for (int i = 0; i < count; i++) handle(events[i].data.ptr, events[i].events);
    }
}

void run_bulk(const Options *options) {
    load.options = options;
    load.epoll = epoll_create1(EPOLL_CLOEXEC);
    load.sends = strcmp(options->mode, "receive") == 0;
    load.pattern = pattern_make(write_size > options->piece ? write_size : options->piece);
    load.scratch = malloc(write_size);
    SSL_CTX *context = options->tls ? client_context() : NULL;
    Transfer *transfers = calloc((size_t)options->connections, sizeof(Transfer));
    for (int i = 0; i < options->connections; i++) {
        transfers[i].connection = connection_open(options->port, context);
        watch(&transfers[i], EPOLL_CTL_ADD, 0);
        begin(&transfers[i]);
    }
    run_until(now_ns() + (uint64_t)(options->warm * 1e9));
    if (options->announces) {
        printf("{\"mode\":\"begun\",\"operations\":0}\n");
        fflush(stdout);
    }
    memset(&load.histogram, 0, sizeof load.histogram);
    uint64_t operations = load.operations;
    Sample first = sample_take(options, operations, operations * options->size);
    run_until(first.time + (uint64_t)(options->seconds * 1e9));
    Sample last = sample_take(options, load.operations, load.operations * options->size);
    report_print(options, first, last, &load.histogram);
}
