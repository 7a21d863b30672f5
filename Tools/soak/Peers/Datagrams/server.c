// Receives all datagrams on one socket. Each peer has a thread, which takes its datagrams from a queue.
#include "soak.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/dtls.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { ports = 65536, queue_length = 32 };

typedef struct {
    struct sockaddr_in address;
    gnutls_dtls_prestate_st state;
    pthread_mutex_t lock;
    pthread_cond_t arrival;
    struct { size_t length; uint8_t bytes[maximum_datagram]; } *queue[queue_length];
    unsigned first, count;
    bool is_established, is_replaced;
} Peer;

static int udp;
static gnutls_certificate_credentials_t credentials;
static gnutls_priority_t priorities;
static gnutls_datum_t cookie_key, ticket_key;
static Peer *peers[ports]; // by port, because all peers are on loopback
static pthread_mutex_t peers_lock = PTHREAD_MUTEX_INITIALIZER;

static ssize_t push(gnutls_transport_ptr_t pointer, const void *bytes, size_t count) {
    Peer *peer = pointer;
    return sendto(udp, bytes, count, 0, (struct sockaddr *)&peer->address, sizeof peer->address);
}

static ssize_t pull(gnutls_transport_ptr_t pointer, void *bytes, size_t count) {
    Peer *peer = pointer;
    pthread_mutex_lock(&peer->lock);
    ssize_t length = -1;
    if (peer->count > 0) {
        length = (ssize_t)(peer->queue[peer->first]->length < count ? peer->queue[peer->first]->length : count);
        memcpy(bytes, peer->queue[peer->first]->bytes, (size_t)length);
        free(peer->queue[peer->first]);
        peer->first = (peer->first + 1) % queue_length;
        peer->count--;
    } else {
        errno = EAGAIN;
    }
    pthread_mutex_unlock(&peer->lock);
    return length;
}

static int wait_for_datagram(gnutls_transport_ptr_t pointer, unsigned milliseconds) {
    Peer *peer = pointer;
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += milliseconds / 1000 + (end.tv_nsec + milliseconds % 1000 * 1000000l) / 1000000000l;
    end.tv_nsec = (end.tv_nsec + milliseconds % 1000 * 1000000l) % 1000000000l;
    pthread_mutex_lock(&peer->lock);
    while (peer->count == 0 && !peer->is_replaced)
        if (pthread_cond_timedwait(&peer->arrival, &peer->lock, &end) == ETIMEDOUT) break;
    int result = peer->count > 0;
    pthread_mutex_unlock(&peer->lock);
    return result;
}

static void reply(gnutls_session_t session, const uint8_t *datagram, size_t length) {
    Exchange exchange;
    memcpy(&exchange, datagram, header_length < length ? header_length : length);
    if (length < header_length || exchange.mark != mark || exchange.request != length - header_length || exchange.reply > maximum_payload ||
        !matches_pattern(exchange.seed, datagram + header_length, exchange.request))
        return fault("DTLS server: wrong bytes in a datagram of %zu", length);
    uint8_t answer[maximum_datagram];
    memcpy(answer, datagram, header_length);
    fill_pattern(~exchange.seed, answer + header_length, exchange.reply);
    plant(answer + header_length, exchange.reply);
    gnutls_record_send(session, answer, header_length + exchange.reply);
    count_exchange(&exchange);
}

static void converse(Peer *peer, gnutls_session_t session) {
    int result;
    do result = gnutls_handshake(session);
    while (result < 0 && !gnutls_error_is_fatal(result) && !peer->is_replaced);
    if (result < 0) {
        // A client may leave without a sign during the handshake, or be replaced by another with its port.
        if (result != GNUTLS_E_TIMEDOUT && !peer->is_replaced) fault("DTLS server: handshake: %s", gnutls_strerror(result));
        return;
    }
    peer->is_established = true;
    count_secured(gnutls_session_is_resumed(session));
    gnutls_record_set_timeout(session, limit_ms);
    while (!peer->is_replaced) {
        uint8_t datagram[maximum_datagram];
        ssize_t length = gnutls_record_recv(session, datagram, sizeof datagram);
        if (length > 0) reply(session, datagram, (size_t)length);
        // Clients that leave without close_notify are noticed by the time limit.
        else if (length == 0 || length == GNUTLS_E_TIMEDOUT || length == GNUTLS_E_AGAIN) break;
        else if (gnutls_error_is_fatal((int)length)) return fault("DTLS server: %s", gnutls_strerror((int)length));
    }
    gnutls_bye(session, GNUTLS_SHUT_WR);
}

