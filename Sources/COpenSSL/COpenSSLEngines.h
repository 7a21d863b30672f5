#ifndef COPENSSL_ENGINES_H
#define COPENSSL_ENGINES_H

// Engines, the older interface to keys in a token. OpenSSL 3 deprecates engines, but Debian 12 has only an
// engine for PKCS #11 and no provider. The functions are looked up, because some systems build OpenSSL
// without engines.

#include "COpenSSLLookup.h"
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/ui.h>

// The private key that an engine finds under `name`; null without the engine or the key.
static inline EVP_PKEY *COpenSSL_keyOfEngine(const char *identifier, const char *name, UI_METHOD *method, void *data) {
    void *(*find)(const char *) = (void *(*)(const char *))COPENSSL_LOOKUP(ENGINE_by_id);
    int (*start)(void *) = (int (*)(void *))COPENSSL_LOOKUP(ENGINE_init);
    EVP_PKEY *(*load)(void *, const char *, UI_METHOD *, void *) =
        (EVP_PKEY * (*)(void *, const char *, UI_METHOD *, void *)) COPENSSL_LOOKUP(ENGINE_load_private_key);
    int (*finish)(void *) = (int (*)(void *))COPENSSL_LOOKUP(ENGINE_finish);
    int (*release)(void *) = (int (*)(void *))COPENSSL_LOOKUP(ENGINE_free);
    if (!find || !start || !load || !finish || !release) return NULL;
    // ENGINE_load_dynamic().
    OPENSSL_init_crypto(OPENSSL_INIT_ENGINE_DYNAMIC, NULL);
    void *engine = find(identifier);
    if (!engine) return NULL;
    EVP_PKEY *key = NULL;
    if (start(engine)) {
        // The key has a reference of its own to the engine.
        key = load(engine, name, method, data);
        finish(engine);
    }
    release(engine);
    return key;
}

#endif
