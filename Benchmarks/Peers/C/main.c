// server-c --mode MODE [--tls CERTIFICATE KEY] [--port PORT] [--tickets N]
#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

Mode server_mode;
static int loop, listener;
static bool begins_secure;
static Connection *closed;

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "server-c: %s: %s\n", what, strerror(errno));
    exit(1);
}

// The server does not read while output is queued, so a peer that does not read cannot use up memory.
static void update_watch(Connection *connection) {
    if (connection->wants_to_write == connection->waits_to_write) return;
    connection->waits_to_write = connection->wants_to_write;
    struct epoll_event event = {.events = connection->wants_to_write ? EPOLLOUT : EPOLLIN, .data.ptr = connection};
    if (epoll_ctl(loop, EPOLL_CTL_MOD, connection->fd, &event) != 0) fail("epoll_ctl");
}

void wire_close(Connection *connection) {
    if (connection->fd < 0) return;
    wire_flush(connection);
    close(connection->fd);
    connection->fd = -1;
    SSL_free(connection->ssl);
    free(connection->backlog.bytes);
    free(connection->partial.bytes);
    connection->next_closed = closed; // freed once no event of this iteration can refer to it
    closed = connection;
}

static void free_closed(void) {
    while (closed) {
        Connection *next = closed->next_closed;
        free(closed);
        closed = next;
    }
}

static void accept_all(void) {
    for (int i = 0; i < 64; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), one = 1;
        if (fd < 0 && errno == EAGAIN) return;
        if (fd < 0) fail("accept");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        Connection *connection = calloc(1, sizeof *connection);
        connection->fd = fd;
        if (begins_secure) wire_secure(connection);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
        if (epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event) != 0) fail("epoll_ctl");
    }
}

static void listen_on(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int one = 1;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, size) != 0 || listen(listener, 1024) != 0) fail("listen");
    getsockname(listener, (struct sockaddr *)&address, &size);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(loop, EPOLL_CTL_ADD, listener, &event) != 0) fail("epoll_ctl");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
}

static void run(void) {
    struct epoll_event events[256];
    for (;;) {
        int count = epoll_wait(loop, events, 256, -1);
        for (int i = 0; i < count; i++) {
            Connection *connection = events[i].data.ptr;
            if (!connection) {
                accept_all();
                continue;
            }
            if (events[i].events & EPOLLOUT) wire_resume(connection);
            else wire_receive(connection);
            if (connection->is_over) wire_close(connection);
            else update_watch(connection);
        }
        free_closed();
    }
}

static Mode mode_named(const char *name) {
    static const char *names[] = {"echo", "lines", "count", "receive", "source", "starttls", "udp-echo", "udp-receive", "udp-source"};
    for (int i = 0; i < 9; i++) if (strcmp(name, names[i]) == 0) return (Mode)i;
    errno = EINVAL;
    fail(name);
}

int main(int count, char **words) {
    const char *certificate = NULL, *key = NULL;
    int port = 0, tickets = 0;
    for (int i = 1; i + 1 < count; i += 2) {
        if (strcmp(words[i], "--mode") == 0) server_mode = mode_named(words[i + 1]);
        else if (strcmp(words[i], "--port") == 0) port = atoi(words[i + 1]);
        else if (strcmp(words[i], "--tickets") == 0) tickets = atoi(words[i + 1]);
        else if (strcmp(words[i], "--tls") == 0 && i + 2 < count) certificate = words[i + 1], key = words[i++ + 2];
        else return fprintf(stderr, "server-c: %s?\n", words[i]), 2;
    }
    signal(SIGPIPE, SIG_IGN);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (server_mode >= mode_udp_echo) {
        if (certificate) datagrams_prepare(certificate, key);
        printf("%d\n", datagrams_listen(port));
        fflush(stdout);
        datagrams_run();
    }
    if (certificate) tls_prepare(certificate, key, tickets);
    begins_secure = certificate && server_mode != mode_starttls;
    loop = epoll_create1(EPOLL_CLOEXEC);
    listen_on(port);
    run();
}
