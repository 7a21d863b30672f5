#include "pattern.h"

#include "load.h"

#include <stdlib.h>

uint8_t *pattern_make(size_t count) {
    uint8_t *bytes = malloc(count + pattern_period);
    if (!bytes) die("no memory for %zu bytes", count);
    for (size_t i = 0; i < count + pattern_period; i++) bytes[i] = pattern_byte(i);
    return bytes;
}
