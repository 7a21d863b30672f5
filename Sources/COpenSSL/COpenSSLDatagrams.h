#ifndef COPENSSL_DATAGRAMS_H
#define COPENSSL_DATAGRAMS_H

// Shims for DTLS macros that Swift cannot import.

#include <openssl/ssl.h>
#include <sys/time.h>

// Returns `SSL_OP_NO_QUERY_MTU`, which keeps OpenSSL from querying the BIO for the MTU.
static inline uint64_t COpenSSL_noMTUQueryOption(void) {
    return SSL_OP_NO_QUERY_MTU;
}

// Sets the maximum size of a handshake datagram in bytes. Returns 0 if the size is too small.
static inline long COpenSSL_setMTU(SSL *ssl, long size) {
    return SSL_set_mtu(ssl, size);
}

// Returns the time until the flight is retransmitted, in microseconds, or a negative value if no timer is
// running.
static inline long long COpenSSL_timeLeft(SSL *ssl) {
    struct timeval left = {0, 0};
    if (DTLSv1_get_timeout(ssl, &left) != 1) return -1;
    return (long long)left.tv_sec * 1000000 + left.tv_usec;
}

// Returns 1 if the flight was retransmitted, 0 if the timer has not expired, or -1 on failure.
static inline long COpenSSL_handleTimeout(SSL *ssl) {
    return DTLSv1_handle_timeout(ssl);
}

// `SSL_set_max_cert_list` returns the previous value.
static inline void COpenSSL_setMaximumChainBytesOfConnection(SSL *ssl, long count) {
    SSL_set_max_cert_list(ssl, count);
}

#endif
