#ifndef COPENSSL_CERTIFICATES_H
#define COPENSSL_CERTIFICATES_H

// Shims for creating keys and certificates, used only by the test authority.

#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>

static inline EVP_PKEY *COpenSSL_EVP_EC_generate(const char *curve) {
    return EVP_EC_gen(curve);
}

static inline EVP_PKEY *COpenSSL_EVP_RSA_generate(unsigned int bits) {
    return EVP_RSA_gen(bits);
}

static inline int COpenSSL_keyPairSelection(void) {
    return EVP_PKEY_KEYPAIR;
}

// Adds the numbers of an RSA key under their parameter names. The builder keeps pointers to the names.
static inline int COpenSSL_pushRSANumbers(OSSL_PARAM_BLD *builder, const BIGNUM *modulus, const BIGNUM *exponent, const BIGNUM *secret) {
    return OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_N, modulus) &&
           OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_E, exponent) &&
           OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_D, secret);
}

// Creates a DNS name, an email address or an IP address. Returns null if OpenSSL is out of memory.
static inline GENERAL_NAME *COpenSSL_newGeneralName(int type, const void *bytes, int count) {
    GENERAL_NAME *name = GENERAL_NAME_new();
    ASN1_STRING *value = ASN1_STRING_type_new(type == GEN_IPADD ? V_ASN1_OCTET_STRING : V_ASN1_IA5STRING);
    if (name && value && ASN1_STRING_set(value, bytes, count) == 1) {
        GENERAL_NAME_set0_value(name, type, value);
        return name;
    }
    ASN1_STRING_free(value);
    GENERAL_NAME_free(name);
    return NULL;
}

// The stack takes ownership of the name unless the result is 0.
static inline int COpenSSL_sk_GENERAL_NAME_push(GENERAL_NAMES *names, GENERAL_NAME *name) {
    return sk_GENERAL_NAME_push(names, name);
}

// Adds the alternative names to a signing request. Returns 1 on success.
static inline int COpenSSL_addAlternativeNames(X509_REQ *request, GENERAL_NAMES *names) {
    STACK_OF(X509_EXTENSION) *extensions = NULL;
    int isAdded = X509V3_add1_i2d(&extensions, NID_subject_alt_name, names, 0, X509V3_ADD_DEFAULT) == 1 &&
                  X509_REQ_add_extensions(request, extensions) == 1;
    sk_X509_EXTENSION_pop_free(extensions, X509_EXTENSION_free);
    return isAdded;
}

static inline void COpenSSL_freeExtensions(STACK_OF(X509_EXTENSION) *extensions) {
    sk_X509_EXTENSION_pop_free(extensions, X509_EXTENSION_free);
}

// Frees the stack and its certificates.
static inline void COpenSSL_sk_X509_pop_free(STACK_OF(X509) *certificates) {
    sk_X509_pop_free(certificates, X509_free);
}

#endif
