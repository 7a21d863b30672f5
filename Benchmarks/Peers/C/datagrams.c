// UDP: `recvmmsg` receives the available datagrams, and `sendmmsg` sends all replies. With DTLS, which
// supports only echoes, each source has its own SSL. Its BIO reads the current datagram and appends to the
// replies.
#include "server.h"

#include "../../Load/pattern.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { batch = 64, datagram_size = 2048, ports = 65536, mtu = 1400 };

static int udp;
static SSL_CTX *context;
static BIO_METHOD *method;
static SSL *peers[ports]; // by port, because all sources are on loopback
static uint64_t totals[ports];

static uint8_t in_bytes[batch][datagram_size], out_bytes[2 * batch][datagram_size];
static struct sockaddr_in in_addresses[batch], out_addresses[2 * batch];
static struct iovec in_pieces[batch], out_pieces[2 * batch];
static struct mmsghdr incoming[batch], outgoing[2 * batch];
static unsigned out_count;

static const uint8_t *input; // the current datagram, until OpenSSL has read it
static size_t input_count;
static const struct sockaddr_in *source;

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "server-c: %s: %s\n", what, strerror(errno));
    ERR_print_errors_fp(stderr);
    exit(1);
}

static void flush(void) {
    for (unsigned done = 0; done < out_count;) {
        int count = sendmmsg(udp, outgoing + done, out_count - done, 0);
        if (count < 0 && errno == EAGAIN) {
            struct pollfd ready = {.fd = udp, .events = POLLOUT};
            poll(&ready, 1, -1);
        } else if (count < 0) {
            done++; // skip the datagram: its peer may be gone
        } else {
            done += (unsigned)count;
        }
    }
    out_count = 0;
}

static void reply(const void *bytes, size_t count, const struct sockaddr_in *to) {
    if (out_count == 2 * batch) flush();
    memcpy(out_bytes[out_count], bytes, count);
    out_addresses[out_count] = *to;
    out_pieces[out_count].iov_len = count;
    out_count++;
}

// MARK: DTLS

static int bio_read(BIO *bio, char *bytes, size_t count, size_t *done) {
    BIO_clear_retry_flags(bio);
    if (!input) return BIO_set_retry_read(bio), 0;
    *done = input_count < count ? input_count : count;
    memcpy(bytes, input, *done);
    input = NULL;
    return 1;
}

static int bio_write(BIO *bio, const char *bytes, size_t count, size_t *done) {
    BIO_clear_retry_flags(bio);
    reply(bytes, count, source);
    *done = count;
    return 1;
}

static long bio_control(BIO *bio, int command, long number, void *pointer) {
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

// Unlike our server, the floor keeps state for sources whose address is not verified. It still sends a
// cookie, as ours does.
static int make_cookie(SSL *ssl, unsigned char *cookie, unsigned *count) {
    (void)ssl;
    memcpy(cookie, "0123456789abcdef", *count = 16);
    return 1;
}

static int check_cookie(SSL *ssl, const unsigned char *cookie, unsigned count) {
    (void)ssl;
    return count == 16 && memcmp(cookie, "0123456789abcdef", 16) == 0;
}

void datagrams_prepare(const char *certificate, const char *key) {
    method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "datagrams");
    BIO_meth_set_read_ex(method, bio_read);
    BIO_meth_set_write_ex(method, bio_write);
    BIO_meth_set_ctrl(method, bio_control);
    context = SSL_CTX_new(DTLS_server_method());
    if (!context || !SSL_CTX_set_min_proto_version(context, DTLS1_2_VERSION)) fail("the context");
    if (SSL_CTX_use_certificate_chain_file(context, certificate) != 1 || SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1)
        fail("the certificate");
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_QUERY_MTU | SSL_OP_COOKIE_EXCHANGE);
    SSL_CTX_set_cookie_generate_cb(context, make_cookie);
    SSL_CTX_set_cookie_verify_cb(context, check_cookie);
}

static SSL *make_peer(void) {
    SSL *ssl = SSL_new(context);
    BIO *bio = BIO_new(method);
    if (!ssl || !bio) fail("SSL_new");
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    SSL_set_accept_state(ssl);
    SSL_set_mtu(ssl, mtu);
    return ssl;
}

static void handle_secure(uint16_t port) {
    uint8_t bytes[datagram_size];
    if (!peers[port]) peers[port] = make_peer();
    SSL *ssl = peers[port];
    for (;;) {
        ERR_clear_error();
        int count = SSL_read(ssl, bytes, sizeof bytes);
        if (count > 0) {
            SSL_write(ssl, bytes, count);
            continue;
        }
        if (SSL_get_error(ssl, count) == SSL_ERROR_WANT_READ) break;
        SSL_shutdown(ssl);
        SSL_free(ssl);
        peers[port] = NULL;
        break;
    }
    input = NULL;
}

// MARK: modes

static void send_burst(const uint8_t *request, size_t count, const struct sockaddr_in *to) {
    static uint8_t pattern[datagram_size];
    uint64_t numbers[2];
    if (count != sizeof numbers) return;
    memcpy(numbers, request, count);
    if (numbers[1] > datagram_size) return;
    if (pattern[1] == 0) for (size_t i = 0; i < datagram_size; i++) pattern[i] = pattern_byte(i);
    for (uint64_t i = 0; i < numbers[0]; i++) reply(pattern, numbers[1], to);
}

static void handle(const uint8_t *bytes, size_t count, const struct sockaddr_in *from) {
    uint16_t port = ntohs(from->sin_port);
    if (context) {
        (input = bytes, input_count = count, source = from);
        handle_secure(port);
    } else if (server_mode == mode_udp_echo) {
        reply(bytes, count, from);
    } else if (server_mode == mode_udp_source) {
        send_burst(bytes, count, from);
    } else {
        totals[port]++;
        if (count > 0 && bytes[0] == 1) reply(&totals[port], sizeof *totals, from);
    }
}

int datagrams_listen(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    udp = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (udp < 0 || bind(udp, (struct sockaddr *)&address, size) != 0) fail("bind");
    getsockname(udp, (struct sockaddr *)&address, &size);
    return ntohs(address.sin_port);
}

_Noreturn void datagrams_run(void) {
    for (int i = 0; i < batch; i++) {
        in_pieces[i] = (struct iovec){.iov_base = in_bytes[i], .iov_len = datagram_size};
        incoming[i].msg_hdr = (struct msghdr){.msg_name = &in_addresses[i], .msg_iov = &in_pieces[i], .msg_iovlen = 1};
    }
    for (int i = 0; i < 2 * batch; i++) {
        out_pieces[i].iov_base = out_bytes[i];
        outgoing[i].msg_hdr = (struct msghdr){
            .msg_name = &out_addresses[i], .msg_namelen = sizeof out_addresses[i], .msg_iov = &out_pieces[i], .msg_iovlen = 1};
    }
    for (struct pollfd ready = {.fd = udp, .events = POLLIN};; poll(&ready, 1, -1)) {
        for (int i = 0; i < batch; i++) incoming[i].msg_hdr.msg_namelen = sizeof in_addresses[i];
        int count = recvmmsg(udp, incoming, batch, 0, NULL);
        for (int i = 0; i < count; i++) handle(in_bytes[i], incoming[i].msg_len, &in_addresses[i]);
        flush();
    }
}
