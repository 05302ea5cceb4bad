/* GPU performance monitoring: the average of each metric between the times of two samples. */
#include "scenario.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_SAMPLES 65536
#define NARROWEST 0.1 /* seconds; samples that are closer have no metrics */

/* A place is never reused, so that the use of a freed sample is detected. */
struct nvmlGpmSample_st {
    int allocated;
    double at; /* 0 while no sample was taken */
    unsigned int gi;
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE]; /* of the GPU, or of the instance's MIG device */
};

static struct nvmlGpmSample_st samples[MAX_SAMPLES];
static unsigned int given, live, misused;

void fk_drop_gpm(void) {
    memset(samples, 0, given * sizeof samples[0]);
    given = live = misused = 0;
}

static int is_sample(nvmlGpmSample_t sample) {
    int known = sample >= samples && sample < samples + given && sample->allocated;
    misused += !known;
    return known;
}

/* The device that has the metrics of a GPU instance: its first compute instance. */
static Dev *instance(Dev *gpu, unsigned int gi) {
    Dev *mig = gpu->migs;
    while (mig != NULL && mig->gi != gi)
        mig = mig->next;
    return mig;
}

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *out) {
    u64 supported = 0;
    ENTER_DEV(device);
    NEED(out);
    if (out->version != NVML_GPM_SUPPORT_VERSION)
        return fk_leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    fk_u64(dev->values, "gpm_supported", &supported);
    out->isSupportedDevice = (unsigned int)supported;
    return fk_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *out) {
    ENTER();
    NEED(out);
    if (given == MAX_SAMPLES)
        return fk_leave(NVML_ERROR_MEMORY);
    *out = &samples[given++];
    (*out)->allocated = 1;
    live++;
    return fk_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) {
    ENTER();
    if (!is_sample(sample))
        return fk_leave(NVML_ERROR_INVALID_ARGUMENT);
    sample->allocated = 0;
    live--;
    return fk_leave(NVML_SUCCESS);
}

static nvmlReturn_t fill(nvmlGpmSample_t sample, const Dev *dev) {
    if (!is_sample(sample))
        return NVML_ERROR_INVALID_ARGUMENT;
    sample->at = fk_clock();
    sample->gi = dev->gi;
    return fk_copy(fk_text(dev->texts, "uuid"), sample->uuid, sizeof sample->uuid);
}

static int supported(const Dev *gpu) {
    const Kv *kv = fk_get(gpu->values, "gpm_supported");
    return kv != NULL && fk_value(kv) != 0;
}

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) {
    ENTER_DEV(device);
    if (dev->parent != NULL || !supported(dev))
        return fk_leave(NVML_ERROR_NOT_SUPPORTED);
    return fk_leave(fill(sample, dev));
}

nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int gi, nvmlGpmSample_t sample) {
    ENTER_DEV(device);
    if (dev->parent != NULL || !supported(dev) || !fk_mig_is_on(dev))
        return fk_leave(NVML_ERROR_NOT_SUPPORTED);
    Dev *mig = instance(dev, gi);
    if (mig == NULL)
        return fk_leave(NVML_ERROR_NOT_FOUND);
    nvmlReturn_t code = fk_check_dev(__func__, &mig);
    return code == NVML_SUCCESS ? fk_leave(fill(sample, mig)) : code;
}

static Dev *of_uuid(const char *uuid) {
    for (Dev *gpu = fk_now->gpus; gpu != NULL; gpu = gpu->next)
        for (Dev *dev = gpu; dev != NULL; dev = dev == gpu ? gpu->migs : dev->next) {
            const char *own = fk_text(dev->texts, "uuid");
            if (own != NULL && strcmp(own, uuid) == 0)
                return dev;
        }
    return NULL;
}

static void answer(nvmlGpmMetric_t *metric, const Dev *dev, double from, double to) {
    char key[16];
    snprintf(key, sizeof key, "%u", metric->metricId);
    const char *text = fk_text(dev->gpm, key);
    unsigned int code = NVML_ERROR_NOT_SUPPORTED;
    metric->value = 0;
    if (text != NULL && sscanf(text, "error %u", &code) != 1) {
        code = NVML_SUCCESS;
        metric->value = to - from < NARROWEST ? (double)NAN : fk_mean(text, from, to);
    }
    metric->nvmlReturn = (nvmlReturn_t)code;
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get) {
    ENTER();
    NEED(get);
    if (get->version != NVML_GPM_METRICS_GET_VERSION)
        return fk_leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    nvmlGpmSample_t first = get->sample1, second = get->sample2;
    if (!is_sample(first) || !is_sample(second) || get->numMetrics > NVML_GPM_METRIC_MAX)
        return fk_leave(NVML_ERROR_INVALID_ARGUMENT);
    if (first->at == 0 || second->at <= first->at || first->gi != second->gi ||
        strcmp(first->uuid, second->uuid) != 0) {
        misused++;
        return fk_leave(NVML_ERROR_INVALID_ARGUMENT);
    }
    Dev *dev = of_uuid(second->uuid);
    if (dev == NULL)
        return fk_leave(NVML_ERROR_NOT_FOUND);
    nvmlReturn_t code = fk_check_dev(__func__, &dev);
    if (code != NVML_SUCCESS)
        return code;
    for (unsigned int i = 0; i < get->numMetrics; i++)
        answer(&get->metrics[i], dev, first->at, second->at);
    return fk_leave(NVML_SUCCESS);
}

/* How many samples are allocated, and how often a freed one was used, or two were compared
 * that are of different devices. */
void fakenvml_gpm(unsigned int *now_live, unsigned int *times_misused);
void fakenvml_gpm(unsigned int *now_live, unsigned int *times_misused) {
    fk_lock();
    *now_live = live;
    *times_misused = misused;
    fk_unlock();
}
