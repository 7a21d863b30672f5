// server-libevent --mode MODE [--tls CERTIFICATE KEY] [--port PORT]: libevent's bufferevents in plaintext and
// with OpenSSL, as in the libevent book.
#include "../../Load/pattern.h"

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { batch_size = 131072 };

typedef struct {
    uint64_t expected, position, right, chunk;
} Transfer;

static SSL_CTX *context;
static bufferevent_data_cb on_read, on_write;
static uint8_t *pattern;
static uint64_t pattern_size;

static void echo(struct bufferevent *connection, void *state) {
    (void)state;
    bufferevent_write_buffer(connection, bufferevent_get_input(connection));
}

static void receive(struct bufferevent *connection, void *state) {
    Transfer *transfer = state;
    struct evbuffer *input = bufferevent_get_input(connection);
    while (evbuffer_get_length(input) > 0) {
        if (transfer->expected == 0) {
            if (evbuffer_get_length(input) < sizeof transfer->expected) return;
            evbuffer_remove(input, &transfer->expected, sizeof transfer->expected);
            transfer->position = transfer->right = 0;
            continue;
        }
        struct evbuffer_iovec piece;
        evbuffer_peek(input, -1, NULL, &piece, 1);
        const uint8_t *bytes = piece.iov_base;
        if (bytes[0] == pattern_byte(transfer->position) &&
            bytes[piece.iov_len - 1] == pattern_byte(transfer->position + piece.iov_len - 1))
            transfer->right += piece.iov_len;
        transfer->position += piece.iov_len;
        evbuffer_drain(input, piece.iov_len);
        if (transfer->position < transfer->expected) continue;
        bufferevent_write(connection, &transfer->right, sizeof transfer->right);
        transfer->expected = 0;
    }
}

// Also called when all previous writes have been sent.
static void send_batch(struct bufferevent *connection, void *state) {
    Transfer *transfer = state;
    struct evbuffer *output = bufferevent_get_output(connection);
    for (uint64_t sent = 0; sent < batch_size && transfer->position < transfer->expected;) {
        uint64_t left = transfer->expected - transfer->position, part = left < transfer->chunk ? left : transfer->chunk;
        const uint8_t *bytes = pattern + transfer->position % pattern_period;
        if (part >= 4096) evbuffer_add_reference(output, bytes, part, NULL, NULL);
        else evbuffer_add(output, bytes, part);
        transfer->position += part;
        sent += part;
    }
}

static void request(struct bufferevent *connection, void *state) {
    Transfer *transfer = state;
    struct evbuffer *input = bufferevent_get_input(connection);
    if (evbuffer_get_length(input) < 16) return;
    evbuffer_remove(input, &transfer->expected, 8);
    evbuffer_remove(input, &transfer->chunk, 8);
    transfer->position = 0;
    if (transfer->chunk == 0 || (pattern_size > 0 && pattern_size < transfer->chunk)) abort(); // the load generator requests only one size
    if (!pattern) {
        pattern_size = transfer->chunk;
        pattern = malloc(pattern_size + pattern_period);
        for (uint64_t i = 0; i < pattern_size + pattern_period; i++) pattern[i] = pattern_byte(i);
    }
    send_batch(connection, state);
}

static void on_event(struct bufferevent *connection, short what, void *state) {
    if (what & BEV_EVENT_CONNECTED) return;
    SSL *ssl = bufferevent_openssl_get_ssl(connection);
    if (ssl && SSL_is_init_finished(ssl)) {
        SSL_set_shutdown(ssl, SSL_RECEIVED_SHUTDOWN);
        SSL_shutdown(ssl);
    }
    bufferevent_free(connection);
    free(state);
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *peer, int size, void *state) {
    (void)peer, (void)size, (void)state;
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct event_base *base = evconnlistener_get_base(listener);
    struct bufferevent *connection =
        context ? bufferevent_openssl_socket_new(base, fd, SSL_new(context), BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE)
                : bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE);
    bufferevent_setcb(connection, on_read, on_write, on_event, calloc(1, sizeof(Transfer)));
    bufferevent_enable(connection, EV_READ | EV_WRITE);
}

static bool choose(const char *mode) {
    if (strcmp(mode, "echo") == 0) on_read = echo;
    else if (strcmp(mode, "receive") == 0) on_read = receive;
    else if (strcmp(mode, "source") == 0) on_read = request, on_write = send_batch;
    else return false;
    return true;
}

static bool prepare_tls(const char *certificate, const char *key) {
    context = SSL_CTX_new(TLS_server_method());
    SSL_CTX_set_num_tickets(context, 0);
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    return SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) && SSL_CTX_use_certificate_chain_file(context, certificate) == 1 &&
           SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) == 1;
}

int main(int count, char **words) {
    int port = 0;
    for (int i = 1; i + 1 < count; i += 2) {
        bool is_right = true;
        if (strcmp(words[i], "--mode") == 0) is_right = choose(words[i + 1]);
        else if (strcmp(words[i], "--port") == 0) port = atoi(words[i + 1]);
        else if (strcmp(words[i], "--tls") == 0 && i + 2 < count) is_right = prepare_tls(words[i + 1], words[i + 2]), i++;
        else is_right = false;
        if (!is_right) return fprintf(stderr, "server-libevent: %s?\n", words[i]), 2;
    }
    signal(SIGPIPE, SIG_IGN);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    struct event_base *base = event_base_new();
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    struct evconnlistener *listener = evconnlistener_new_bind(
        base, on_accept, NULL, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE, 1024, (struct sockaddr *)&address, sizeof address);
    if (!listener || getsockname(evconnlistener_get_fd(listener), (struct sockaddr *)&address, &size) != 0) return perror("listen"), 1;
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    event_base_dispatch(base);
}
