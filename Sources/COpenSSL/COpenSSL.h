#ifndef COPENSSL_H
#define COPENSSL_H

// Imports OpenSSL into Swift, with `static inline` shims for macros that Swift cannot import. This target
// has no source files to compile.

#include <openssl/bio.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ocsp.h>
#include <openssl/params.h>
#include <openssl/pem.h>
#include <openssl/pkcs12.h>
#include <openssl/provider.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/store.h>
#include <openssl/ui.h>
#include <openssl/x509v3.h>

#include "COpenSSLCertificates.h"
#include "COpenSSLDatagrams.h"
#include "COpenSSLEngines.h"
#include "COpenSSLLookup.h"
#include "COpenSSLRawPublicKeys.h"
#include "COpenSSLStrings.h"

// The loaded library may be newer than these headers and determines what a call does: OpenSSL 3.0 to 3.6
// share the name libssl.so.3. (4.0 is called libssl.so.4.) So no code here depends on the version of the
// headers. Functions that 3.0 lacks are looked up at run time, and options that 3.0 lacks are set by number.

// Makes OpenSSL keep its memory during exit(3), unless OpenSSL was already initialized. By default, exit(3)
// frees OpenSSL's tables and locks, although other threads may still be freeing their connections.
static inline int COpenSSL_keepMemoryAtExit(void) {
    return OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
}

static inline int COpenSSL_CTX_setMinimumVersion(SSL_CTX *context, int version) {
    return (int)SSL_CTX_set_min_proto_version(context, version);
}

// A `version` of 0 means the newest version.
static inline int COpenSSL_CTX_setMaximumVersion(SSL_CTX *context, int version) {
    return (int)SSL_CTX_set_max_proto_version(context, version);
}

static inline int COpenSSL_setMinimumVersion(SSL *ssl, int version) {
    return (int)SSL_set_min_proto_version(ssl, version);
}

static inline void COpenSSL_CTX_setMode(SSL_CTX *context, long mode) {
    SSL_CTX_set_mode(context, mode);
}

// Returns the `SSL_OP_*` options for every context: no renegotiation, no compression, records that are
// compatible with old middleboxes, and the server's cipher suite order, except that ChaCha20 is first for
// clients that prefer it.
static inline uint64_t COpenSSL_commonOptions(void) {
    return SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_ENABLE_MIDDLEBOX_COMPAT |
           SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA;
}

// Returns the options among `COpenSSL_commonOptions` that select the server's cipher suite order.
static inline uint64_t COpenSSL_serverPreferenceOptions(void) {
    return SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA;
}

static inline int COpenSSL_sk_SSL_CIPHER_count(const STACK_OF(SSL_CIPHER) *list) {
    return list ? sk_SSL_CIPHER_num(list) : 0;
}

static inline const SSL_CIPHER *COpenSSL_sk_SSL_CIPHER(const STACK_OF(SSL_CIPHER) *list, int index) {
    return sk_SSL_CIPHER_value(list, index);
}

static inline uint64_t COpenSSL_noTicketOption(void) {
    return SSL_OP_NO_TICKET;
}

// Returns `SSL_OP_NO_ANTI_REPLAY`, so that a callback is responsible for the replay protection of early data.
static inline uint64_t COpenSSL_noAntiReplayOption(void) {
    return SSL_OP_NO_ANTI_REPLAY;
}

// For tests with peers that do not support the extended master secret.
static inline uint64_t COpenSSL_noExtendedMasterSecretOption(void) {
    return SSL_OP_NO_EXTENDED_MASTER_SECRET;
}

// Sets the `OSSL_PARAM`s of HMAC-SHA256, which contain pointers to their names and to the name of the digest.
static inline int COpenSSL_setHMACSHA256Key(EVP_MAC_CTX *context, const void *key, size_t count) {
    OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, (void *)key, count),
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char *)"SHA256", 0),
        OSSL_PARAM_construct_end(),
    };
    return EVP_MAC_CTX_set_params(context, parameters);
}

