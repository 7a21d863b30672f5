#ifndef COPENSSL_ENGINES_H
#define COPENSSL_ENGINES_H

// The old way to keys that stay in a token: OpenSSL 3 marks engines as deprecated, and Debian 12 has no provider
// for PKCS #11, but an engine.

#include <openssl/evp.h>
#include <openssl/ui.h>
#ifndef OPENSSL_NO_ENGINE
#include <openssl/engine.h>
#endif

// The private key that an engine finds under `name`; null without the engine or the key.
static inline EVP_PKEY *COpenSSL_keyOfEngine(const char *identifier, const char *name, UI_METHOD *method, void *data) {
#ifdef OPENSSL_NO_ENGINE
    return NULL;
#else
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    ENGINE_load_dynamic();
    ENGINE *engine = ENGINE_by_id(identifier);
    if (!engine) return NULL;
    EVP_PKEY *key = NULL;
    if (ENGINE_init(engine)) {
        // The key has a reference of its own to the engine.
        key = ENGINE_load_private_key(engine, name, method, data);
        ENGINE_finish(engine);
    }
    ENGINE_free(engine);
    return key;
#pragma GCC diagnostic pop
#endif
}

#endif
