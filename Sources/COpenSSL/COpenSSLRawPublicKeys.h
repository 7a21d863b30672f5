#ifndef COPENSSL_RAW_PUBLIC_KEYS_H
#define COPENSSL_RAW_PUBLIC_KEYS_H

// Raw public keys (RFC 7250), supported since OpenSSL 3.2. The headers may be older than the loaded
// library, so the functions are looked up at run time. If they are missing, each call here fails.

#include "COpenSSLLookup.h"
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

// `TLSEXT_cert_type_x509` and `TLSEXT_cert_type_rpk`.
#define COPENSSL_CERTIFICATE_TYPE_X509 0
#define COPENSSL_CERTIFICATE_TYPE_RAW 2

// `X509_V_ERR_RPK_UNTRUSTED`, which becomes the alert certificate_unknown.
#define COPENSSL_UNTRUSTED_RAW_KEY 95

typedef int (*COpenSSL_SetCertificateTypes)(SSL_CTX *, const unsigned char *, size_t);
typedef int (*COpenSSL_SetConnectionCertificateTypes)(SSL *, const unsigned char *, size_t);
typedef int (*COpenSSL_CertificateType)(const SSL *);
typedef EVP_PKEY *(*COpenSSL_RawKeyInStore)(const X509_STORE_CTX *);

// Returns 1 if the loaded OpenSSL supports raw public keys.
static inline int COpenSSL_hasRawPublicKeys(void) {
    return COPENSSL_LOOKUP(SSL_CTX_set1_client_cert_type) && COPENSSL_LOOKUP(SSL_CTX_set1_server_cert_type) &&
           COPENSSL_LOOKUP(SSL_get_negotiated_server_cert_type) && COPENSSL_LOOKUP(X509_STORE_CTX_get0_rpk);
}

// Calls `SSL_CTX_set1_server_cert_type` or `SSL_CTX_set1_client_cert_type`: sets the certificate types that
// servers or clients may send, in order of preference.
static inline int COpenSSL_CTX_setCertificateTypes(SSL_CTX *context, int ofServers, const unsigned char *types, size_t count) {
    COpenSSL_SetCertificateTypes set = (COpenSSL_SetCertificateTypes)(
        ofServers ? COPENSSL_LOOKUP(SSL_CTX_set1_server_cert_type) : COPENSSL_LOOKUP(SSL_CTX_set1_client_cert_type));
    return set ? set(context, types, count) : 0;
}

// Calls `SSL_set1_server_cert_type`: sets the certificate types that a client accepts on one connection.
static inline int COpenSSL_setServerCertificateTypes(SSL *ssl, const unsigned char *types, size_t count) {
    COpenSSL_SetConnectionCertificateTypes set =
        (COpenSSL_SetConnectionCertificateTypes)COPENSSL_LOOKUP(SSL_set1_server_cert_type);
    return set ? set(ssl, types, count) : 0;
}

static inline int COpenSSL_serverShowsRawKey(const SSL *ssl) {
    COpenSSL_CertificateType type = (COpenSSL_CertificateType)COPENSSL_LOOKUP(SSL_get_negotiated_server_cert_type);
    return type && type(ssl) == COPENSSL_CERTIFICATE_TYPE_RAW;
}

// Returns the raw public key to be verified, or null if the peer sent a certificate.
static inline EVP_PKEY *COpenSSL_rawKey(const X509_STORE_CTX *store) {
    COpenSSL_RawKeyInStore key = (COpenSSL_RawKeyInStore)COPENSSL_LOOKUP(X509_STORE_CTX_get0_rpk);
    return key ? key(store) : NULL;
}

#endif
