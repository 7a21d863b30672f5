// Opens one DTLS connection after another, in as many threads as there are connections at a time.
#include "soak.h"

#include <arpa/inet.h>
#include <gnutls/dtls.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static gnutls_certificate_credentials_t credentials;
static gnutls_priority_t priorities;
static double mean_pause, ramp_seconds;
static struct sockaddr_in server = {.sin_family = AF_INET};

typedef struct {
    uint64_t choices;
    gnutls_datum_t saved; // the latest session
} Client;

static void exchange(gnutls_session_t session, Client *client) {
    Exchange exchange = {.mark = mark, .seed = next_choice(&client->choices)};
    exchange.request = 1 + next_choice(&client->choices) % maximum_payload;
    exchange.reply = 1 + next_choice(&client->choices) % maximum_payload;
    uint8_t request[maximum_datagram], reply[maximum_datagram];
    memcpy(request, &exchange, header_length);
    fill_pattern(exchange.seed, request + header_length, exchange.request);
    plant(request + header_length, exchange.request);
    // A datagram without a reply is sent again.
    for (int attempt = 0; attempt < 20; attempt++) {
        if (attempt > 0) count_retry();
        gnutls_record_send(session, request, header_length + exchange.request);
        for (;;) {
            ssize_t length = gnutls_record_recv(session, reply, sizeof reply);
            if (length == GNUTLS_E_TIMEDOUT || length == GNUTLS_E_AGAIN) break;
            if (length <= 0) return fault("DTLS client: no reply: %s", length ? gnutls_strerror((int)length) : "close_notify");
            // Otherwise, this is the second reply to an earlier request.
            if (length < header_length || memcmp(reply, request, header_length) != 0) continue;
            if (length != header_length + (ssize_t)exchange.reply || !matches_pattern(~exchange.seed, reply + header_length, exchange.reply))
                return fault("DTLS client: wrong bytes in a reply of %zd", length);
            return count_exchange(&exchange);
        }
    }
    fault("DTLS client: no reply");
}

static void converse(gnutls_session_t session, Client *client) {
    int result;
    do result = gnutls_handshake(session);
    while (result < 0 && !gnutls_error_is_fatal(result));
    if (result < 0) return fault("DTLS client: handshake: %s", gnutls_strerror(result));
    count_secured(gnutls_session_is_resumed(session));
    gnutls_record_set_timeout(session, retry_ms);
    for (int number = 1 + (int)(next_choice(&client->choices) % 12); number > 0 && !is_stopping(); number--) {
        wait_seconds(fmin(20, -mean_pause * log(1 - random_fraction(&client->choices))));
        exchange(session, client);
    }
    gnutls_free(client->saved.data);
    client->saved.data = NULL;
    gnutls_session_get_data2(session, &client->saved);
    // Some leave without close_notify, so that the server has to notice it.
    if (random_fraction(&client->choices) > 0.1) gnutls_bye(session, GNUTLS_SHUT_WR);
}

static void *run(void *argument) {
    Client *client = argument;
    wait_seconds(ramp_seconds * random_fraction(&client->choices));
    while (!is_stopping()) {
        count_opened();
        int udp = socket(AF_INET, SOCK_DGRAM, 0);
        if (udp < 0 || connect(udp, (struct sockaddr *)&server, sizeof server) != 0) fail("connect");
        gnutls_session_t session;
        gnutls_init(&session, GNUTLS_CLIENT | GNUTLS_DATAGRAM);
        gnutls_priority_set(session, priorities);
        gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials);
        gnutls_server_name_set(session, GNUTLS_NAME_DNS, "localhost", strlen("localhost"));
        gnutls_session_set_verify_cert(session, "localhost", 0);
        if (client->saved.data) gnutls_session_set_data(session, client->saved.data, client->saved.size);
        gnutls_dtls_set_mtu(session, 1400);
        gnutls_dtls_set_timeouts(session, 1000, limit_ms);
        gnutls_handshake_set_timeout(session, limit_ms);
        gnutls_transport_set_int(session, udp);
        converse(session, client);
        gnutls_deinit(session);
        close(udp);
        count_closed();
    }
    return NULL;
}

void connect_clients(const char *folder, uint64_t seed, double pause, double ramp, int port, int count) {
    char authority[4096];
    snprintf(authority, sizeof authority, "%s/ca.pem", folder);
    gnutls_certificate_allocate_credentials(&credentials);
    if (gnutls_certificate_set_x509_trust_file(credentials, authority, GNUTLS_X509_FMT_PEM) < 1) fail(authority);
    gnutls_priority_init(&priorities, NULL, NULL);
    mean_pause = pause;
    ramp_seconds = ramp;
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server.sin_port = htons((uint16_t)port);
    for (int number = 0; number < count; number++) {
        Client *client = calloc(1, sizeof *client);
        client->choices = next_choice(&seed);
        start_thread(run, client);
    }
}