// Returns `SSL_OP_NO_TX_CERTIFICATE_COMPRESSION | SSL_OP_NO_RX_CERTIFICATE_COMPRESSION` (bits 32 and 33),
// which older headers do not define. Returns 0 if the loaded library is older than 3.2, which added
// certificate compression.
static inline uint64_t COpenSSL_noCertificateCompressionOptions(void) {
    return OpenSSL_version_num() >= 0x30200000L ? UINT64_C(3) << 32 : 0;
}

static inline int COpenSSL_CTX_setGroups(SSL_CTX *context, const char *groups) {
    return (int)SSL_CTX_set1_groups_list(context, groups);
}

// Sets the signature algorithms that are accepted from the peer and used for this side's own signature.
static inline int COpenSSL_CTX_setSignatureAlgorithms(SSL_CTX *context, const char *algorithms) {
    return (int)SSL_CTX_set1_sigalgs_list(context, algorithms);
}

// Sets the signature algorithms that are accepted from clients with a certificate.
static inline int COpenSSL_CTX_setClientSignatureAlgorithms(SSL_CTX *context, const char *algorithms) {
    return (int)SSL_CTX_set1_client_sigalgs_list(context, algorithms);
}

// `SSL_CTX_set_max_cert_list` returns the previous value.
static inline void COpenSSL_CTX_setMaximumChainBytes(SSL_CTX *context, long count) {
    SSL_CTX_set_max_cert_list(context, count);
}

static inline void COpenSSL_CTX_disableSessionCache(SSL_CTX *context) {
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
}

static inline int COpenSSL_acknowledgeServerName(SSL *ssl, int *alert, void *argument) {
    (void)alert, (void)argument;
    return SSL_session_reused(ssl) ? SSL_TLSEXT_ERR_NOACK : SSL_TLSEXT_ERR_OK;
}

// Makes a server confirm to clients that it used the requested server name, except when it resumes a
// session (RFC 6066, section 3).
static inline void COpenSSL_CTX_acknowledgeServerName(SSL_CTX *context) {
    SSL_CTX_set_tlsext_servername_callback(context, COpenSSL_acknowledgeServerName);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

// The time is in seconds since 1970. OpenSSL 3.4 deprecates the function because `long` has 32 bits on some
// systems.
static inline void COpenSSL_setSessionTime(SSL_SESSION *session, int64_t seconds) {
    SSL_SESSION_set_time(session, (long)seconds);
}

// The time is in seconds since 1970. OpenSSL 3.4 deprecates this function too.
static inline int64_t COpenSSL_sessionTime(const SSL_SESSION *session) {
    return SSL_SESSION_get_time(session);
}

#pragma GCC diagnostic pop

// Makes a server assign session IDs to sessions without a ticket, without OpenSSL caching the sessions.
static inline void COpenSSL_CTX_keepSessionIdentifiers(SSL_CTX *context) {
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_SERVER | SSL_SESS_CACHE_NO_INTERNAL);
}

typedef void COpenSSL_MessageCallback(int, int, int, const void *, size_t, SSL *, void *);

static inline void COpenSSL_passMessage(
    int isOurs, int version, int contentType, const void *bytes, size_t count, SSL *ssl, void *callback) {
    if (contentType != SSL3_RT_HANDSHAKE && version != SSL2_VERSION) return;
    ((COpenSSL_MessageCallback *)callback)(isOurs, version, contentType, bytes, count, ssl, NULL);
}

// Calls `callback` for each handshake message and for an SSL 2.0 ClientHello. OpenSSL also reports the
// header and type of each record, which `COpenSSL_passMessage` filters out.
static inline void COpenSSL_CTX_setMessageCallback(SSL_CTX *context, COpenSSL_MessageCallback *callback) {
    SSL_CTX_set_msg_callback(context, COpenSSL_passMessage);
    SSL_CTX_set_msg_callback_arg(context, (void *)callback);
}

// Reports a client's sessions to the callback of `SSL_CTX_sess_set_new_cb`, without OpenSSL caching them.
static inline void COpenSSL_CTX_reportClientSessions(SSL_CTX *context) {
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
}

