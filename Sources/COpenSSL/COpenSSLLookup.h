#ifndef COPENSSL_LOOKUP_H
#define COPENSSL_LOOKUP_H

#include <dlfcn.h>

// glibc declares RTLD_DEFAULT only for programs with GNU extensions.
#ifndef RTLD_DEFAULT
#define RTLD_DEFAULT ((void *)0)
#endif

// Returns the function with this name in the loaded library, or null if the library lacks it.
#define COPENSSL_LOOKUP(name) dlsym(RTLD_DEFAULT, #name)

#endif
