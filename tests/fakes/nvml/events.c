/* Event sets. Events are lines of "<scenario>.events", a file that only grows: one process appends,
 * and each process that plays the scenario gets each line once. */
#define _GNU_SOURCE
#include "scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_SETS 64
#define MAX_WATCHED 64
#define MAX_QUEUED 1024

struct nvmlEventSet_st {
    int used;
    unsigned int generation;
    struct {
        nvmlDevice_t device;
        u64 types;
    } watched[MAX_WATCHED];
    int watched_count;
    nvmlEventData_t queue[MAX_QUEUED];
    int head, length;
};

static struct nvmlEventSet_st sets[MAX_SETS];
static char events_path[4200];
static long events_offset;

static void deliver(struct nvmlEventSet_st *set, const nvmlEventData_t *event) {
    for (int i = 0; i < set->watched_count; i++) {
        if (set->watched[i].device != event->device || !(set->watched[i].types & event->eventType))
            continue;
        if (set->length < MAX_QUEUED)
            set->queue[(set->head + set->length++) % MAX_QUEUED] = *event;
        return;
    }
}

/* A line is: GPU index, event type, event data, GPU instance or -1, compute instance or -1. */
static void take_line(const char *line) {
    unsigned int index;
    int gi = -1, ci = -1;
    nvmlEventData_t event = {0};
    if (sscanf(line, "%u %llu %llu %d %d", &index, &event.eventType, &event.eventData, &gi, &ci) <
        3)
        return;
    event.gpuInstanceId = (unsigned int)gi;
    event.computeInstanceId = (unsigned int)ci;
    for (Dev *gpu = fk_now->gpus; gpu != NULL; gpu = gpu->next)
        if (gpu->index == index)
            event.device = fk_handle(gpu);
    for (int i = 0; i < MAX_SETS && event.device != NULL; i++)
        if (sets[i].used)
            deliver(&sets[i], &event);
}

/* Lock held. */
static void take_events(void) {
    char wanted[sizeof events_path], line[256];
    struct stat st;
    snprintf(wanted, sizeof wanted, "%s.events", fk_path());
    if (strcmp(wanted, events_path) != 0) {
        strcpy(events_path, wanted);
        events_offset = 0;
    }
    if (stat(events_path, &st) != 0 || st.st_size <= events_offset)
        return;
    FILE *f = fopen(events_path, "re");
    if (f == NULL)
        return;
    fseek(f, events_offset, SEEK_SET);
    while (fgets(line, sizeof line, f) != NULL && strchr(line, '\n') != NULL) {
        events_offset = ftell(f);
        take_line(line);
    }
    fclose(f);
}

static int is_set(nvmlEventSet_t set) {
    for (int i = 0; i < MAX_SETS; i++)
        if (set == &sets[i])
            return sets[i].used;
    return 0;
}

void fk_drop_events(void) {
    for (int i = 0; i < MAX_SETS; i++)
        sets[i].used = 0;
    events_path[0] = '\0';
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *out) {
    ENTER();
    NEED(out);
    for (int i = 0; i < MAX_SETS; i++) {
        if (sets[i].used)
            continue;
        sets[i].used = 1;
        sets[i].generation++;
        sets[i].watched_count = sets[i].head = sets[i].length = 0;
        *out = &sets[i];
        return fk_leave(NVML_SUCCESS);
    }
    return fk_leave(NVML_ERROR_MEMORY);
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    ENTER();
    if (!is_set(set))
        return fk_leave(NVML_ERROR_INVALID_ARGUMENT);
    set->used = 0;
    return fk_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    ENTER_DEV(device);
    return fk_leave(fk_u64(dev->values, "event_types", types));
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                      nvmlEventSet_t set) {
    u64 supported = 0;
    ENTER_DEV(device);
    if (!is_set(set))
        return fk_leave(NVML_ERROR_INVALID_ARGUMENT);
    if (fk_u64(dev->values, "event_types", &supported) != NVML_SUCCESS || (types & ~supported))
        return fk_leave(NVML_ERROR_NOT_SUPPORTED);
    /* Events before the registration are not delivered. */
    take_events();
    for (int i = 0; i < set->watched_count; i++)
        if (set->watched[i].device == device) {
            set->watched[i].types |= types;
            return fk_leave(NVML_SUCCESS);
        }
    if (set->watched_count == MAX_WATCHED)
        return fk_leave(NVML_ERROR_MEMORY);
    set->watched[set->watched_count].device = device;
    set->watched[set->watched_count++].types = types;
    return fk_leave(NVML_SUCCESS);
}

static int watches_a_lost_gpu(const struct nvmlEventSet_st *set) {
    for (int i = 0; i < set->watched_count; i++) {
        const Dev *dev = fk_find(set->watched[i].device);
        if (dev == NULL || dev->lost)
            return 1;
    }
    return 0;
}

static nvmlReturn_t wait_on(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) {
    if (!is_set(set) || data == NULL)
        return fk_leave(NVML_ERROR_INVALID_ARGUMENT);
    unsigned int generation = set->generation;
    double end = fk_clock() + timeout_ms / 1e3;
    for (;;) {
        if (!fk_initialised())
            return fk_leave(NVML_ERROR_UNINITIALIZED);
        if (!is_set(set) || set->generation != generation)
            return fk_leave(NVML_ERROR_INVALID_ARGUMENT);
        fk_refresh();
        take_events();
        if (set->length > 0) {
            *data = set->queue[set->head];
            set->head = (set->head + 1) % MAX_QUEUED;
            set->length--;
            return fk_leave(NVML_SUCCESS);
        }
        if (watches_a_lost_gpu(set))
            return fk_leave(NVML_ERROR_GPU_IS_LOST);
        if (fk_clock() >= end)
            return fk_leave(NVML_ERROR_TIMEOUT);
        fk_unlock();
        fk_nap();
        fk_lock();
    }
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) {
    ENTER();
    nvmlReturn_t code = wait_on(set, data, timeout_ms);
    /* The first version has no MIG instances. */
    if (code == NVML_SUCCESS)
        data->gpuInstanceId = data->computeInstanceId = NO_INSTANCE;
    return code;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data,
                                 unsigned int timeout_ms) {
    ENTER();
    return wait_on(set, data, timeout_ms);
}
