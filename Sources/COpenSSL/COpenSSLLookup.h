#ifndef COPENSSL_LOOKUP_H
#define COPENSSL_LOOKUP_H

#include <dlfcn.h>

// glibc declares RTLD_DEFAULT only for programs with GNU extensions.
#ifndef RTLD_DEFAULT
#define RTLD_DEFAULT ((void *)0)
#endif

// The function of this name in the library that is loaded; null if the library lacks it.
#define COPENSSL_LOOKUP(name) dlsym(RTLD_DEFAULT, #name)

#endif
