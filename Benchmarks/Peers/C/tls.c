#include "server.h"

#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Buffer tls_input, tls_output;
static SSL_CTX *context;
static BIO *bio;

static int bio_read(BIO *of, char *bytes, size_t count, size_t *done) {
    BIO_clear_retry_flags(of);
    size_t available = tls_input.end - tls_input.begin;
    if (available == 0) return BIO_set_retry_read(of), 0;
    if (count > available) count = available;
    memcpy(bytes, tls_input.bytes + tls_input.begin, count);
    tls_input.begin += count;
    *done = count;
    return 1;
}

static int bio_write(BIO *of, const char *bytes, size_t count, size_t *done) {
    BIO_clear_retry_flags(of);
    buffer_append(&tls_output, bytes, count);
    *done = count;
    return 1;
}

static long bio_control(BIO *of, int command, long number, void *pointer) {
    (void)of, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static void require(bool is_true, const char *what) {
    if (is_true) return;
    fprintf(stderr, "server-c: %s\n", what);
    ERR_print_errors_fp(stderr);
    exit(1);
}

void tls_prepare(const char *certificate, const char *key, int tickets) {
    BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "loop");
    BIO_meth_set_read_ex(method, bio_read);
    BIO_meth_set_write_ex(method, bio_write);
    BIO_meth_set_ctrl(method, bio_control);
    bio = BIO_new(method);
    BIO_set_init(bio, 1);
    context = SSL_CTX_new(TLS_server_method());
    require(context && SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION), "the context");
    require(SSL_CTX_use_certificate_chain_file(context, certificate) == 1, "the certificate");
    require(SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) == 1, "the key");
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(context, (size_t)tickets);
    if (tickets == 0) SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
}

SSL *tls_make(void) {
    SSL *ssl = SSL_new(context);
    require(ssl, "SSL_new");
    BIO_up_ref(bio);
    BIO_up_ref(bio);
    SSL_set_bio(ssl, bio, bio);
    SSL_set_accept_state(ssl);
    return ssl;
}
