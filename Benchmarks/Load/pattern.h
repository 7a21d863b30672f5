// The bytes that are sent: what stands at a position depends on the position alone, so that whatever is lost, doubled or out of place is noticed.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { pattern_period = 251 };

// The byte at a position of a stream. Never '\n', so that a pattern can be a line.
static inline uint8_t pattern_byte(uint64_t position) {
    uint8_t value = (uint8_t)(position % pattern_period);
    return value == '\n' ? 251 : value;
}

// `count` bytes and one period more: any position of a stream begins at `position % pattern_period` in it.
uint8_t *pattern_make(size_t count);
