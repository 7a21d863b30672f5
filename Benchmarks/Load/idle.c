// Idle connections: opens as many as a step says, lets each echo once, prints a line, and holds them until a
// line comes from standard input.
#include "connection.h"
#include "load.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

static void echo_once(Connection *connection) {
    char byte = 'x';
    if (connection_write(connection, &byte, 1) != 1) die("the kernel took not one byte");
    struct pollfd wait = {.fd = connection->fd, .events = POLLIN};
    for (int i = 0; i < 100; i++) {
        ssize_t count = connection_read(connection, &byte, 1);
        if (count == 1) return;
        if (count == connection_ended) break;
        poll(&wait, 1, 100);
    }
    die("no echo");
}

void run_idle(const Options *options) {
    SSL_CTX *context = options->tls ? client_context() : NULL;
    int open = 0;
    for (const char *step = options->steps; *step;) {
        char *end;
        long wanted = strtol(step, &end, 10);
        if (end == step) die("%s is not a list of numbers", options->steps);
        step = *end == ',' ? end + 1 : end;
        for (; open < wanted; open++) {
            Connection connection = connection_open(options->port, context);
            echo_once(&connection);
        }
        printf("{\"mode\":\"idle\",\"operations\":%d}\n", open);
        fflush(stdout);
        if (getchar() == EOF) return;
    }
}
