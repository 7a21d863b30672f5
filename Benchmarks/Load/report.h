// The line of JSON that a run prints.
#pragma once

#include "histogram.h"
#include "load.h"

void report_print(const Options *options, Sample begin, Sample end, const Histogram *histogram);
