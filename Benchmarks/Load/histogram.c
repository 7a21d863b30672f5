#include "histogram.h"

// Each value below 256 has its own bucket. The bucket of a larger value is given by its top nine bits.
static unsigned bucket_of(uint64_t value) {
    if (value < (1u << histogram_bits)) return (unsigned)value;
    int shift = 63 - __builtin_clzll(value) - histogram_bits;
    return (unsigned)((shift + 1) << histogram_bits) + (unsigned)((value >> shift) & ((1u << histogram_bits) - 1));
}

static uint64_t middle_of(unsigned bucket) {
    if (bucket < (1u << histogram_bits)) return bucket;
    int shift = (int)(bucket >> histogram_bits) - 1;
    uint64_t low = ((uint64_t)(1u << histogram_bits) + (bucket & ((1u << histogram_bits) - 1))) << shift;
    return low + ((1ull << shift) >> 1);
}

void histogram_record(Histogram *histogram, uint64_t value) {
    histogram->count++;
    if (value > histogram->largest) histogram->largest = value;
    histogram->buckets[bucket_of(value)]++;
}

uint64_t histogram_value_at(const Histogram *histogram, double quantile) {
    uint64_t wanted = (uint64_t)(quantile * (double)histogram->count), seen = 0;
    for (unsigned bucket = 0; bucket < histogram_buckets; bucket++) {
        seen += histogram->buckets[bucket];
        if (seen > wanted) return middle_of(bucket);
    }
    return histogram->largest;
}
