// The bytes to send. Each byte depends only on its position, so lost, duplicated and misplaced bytes are
// detected.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { pattern_period = 251 };

// The byte at a position in a stream. Never '\n', so that a pattern can be a line.
static inline uint8_t pattern_byte(uint64_t position) {
    uint8_t value = (uint8_t)(position % pattern_period);
    return value == '\n' ? 251 : value;
}

// `count` bytes plus one period, so that the bytes for any position in a stream start at `position %
// pattern_period`.
uint8_t *pattern_make(size_t count);
