#include "soak.h"

#include <string.h>

static const uint64_t step = 0x9e3779b97f4a7c15;

// SplitMix64, as in ../../Sources/soak/Pattern.swift.
uint64_t next_choice(uint64_t *state) {
    uint64_t mixed = *state += step;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
}

double random_fraction(uint64_t *state) {
    return (double)(next_choice(state) >> 11) / (double)(1ull << 53);
}

void fill_pattern(uint64_t seed, uint8_t *bytes, size_t count) {
    for (size_t done = 0; done < count; done += 8) {
        uint64_t word = next_choice(&seed);
        memcpy(bytes + done, &word, count - done < 8 ? count - done : 8);
    }
}

bool matches_pattern(uint64_t seed, const uint8_t *bytes, size_t count) {
    uint8_t expected[maximum_datagram];
    if (count > sizeof expected) return false;
    fill_pattern(seed, expected, count);
    return memcmp(bytes, expected, count) == 0;
}
