/* Process utilization: the driver's own samples of each process since a given time. */
#define _GNU_SOURCE
#include "scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PERIOD 0.2 /* seconds between the driver's samples */
#define HELD 70    /* samples that it keeps */

/* A line has: percent, start and end in seconds after t0, and optionally period and length of the
 * busy intervals within that time: `30 1 1e9 0.5 0.1` starts after a second and is busy for 0.1 s
 * in every 0.5 s. */
typedef struct Work {
    double percent, from, until, every, length;
} Work;

static int parse(const char *text, Work *work) {
    memset(work, 0, sizeof *work);
    work->until = 1e18;
    return sscanf(text, "%lf %lf %lf %lf %lf", &work->percent, &work->from, &work->until,
                  &work->every, &work->length) >= 1;
}

static double floor_of(double number) {
    double whole = (double)(long long)number;
    return whole > number ? whole - 1 : whole;
}

/* For how long the process was busy until a time. */
static double worked(const Work *work, double at) {
    double until = at < work->until ? at : work->until, passed = until - work->from;
    if (passed <= 0)
        return 0;
    if (work->every <= 0)
        return passed;
    double turns = floor_of(passed / work->every), rest = passed - turns * work->every;
    return turns * work->length + (rest < work->length ? rest : work->length);
}

/* The value of sample number k in percent: the mean over the period before it. */
static double sampled(const Work *work, long long k) {
    double at = (double)k * PERIOD;
    return work->percent * (worked(work, at) - worked(work, at - PERIOD)) / PERIOD;
}

/* One entry for a process that a sample since then found busy: its mean until the last of these
 * samples, and the time of that sample. */
static int entry(const Work *work, long long first, long long newest, long long offset,
                 nvmlProcessUtilizationSample_t *out) {
    double sum = 0, upto = 0;
    long long last = 0;
    for (long long k = first; k <= newest; k++) {
        double percent = sampled(work, k);
        sum += percent;
        if (percent > 1e-6) {
            last = k;
            upto = sum;
        }
    }
    if (upto == 0)
        return 0;
    out->smUtil = (unsigned int)(upto / (double)(last - first + 1) + 0.5);
    out->timeStamp = (u64)((long long)((fk_now->t0 + (double)last * PERIOD) * 1e6) + offset);
    return 1;
}

static unsigned int played(const Dev *dev, u64 since, nvmlProcessUtilizationSample_t *out,
                           unsigned int room, unsigned int n) {
    long long offset = fk_wall_offset_us(dev);
    long long newest = (long long)floor_of((fk_clock() - fk_now->t0) / PERIOD);
    long long first = newest - HELD + 1;
    double seen = ((double)((long long)since - offset) / 1e6 - fk_now->t0) / PERIOD;
    /* A timestamp is truncated to a microsecond: a sample that was read is not returned again. */
    if (since != 0 && (long long)floor_of(seen + 1e-4) + 1 > first)
        first = (long long)floor_of(seen + 1e-4) + 1;
    for (const Kv *kv = dev->loads; kv != NULL; kv = kv->next) {
        nvmlProcessUtilizationSample_t made = {0};
        Work work;
        if (!parse(kv->text, &work)) {
            fprintf(stderr, "fakenvml: cannot read this load: %s\n", kv->text);
            abort();
        }
        made.pid = (unsigned int)strtoul(kv->key, NULL, 0);
        if (!entry(&work, first, newest, offset, &made))
            continue;
        if (out != NULL && n < room)
            out[n] = made;
        n++;
    }
    return n;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t *out,
                                             unsigned int *count, unsigned long long since) {
    unsigned int n = 0, room;
    ENTER_DEV(device);
    NEED(count);
    if (dev->parent != NULL || fk_mig_is_on(dev))
        return fk_leave(NVML_ERROR_NOT_SUPPORTED);
    room = *count;
    for (const Sample *s = dev->samples; s != NULL; s = s->next) {
        if (s->sample.timeStamp <= since && since != 0)
            continue;
        if (out != NULL && n < room)
            out[n] = s->sample;
        n++;
    }
    n = played(dev, since, out, room, n);
    if (n == 0)
        return fk_leave(NVML_ERROR_NOT_FOUND);
    *count = n;
    return fk_leave(out == NULL || n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}
