#ifndef COPENSSL_DATAGRAMS_H
#define COPENSSL_DATAGRAMS_H

// DTLS: macros that Swift cannot import.

#include <openssl/ssl.h>
#include <sys/time.h>

// Returns `SSL_OP_NO_QUERY_MTU`: OpenSSL does not ask the BIO for the size of datagrams.
static inline uint64_t COpenSSL_noMTUQueryOption(void) {
    return SSL_OP_NO_QUERY_MTU;
}

// Wraps `SSL_set_mtu`: the most bytes of a datagram of the handshake. 0: it is too small.
static inline long COpenSSL_setMTU(SSL *ssl, long size) {
    return SSL_set_mtu(ssl, size);
}

// Wraps `DTLSv1_get_timeout`: the microseconds until the flight is sent again; negative: no timer runs.
static inline long long COpenSSL_timeLeft(SSL *ssl) {
    struct timeval left = {0, 0};
    if (DTLSv1_get_timeout(ssl, &left) != 1) return -1;
    return (long long)left.tv_sec * 1000000 + left.tv_usec;
}

// Wraps `DTLSv1_handle_timeout`: 1: the flight was sent again; 0: it is not time yet; -1: a failure.
static inline long COpenSSL_handleTimeout(SSL *ssl) {
    return DTLSv1_handle_timeout(ssl);
}

// Wraps `SSL_set_max_cert_list`, which returns the previous value.
static inline void COpenSSL_setMaximumChainBytesOfConnection(SSL *ssl, long count) {
    SSL_set_max_cert_list(ssl, count);
}

#endif
