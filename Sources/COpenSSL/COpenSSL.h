#ifndef COPENSSL_H
#define COPENSSL_H

// OpenSSL as Swift sees it, and `static inline` shims for the macros it cannot see. Nothing is compiled here.

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "COpenSSLCertificates.h"

#endif