static inline int COpenSSL_CTX_addChainCertificate(SSL_CTX *context, X509 *certificate) {
    return (int)SSL_CTX_add1_chain_cert(context, certificate);
}

// Makes clients request the certificate status (OCSP).
static inline int COpenSSL_CTX_requestStatus(SSL_CTX *context) {
    return (int)SSL_CTX_set_tlsext_status_type(context, TLSEXT_STATUSTYPE_ocsp);
}

static inline int COpenSSL_CTX_setStatusCallback(SSL_CTX *context, int (*callback)(SSL *, void *)) {
    return (int)SSL_CTX_set_tlsext_status_cb(context, callback);
}

static inline int COpenSSL_CTX_setStatusArgument(SSL_CTX *context, void *argument) {
    return (int)SSL_CTX_set_tlsext_status_arg(context, argument);
}

// Returns the length of the OCSP response, or -1 if the peer sent no response.
static inline long COpenSSL_statusResponse(SSL *ssl, const unsigned char **response) {
    return SSL_get_tlsext_status_ocsp_resp(ssl, response);
}

// Passes a copy of the response to `SSL_set_tlsext_status_ocsp_resp`, which takes ownership.
static inline int COpenSSL_setStatusResponse(SSL *ssl, const unsigned char *response, long count) {
    unsigned char *copy = (unsigned char *)OPENSSL_memdup(response, (size_t)count);
    if (copy && SSL_set_tlsext_status_ocsp_resp(ssl, copy, count)) return 1;
    OPENSSL_free(copy);
    return 0;
}

static inline int COpenSSL_acceptHost(const char *name, size_t count) {
    (void)name;
    return count > 0;
}

// Replaces 4.0's validation of host names, which rejects one-character names and labels that start or end with
// hyphens. The caller validates them.
static inline void COpenSSL_acceptHosts(X509_VERIFY_PARAM *parameters) {
    void (*validate)(X509_VERIFY_PARAM *, int (*)(const char *, size_t)) =
        (void (*)(X509_VERIFY_PARAM *, int (*)(const char *, size_t)))COPENSSL_LOOKUP(X509_VERIFY_PARAM_set1_host_input_validation);
    if (validate) validate(parameters, COpenSSL_acceptHost);
}

// Sets the host name that the peer's certificate must contain.
static inline int COpenSSL_setHost(X509_VERIFY_PARAM *parameters, const char *name, size_t count) {
    COpenSSL_acceptHosts(parameters);
    return X509_VERIFY_PARAM_set1_host(parameters, name, count);
}

// Adds a host name that the peer's certificate may contain instead.
static inline int COpenSSL_addHost(X509_VERIFY_PARAM *parameters, const char *name, size_t count) {
    COpenSSL_acceptHosts(parameters);
    return X509_VERIFY_PARAM_add1_host(parameters, name, count);
}

static inline int COpenSSL_setServerNameIndication(SSL *ssl, const char *name) {
    return (int)SSL_set_tlsext_host_name(ssl, name);
}

static inline int COpenSSL_noMemoryReason(void) {
    return ERR_R_MALLOC_FAILURE;
}

static inline int COpenSSL_unsupportedReason(void) {
    return ERR_R_UNSUPPORTED;
}

// Allowed only in a client's verify callback, which must then return 1.
static inline int COpenSSL_setRetryVerify(SSL *ssl) {
    return (int)SSL_set_retry_verify(ssl);
}

// A TLSA record with the usage DANE-EE needs no name (RFC 7671, section 5.1).
static inline unsigned long COpenSSL_withoutNameChecks(void) {
    return DANE_FLAG_NO_DANE_EE_NAMECHECKS;
}

static inline int COpenSSL_negotiatedGroup(SSL *ssl) {
    return (int)SSL_get_negotiated_group(ssl);
}

// Returns 1 if the connection uses the extended master secret (RFC 7627).
static inline int COpenSSL_hasExtendedMasterSecret(SSL *ssl) {
    return (int)SSL_get_extms_support(ssl);
}

