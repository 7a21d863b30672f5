// A histogram of durations whose bucket width grows with the value: 256 buckets per power of two, so the
// error is at most 0.4 %.
#pragma once

#include <stdint.h>

enum { histogram_bits = 8, histogram_buckets = (64 - histogram_bits + 1) << histogram_bits };

typedef struct {
    uint64_t count, largest;
    uint64_t buckets[histogram_buckets];
} Histogram;

void histogram_record(Histogram *histogram, uint64_t value);
uint64_t histogram_value_at(const Histogram *histogram, double quantile);
