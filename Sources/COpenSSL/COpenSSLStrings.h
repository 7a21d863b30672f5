#ifndef COPENSSL_STRINGS_H
#define COPENSSL_STRINGS_H

// ASN.1 strings, numbers and times. Their struct is public in the headers of OpenSSL 3, so that Swift imports
// typed pointers, and private in the headers of OpenSSL 4, so that Swift imports `OpaquePointer`. Swift code
// compiles with both if it names only these types and never the struct.

#include <openssl/asn1.h>
#include <openssl/pkcs12.h>
#include <openssl/x509v3.h>

typedef const ASN1_STRING *COpenSSL_String;
typedef const ASN1_TIME *COpenSSL_Time;
typedef ASN1_GENERALIZEDTIME *COpenSSL_MutableTime;

typedef struct {
    // `GEN_DNS`, `GEN_IPADD` etc.
    int type;
    // The contents of a DNS name, an email address, a URI or an IP address. Null and 0 for any other type.
    const unsigned char *bytes;
    size_t count;
} COpenSSL_GeneralName;

// The result points into `name`.
static inline COpenSSL_GeneralName COpenSSL_contentsOfGeneralName(const GENERAL_NAME *name) {
    COpenSSL_GeneralName contents = {-1, NULL, 0};
    const void *value = GENERAL_NAME_get0_value(name, &contents.type);
    int isString = contents.type == GEN_DNS || contents.type == GEN_EMAIL || contents.type == GEN_URI || contents.type == GEN_IPADD;
    if (!value || !isString) return contents;
    int length = ASN1_STRING_length((const ASN1_STRING *)value);
    contents.bytes = ASN1_STRING_get0_data((const ASN1_STRING *)value);
    contents.count = length > 0 ? (size_t)length : 0;
    return contents;
}

// Returns the rounds of key derivation for the MAC of a PKCS#12 file, or 1 if the file does not state them. The
// rounds of a PBMAC1 (RFC 9879) are in the parameters of its algorithm instead.
static inline long COpenSSL_roundsOfMAC(const PKCS12 *archive) {
    const ASN1_INTEGER *rounds = NULL;
    PKCS12_get0_mac(NULL, NULL, NULL, &rounds, archive);
    return rounds ? ASN1_INTEGER_get(rounds) : 1;
}

#endif