// Returns the NID of the digest in the peer's signature, or 0 if the peer did not sign.
static inline int COpenSSL_peerSignatureDigest(SSL *ssl) {
    int digest = NID_undef;
    return SSL_get_peer_signature_nid(ssl, &digest) == 1 ? digest : NID_undef;
}

static inline int COpenSSL_CTX_newIndex(void) {
    return SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, NULL);
}

static inline void COpenSSL_BIO_clearRetryFlags(BIO *bio) {
    BIO_clear_retry_flags(bio);
}

static inline void COpenSSL_BIO_setRetryRead(BIO *bio) {
    BIO_set_retry_read(bio);
}

static inline void COpenSSL_BIO_setRetryWrite(BIO *bio) {
    BIO_set_retry_write(bio);
}

static inline long COpenSSL_BIO_memoryData(BIO *bio, char **data) {
    return BIO_get_mem_data(bio, data);
}

static inline void COpenSSL_free(void *memory) {
    OPENSSL_free(memory);
}

// Returns 0 for a null stack.
static inline int COpenSSL_sk_X509_num(const STACK_OF(X509) *stack) {
    return stack ? sk_X509_num(stack) : 0;
}

static inline X509 *COpenSSL_sk_X509_value(const STACK_OF(X509) *stack, int index) {
    return sk_X509_value(stack, index);
}

static inline STACK_OF(X509) *COpenSSL_sk_X509_new(void) {
    return sk_X509_new_null();
}

// The stack takes ownership of the certificate unless the result is 0.
static inline int COpenSSL_sk_X509_push(STACK_OF(X509) *stack, X509 *certificate) {
    return sk_X509_push(stack, certificate);
}

// Frees the stack and the certificates in it.
static inline void COpenSSL_sk_X509_free(STACK_OF(X509) *stack) {
    sk_X509_pop_free(stack, X509_free);
}

// Returns 0 for a null stack.
static inline int COpenSSL_sk_PKCS7_num(const STACK_OF(PKCS7) *stack) {
    return stack ? sk_PKCS7_num(stack) : 0;
}

static inline PKCS7 *COpenSSL_sk_PKCS7_value(const STACK_OF(PKCS7) *stack, int index) {
    return sk_PKCS7_value(stack, index);
}

// Frees the stack and its contents.
static inline void COpenSSL_sk_PKCS7_free(STACK_OF(PKCS7) *stack) {
    sk_PKCS7_pop_free(stack, PKCS7_free);
}

// Returns 0 for a null stack.
static inline int COpenSSL_sk_PKCS12_SAFEBAG_num(const STACK_OF(PKCS12_SAFEBAG) *stack) {
    return stack ? sk_PKCS12_SAFEBAG_num(stack) : 0;
}

static inline PKCS12_SAFEBAG *COpenSSL_sk_PKCS12_SAFEBAG_value(const STACK_OF(PKCS12_SAFEBAG) *stack, int index) {
    return sk_PKCS12_SAFEBAG_value(stack, index);
}

// Frees the stack and the bags in it.
static inline void COpenSSL_sk_PKCS12_SAFEBAG_free(STACK_OF(PKCS12_SAFEBAG) *stack) {
    sk_PKCS12_SAFEBAG_pop_free(stack, PKCS12_SAFEBAG_free);
}

// Stores the nextUpdate time of the issuer's latest CRL in `end`, in seconds since 1970. Returns 0 if the
// issuer has no CRL or its latest CRL has no nextUpdate time.
static inline int COpenSSL_endOfLatestList(X509_STORE_CTX *store, const X509_NAME *issuer, long *end) {
    STACK_OF(X509_CRL) *lists = X509_STORE_CTX_get1_crls(store, issuer);
    const X509_CRL *latest = NULL;
    for (int i = 0; i < sk_X509_CRL_num(lists); i++) {
        const X509_CRL *list = sk_X509_CRL_value(lists, i);
        if (!latest || ASN1_TIME_compare(X509_CRL_get0_lastUpdate(list), X509_CRL_get0_lastUpdate(latest)) > 0) latest = list;
    }
    struct tm time;
    int found = latest && X509_CRL_get0_nextUpdate(latest) && ASN1_TIME_to_tm(X509_CRL_get0_nextUpdate(latest), &time);
    if (found) *end = (long)timegm(&time);
    sk_X509_CRL_pop_free(lists, X509_CRL_free);
    return found;
}

