#include "report.h"

#include <stdio.h>

void report_print(const Options *options, Sample begin, Sample end, const Histogram *histogram) {
    if (end.operations == begin.operations) die("no operation completed during the measurement");
    printf("{\"mode\":\"%s\",\"operations\":%llu,\"bytes\":%llu,\"elapsed\":%llu,\"serverCPU\":%llu,\"clientCPU\":%llu", options->mode,
           (unsigned long long)(end.operations - begin.operations), (unsigned long long)(end.bytes - begin.bytes),
           (unsigned long long)(end.time - begin.time), (unsigned long long)(end.server_cpu - begin.server_cpu),
           (unsigned long long)(end.client_cpu - begin.client_cpu));
    if (histogram && histogram->count > 0) {
        static const struct { const char *name; double quantile; } quantiles[] = {
            {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}};
        for (int i = 0; i < 4; i++)
            printf(",\"%s\":%llu", quantiles[i].name, (unsigned long long)histogram_value_at(histogram, quantiles[i].quantile));
        printf(",\"longest\":%llu,\"samples\":%llu", (unsigned long long)histogram->largest, (unsigned long long)histogram->count);
    }
    printf("}\n");
    fflush(stdout);
}
