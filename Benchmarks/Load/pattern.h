// The bytes to send. Each byte depends only on its position, which reveals lost, doubled and misplaced bytes.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { pattern_period = 251 };

// The byte at a position of a stream. Never '\n', so that a pattern can be a line.
static inline uint8_t pattern_byte(uint64_t position) {
    uint8_t value = (uint8_t)(position % pattern_period);
    return value == '\n' ? 251 : value;
}

// `count` bytes and one more period: any position of a stream is at `position % pattern_period` in it.
uint8_t *pattern_make(size_t count);