static inline STACK_OF(X509_NAME) *COpenSSL_sk_X509_NAME_new(void) {
    return sk_X509_NAME_new_null();
}

static inline int COpenSSL_sk_X509_NAME_push(STACK_OF(X509_NAME) *stack, X509_NAME *name) {
    return sk_X509_NAME_push(stack, name);
}

// Returns 0 for a null stack.
static inline int COpenSSL_sk_X509_NAME_num(const STACK_OF(X509_NAME) *stack) {
    return stack ? sk_X509_NAME_num(stack) : 0;
}

static inline X509_NAME *COpenSSL_sk_X509_NAME_value(const STACK_OF(X509_NAME) *stack, int index) {
    return sk_X509_NAME_value(stack, index);
}

// Frees the stack and the names in it.
static inline void COpenSSL_sk_X509_NAME_free(STACK_OF(X509_NAME) *stack) {
    sk_X509_NAME_pop_free(stack, X509_NAME_free);
}

static inline int COpenSSL_sk_GENERAL_NAME_num(const GENERAL_NAMES *names) {
    return sk_GENERAL_NAME_num(names);
}

static inline GENERAL_NAME *COpenSSL_sk_GENERAL_NAME_value(const GENERAL_NAMES *names, int index) {
    return sk_GENERAL_NAME_value(names, index);
}

// Returns 0 for a null stack.
static inline int COpenSSL_sk_GENERAL_SUBTREE_num(const STACK_OF(GENERAL_SUBTREE) *stack) {
    return stack ? sk_GENERAL_SUBTREE_num(stack) : 0;
}

static inline GENERAL_SUBTREE *COpenSSL_sk_GENERAL_SUBTREE_value(const STACK_OF(GENERAL_SUBTREE) *stack, int index) {
    return sk_GENERAL_SUBTREE_value(stack, index);
}

// Prints a name in the form of RFC 4514, with readable UTF-8.
static inline int COpenSSL_printName(BIO *bio, const X509_NAME *name) {
    return X509_NAME_print_ex(bio, name, 0, XN_FLAG_RFC2253 & ~ASN1_STRFLGS_ESC_MSB);
}

typedef int (*COpenSSL_SecurityCallback)(const SSL *, const SSL_CTX *, int, int, int, void *, void *);

// Accepts TLS_PSK_WITH_AES_128_CCM_8 and TLS_PSK_WITH_AES_128_GCM_SHA256 at security level 2, and lets
// OpenSSL make all other decisions.
static inline int COpenSSL_acceptConstrainedSuites(
    const SSL *ssl, const SSL_CTX *context, int operation, int bits, int nid, void *other, void *standard) {
    int level = ssl ? SSL_get_security_level(ssl) : SSL_CTX_get_security_level(context);
    if ((operation & SSL_SECOP_OTHER_TYPE) == SSL_SECOP_OTHER_CIPHER && other && level <= 2) {
        uint32_t suite = SSL_CIPHER_get_id((const SSL_CIPHER *)other) & 0xFFFF;
        if (suite == 0xC0A8 || suite == 0x00A8) return 1;
    }
    return ((COpenSSL_SecurityCallback)standard)(ssl, context, operation, bits, nid, other, NULL);
}

static inline void COpenSSL_CTX_allowConstrainedSuites(SSL_CTX *context) {
    SSL_CTX_set0_security_ex_data(context, (void *)SSL_CTX_get_security_callback(context));
    SSL_CTX_set_security_callback(context, COpenSSL_acceptConstrainedSuites);
}

static inline long COpenSSL_engineModes(void) {
    return SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_NO_AUTO_CHAIN;
}

#endif
