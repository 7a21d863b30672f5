// Idle connections. Each step opens a number of connections, echoes one byte on each, prints a line, and
// keeps them open until it reads a line from standard input. `udp-idle` does the same with peers of a
// datagram server.
#include "connection.h"
#include "load.h"
#include "peer.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

static void open_connection(const Options *options, SSL_CTX *context) {
    Connection connection = connection_open(options->port, context);
    char byte = 'x';
    if (connection_write(&connection, &byte, 1) != 1) die("the kernel took not one byte");
    struct pollfd wait = {.fd = connection.fd, .events = POLLIN};
    for (int i = 0; i < 100; i++) {
        ssize_t count = connection_read(&connection, &byte, 1);
        if (count == 1) return;
        if (count == connection_ended) break;
        poll(&wait, 1, 100);
    }
    die("no echo");
}

void hold_connections(const Options *options, SSL_CTX *context, int count) {
    for (int i = 0; i < count; i++) open_connection(options, context);
}

static void open_peer(const Options *options, SSL_CTX *context) {
    Peer peer = peer_open(options->port, context);
    struct pollfd wait = {.fd = peer.fd, .events = POLLIN};
    char byte = 'x';
    bool is_ready = !context, is_sent = false;
    for (int i = 0; i < 100; i++) {
        if (!is_ready) is_ready = peer_handshake(&peer);
        if (is_ready && !is_sent) peer_send(&peer, &byte, 1), is_sent = true;
        if (is_sent && peer_receive(&peer, &byte, 1) == 1) return;
        poll(&wait, 1, 100);
    }
    die("no echo");
}

static void run_steps(const Options *options, SSL_CTX *context, void (*open_one)(const Options *, SSL_CTX *)) {
    int open = 0;
    for (const char *step = options->steps; *step;) {
        char *end;
        long wanted = strtol(step, &end, 10);
        if (end == step) die("%s is not a list of numbers", options->steps);
        step = *end == ',' ? end + 1 : end;
        for (; open < wanted; open++) open_one(options, context);
        printf("{\"mode\":\"idle\",\"operations\":%d}\n", open);
        fflush(stdout);
        if (getchar() == EOF) return;
    }
}

void run_idle(const Options *options) {
    run_steps(options, options->tls ? client_context() : NULL, open_connection);
}

void run_idle_peers(const Options *options) {
    run_steps(options, options->tls ? peer_context() : NULL, open_peer);
}
