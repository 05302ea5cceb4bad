/* The driver's own samples of a value: a ring of some seconds, calculated from the clock. */
#define _GNU_SOURCE
#include "scenario.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* A line has: room in the ring (it holds one less), microseconds between samples, type of the
 * value, the value, and optionally a recurring other value: `78000 pulse 300000 5 0.1` is
 * 300000 for 0.1 s in every 5 s. */
typedef struct Ring {
    unsigned int room;
    double period, value, pulse, every, length;
    int type;
} Ring;

static const char *const types[] = {"double", "uint", "ulong", "ull", "sll", "int", "ushort"};

static int parse(const char *text, Ring *ring) {
    char type[16];
    memset(ring, 0, sizeof *ring);
    int n = sscanf(text, "%u %lf %15s %lf pulse %lf %lf %lf", &ring->room, &ring->period, type,
                   &ring->value, &ring->pulse, &ring->every, &ring->length);
    for (ring->type = 0; n >= 4 && ring->type < 7; ring->type++)
        if (strcmp(type, types[ring->type]) == 0)
            return 1;
    return 0;
}

static long long down(double number) {
    long long whole = (long long)number;
    return (double)whole > number ? whole - 1 : whole;
}

static double value_at(const Ring *ring, double since_start) {
    if (ring->every <= 0)
        return ring->value;
    double into = since_start - ring->every * (double)down(since_start / ring->every);
    return into < ring->length ? ring->pulse : ring->value;
}

static void store(nvmlValue_t *out, int type, double value) {
    memset(out, 0, sizeof *out);
    switch (type) {
    case 0: out->dVal = value; break;
    case 1: out->uiVal = (unsigned int)value; break;
    case 2: out->ulVal = (unsigned long)value; break;
    case 3: out->ullVal = (u64)value; break;
    case 4: out->sllVal = (long long)value; break;
    case 5: out->siVal = (int)value; break;
    default: out->usVal = (unsigned short)value;
    }
}

/* The driver's timestamps are wall clock times. `sampling_shift` is a change of that clock, in us. */
long long fk_wall_offset_us(const Dev *dev) {
    static long long offset; /* read once: a sample keeps its timestamp */
    u64 shift = 0;
    if (offset == 0) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        offset = (long long)(((double)t.tv_sec + (double)t.tv_nsec / 1e9 - fk_clock()) * 1e6);
    }
    fk_u64(dev->values, "sampling_shift", &shift);
    return offset + (long long)shift;
}

/* Lock held. Returns only samples that the ring still holds, the oldest first. */
static unsigned int collect(const Dev *dev, const Ring *ring, u64 since, nvmlSample_t *out,
                            unsigned int room) {
    unsigned int n = 0;
    double step = ring->period / 1e6, began = fk_now->t0;
    u64 began_at = 0;
    long long offset = fk_wall_offset_us(dev);
    long long newest = down((fk_clock() - began) / step);
    long long oldest = newest - (long long)ring->room + 2, first = oldest;
    /* In ms after t0. Without it the driver has always sampled. */
    if (fk_u64(dev->values, "sampling_began", &began_at) == NVML_SUCCESS)
        first = -down(-(double)began_at / 1e3 / step);
    for (long long k = oldest > first ? oldest : first; k <= newest; k++) {
        u64 stamp = (u64)((long long)((began + (double)k * step) * 1e6) + offset);
        if (stamp <= since)
            continue;
        if (out != NULL && n < room) {
            out[n].timeStamp = stamp;
            store(&out[n].sampleValue, ring->type, value_at(ring, (double)k * step));
        }
        n++;
    }
    return n;
}

nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type,
                                  unsigned long long since, nvmlValueType_t *value_type,
                                  unsigned int *count, nvmlSample_t *out) {
    char key[16];
    Ring ring;
    ENTER_DEV(device);
    NEED(count);
    NEED(value_type);
    if (type >= NVML_SAMPLINGTYPE_COUNT || (out != NULL && *count == 0))
        return fk_leave(NVML_ERROR_INVALID_ARGUMENT);
    snprintf(key, sizeof key, "%u", (unsigned int)type);
    const char *text = fk_text(dev->sampled, key);
    if (text == NULL || dev->parent != NULL)
        return fk_leave(NVML_ERROR_NOT_SUPPORTED);
    if (!parse(text, &ring)) {
        fprintf(stderr, "fakenvml: cannot read these samples: %s\n", text);
        return fk_leave(NVML_ERROR_UNKNOWN);
    }
    *value_type = (nvmlValueType_t)ring.type;
    if (out == NULL) {
        *count = ring.room;
        return fk_leave(NVML_SUCCESS);
    }
    unsigned int n = ring.period > 0 ? collect(dev, &ring, since, out, *count) : 0;
    if (n == 0)
        return fk_leave(NVML_ERROR_NOT_FOUND);
    if (n > *count)
        return fk_leave(NVML_ERROR_INSUFFICIENT_SIZE);
    *count = n;
    return fk_leave(NVML_SUCCESS);
}