static void *run_peer(void *argument) {
    Peer *peer = argument;
    gnutls_session_t session;
    count_opened();
    gnutls_init(&session, GNUTLS_SERVER | GNUTLS_DATAGRAM);
    gnutls_priority_set(session, priorities);
    gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials);
    gnutls_session_ticket_enable_server(session, &ticket_key);
    gnutls_dtls_prestate_set(session, &peer->state);
    gnutls_dtls_set_mtu(session, 1400);
    gnutls_dtls_set_timeouts(session, 1000, limit_ms);
    gnutls_handshake_set_timeout(session, limit_ms);
    gnutls_transport_set_ptr(session, peer);
    gnutls_transport_set_push_function(session, push);
    gnutls_transport_set_pull_function(session, pull);
    gnutls_transport_set_pull_timeout_function(session, wait_for_datagram);
    converse(peer, session);
    gnutls_deinit(session);
    pthread_mutex_lock(&peers_lock);
    Peer **slot = &peers[ntohs(peer->address.sin_port)];
    if (*slot == peer) *slot = NULL;
    pthread_mutex_unlock(&peers_lock);
    for (; peer->count > 0; peer->count--, peer->first = (peer->first + 1) % queue_length) free(peer->queue[peer->first]);
    free(peer);
    count_closed();
    return NULL;
}

// Starts a session once the source has returned the cookie.
static Peer *admit(const struct sockaddr_in *source, const uint8_t *datagram, size_t length) {
    Peer candidate = {.address = *source};
    int result = gnutls_dtls_cookie_verify(&cookie_key, (void *)source, sizeof *source, (void *)datagram, length, &candidate.state);
    if (result < 0) {
        gnutls_dtls_cookie_send(&cookie_key, (void *)source, sizeof *source, &candidate.state, &candidate, push);
        return NULL;
    }
    Peer *peer = malloc(sizeof *peer);
    *peer = candidate;
    pthread_mutex_init(&peer->lock, NULL);
    pthread_cond_init(&peer->arrival, NULL);
    return peer;
}

static void deliver(Peer *peer, const uint8_t *datagram, size_t length) {
    pthread_mutex_lock(&peer->lock);
    if (peer->count < queue_length) {
        unsigned last = (peer->first + peer->count++) % queue_length;
        peer->queue[last] = malloc(sizeof *peer->queue[last]);
        peer->queue[last]->length = length;
        memcpy(peer->queue[last]->bytes, datagram, length);
        pthread_cond_signal(&peer->arrival);
    }
    pthread_mutex_unlock(&peer->lock);
}

static void *receive(void *unused) {
    (void)unused;
    for (;;) {
        uint8_t datagram[maximum_datagram];
        struct sockaddr_in source;
        memset(&source, 0, sizeof source);
        socklen_t size = sizeof source;
        ssize_t length = recvfrom(udp, datagram, sizeof datagram, 0, (struct sockaddr *)&source, &size);
        if (length < 0) continue;
        pthread_mutex_lock(&peers_lock);
        Peer **slot = &peers[ntohs(source.sin_port)];
        // A ClientHello in plaintext: a handshake record of epoch 0.
        bool is_hello = length > 13 && datagram[0] == 22 && !datagram[3] && !datagram[4] && datagram[13] == 1;
        if (*slot && (*slot)->is_established && is_hello) {
            (*slot)->is_replaced = true;
            pthread_cond_signal(&(*slot)->arrival);
            *slot = NULL;
        }
        bool is_new = !*slot && is_hello;
        if (is_new) *slot = admit(&source, datagram, (size_t)length);
        if (*slot) deliver(*slot, datagram, (size_t)length);
        if (*slot && is_new) start_thread(run_peer, *slot);
        pthread_mutex_unlock(&peers_lock);
    }
    return NULL;
}

void serve(const char *folder) {
    char certificate[4096], key[4096];
    snprintf(certificate, sizeof certificate, "%s/server.pem", folder);
    snprintf(key, sizeof key, "%s/server.key", folder);
    gnutls_certificate_allocate_credentials(&credentials);
    if (gnutls_certificate_set_x509_key_file(credentials, certificate, key, GNUTLS_X509_FMT_PEM) < 0) fail(certificate);
    gnutls_priority_init(&priorities, NULL, NULL);
    gnutls_key_generate(&cookie_key, GNUTLS_COOKIE_KEY_SIZE);
    gnutls_session_ticket_key_generate(&ticket_key);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    udp = socket(AF_INET, SOCK_DGRAM, 0);
    int buffer = 4 << 20;
    setsockopt(udp, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    if (bind(udp, (struct sockaddr *)&address, size) != 0 || getsockname(udp, (struct sockaddr *)&address, &size) != 0) fail("bind");
    printf("{\"ports\":{\"dtls\":%d}}\n", ntohs(address.sin_port));
    fflush(stdout);
    start_thread(receive, NULL);
}
