#ifndef COPENSSL_ENGINES_H
#define COPENSSL_ENGINES_H

// Engines are the older interface to keys in a token. OpenSSL 3 deprecates engines, but Debian 12 supports
// PKCS #11 only through an engine and does not package a provider. The functions are looked up at run time,
// because some systems build OpenSSL without engines, and OpenSSL 4.0 removed them.

#include "COpenSSLLookup.h"
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/ui.h>

// Returns the private key that an engine finds under `name`, or null if the engine or the key does not exist.
static inline EVP_PKEY *COpenSSL_keyOfEngine(const char *identifier, const char *name, UI_METHOD *method, void *data) {
    // The process may also contain OpenSSL 3. Its engines return keys that OpenSSL 4 cannot use.
    if (OpenSSL_version_num() >= 0x40000000L) return NULL;
    void *(*find)(const char *) = (void *(*)(const char *))COPENSSL_LOOKUP(ENGINE_by_id);
    int (*start)(void *) = (int (*)(void *))COPENSSL_LOOKUP(ENGINE_init);
    EVP_PKEY *(*load)(void *, const char *, UI_METHOD *, void *) =
        (EVP_PKEY * (*)(void *, const char *, UI_METHOD *, void *)) COPENSSL_LOOKUP(ENGINE_load_private_key);
    int (*finish)(void *) = (int (*)(void *))COPENSSL_LOOKUP(ENGINE_finish);
    int (*release)(void *) = (int (*)(void *))COPENSSL_LOOKUP(ENGINE_free);
    if (!find || !start || !load || !finish || !release) return NULL;
    // `OPENSSL_INIT_ENGINE_DYNAMIC`, which the headers of 4.0 lack. Equivalent to ENGINE_load_dynamic().
    OPENSSL_init_crypto(UINT64_C(0x400), NULL);
    void *engine = find(identifier);
    if (!engine) return NULL;
    EVP_PKEY *key = NULL;
    if (start(engine)) {
        // The key keeps its own reference to the engine.
        key = load(engine, name, method, data);
        finish(engine);
    }
    release(engine);
    return key;
}

#endif
