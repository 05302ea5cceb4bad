/* Processes and MIG. */
#include "scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- processes ---- */

/* Writes at index n if there is room. Returns the new count. */
typedef void (*Store)(void *infos, unsigned int n, const Proc *proc, const Dev *owner);

static void store_v1(void *infos, unsigned int n, const Proc *proc, const Dev *owner) {
    nvmlProcessInfo_v1_t *out = (nvmlProcessInfo_v1_t *)infos + n;
    (void)owner;
    out->pid = proc->pid;
    out->usedGpuMemory = proc->memory;
}

static void store_v3(void *infos, unsigned int n, const Proc *proc, const Dev *owner) {
    nvmlProcessInfo_t *out = (nvmlProcessInfo_t *)infos + n;
    out->pid = proc->pid;
    out->usedGpuMemory = proc->memory;
    out->gpuInstanceId = owner->gi;
    out->computeInstanceId = owner->ci;
}

static unsigned int list_processes(const Dev *dev, char kind, Store store, void *infos,
                                   unsigned int room, unsigned int n) {
    for (const Proc *proc = dev->procs; proc != NULL; proc = proc->next) {
        if (proc->kind != kind)
            continue;
        if (infos != NULL && n < room)
            store(infos, n, proc, dev);
        n++;
    }
    /* A GPU with MIG on lists the processes of its instances too. */
    for (const Dev *mig = dev->migs; mig != NULL; mig = mig->next)
        n = list_processes(mig, kind, store, infos, room, n);
    return n;
}

/* A caller in its own pid namespace gets lists of the processes in that namespace only.
 * Process utilisation has all processes, by their pids on the host. */
static int hides_processes(void) {
    u64 hides = 0;
    return fk_u64(fk_now->values, "hides_processes", &hides) == NVML_SUCCESS && hides != 0;
}

static nvmlReturn_t processes(const Dev *dev, char kind, Store store, unsigned int *count,
                              void *infos) {
    if (count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned int room = *count;
    *count = hides_processes() ? 0 : list_processes(dev, kind, store, infos, room, 0);
    if (*count > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    if (*count > 0 && infos == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    return NVML_SUCCESS;
}

#define PROCESSES(fn, type, kind, store)                                        \
    nvmlReturn_t fn(nvmlDevice_t device, unsigned int *count, type *infos) {    \
        ENTER_DEV(device);                                                      \
        return fk_leave(processes(dev, kind, store, count, infos));             \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, 'c', store_v1)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, 'c', store_v3)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, 'c', store_v3)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, 'g', store_v1)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, 'g', store_v3)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, 'g', store_v3)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, 'm', store_v1)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, 'm', store_v3)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t, 'm', store_v3)

int fk_mig_is_on(const Dev *dev) {
    u64 mode = 0;
    return fk_u64(dev->values, "mig_mode_current", &mode) == NVML_SUCCESS && mode == 1;
}

/* ---- MIG ---- */

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current,
                                  unsigned int *pending) {
    ENTER_DEV(device);
    nvmlReturn_t code = fk_u32(dev->values, "mig_mode_current", current);
    if (code == NVML_SUCCESS)
        code = fk_u32(dev->values, "mig_mode_pending", pending);
    return fk_leave(code);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    ENTER_DEV(device);
    return fk_leave(fk_u32(dev->values, "max_mig_count", count));
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig) {
    ENTER_DEV(device);
    NEED(is_mig);
    *is_mig = dev->parent != NULL;
    return fk_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                 nvmlDevice_t *out) {
    unsigned int max = 0;
    ENTER_DEV(device);
    NEED(out);
    fk_u32(dev->values, "max_mig_count", &max);
    if (dev->parent != NULL || index >= max)
        return fk_leave(NVML_ERROR_INVALID_ARGUMENT);
    for (Dev *mig = dev->migs; mig != NULL; mig = mig->next)
        if (mig->index == index) {
            *out = fk_handle(mig);
            return fk_leave(NVML_SUCCESS);
        }
    return fk_leave(NVML_ERROR_NOT_FOUND);
}

#define MIG_ONLY(fn, type, expression)                         \
    nvmlReturn_t fn(nvmlDevice_t device, type *out) {          \
        ENTER_DEV(device);                                     \
        NEED(out);                                             \
        if (dev->parent == NULL)                               \
            return fk_leave(NVML_ERROR_INVALID_ARGUMENT);      \
        *out = (expression);                                   \
        return fk_leave(NVML_SUCCESS);                         \
    }
MIG_ONLY(nvmlDeviceGetGpuInstanceId, unsigned int, dev->gi)
MIG_ONLY(nvmlDeviceGetComputeInstanceId, unsigned int, dev->ci)
MIG_ONLY(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, nvmlDevice_t, fk_handle(dev->parent))

static nvmlReturn_t attributes(const Dev *dev, nvmlDeviceAttributes_t *out) {
    if (dev->parent == NULL)
        return NVML_ERROR_NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
    fk_u32(dev->values, "attr_sm", &out->multiprocessorCount);
    fk_u32(dev->values, "attr_copy", &out->sharedCopyEngineCount);
    fk_u32(dev->values, "attr_dec", &out->sharedDecoderCount);
    fk_u32(dev->values, "attr_enc", &out->sharedEncoderCount);
    fk_u32(dev->values, "attr_jpg", &out->sharedJpegCount);
    fk_u32(dev->values, "attr_ofa", &out->sharedOfaCount);
    fk_u64(dev->values, "attr_memory_mb", &out->memorySizeMB);
    nvmlReturn_t code = fk_u32(dev->values, "attr_gi_slices", &out->gpuInstanceSliceCount);
    if (code == NVML_SUCCESS)
        code = fk_u32(dev->values, "attr_ci_slices", &out->computeInstanceSliceCount);
    return code;
}

#define ATTRIBUTES(fn)                                                  \
    nvmlReturn_t fn(nvmlDevice_t device, nvmlDeviceAttributes_t *out) { \
        ENTER_DEV(device);                                              \
        NEED(out);                                                      \
        return fk_leave(attributes(dev, out));                          \
    }
ATTRIBUTES(nvmlDeviceGetAttributes)
ATTRIBUTES(nvmlDeviceGetAttributes_v2)

static const Profile *profile_by(unsigned int number, unsigned int id, int by_id) {
    const Profile *p = fk_now->profiles;
    while (p != NULL && (by_id ? p->info.id != id : p->number != number))
        p = p->next;
    return p;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int profile,
                                                 nvmlGpuInstanceProfileInfo_t *out) {
    ENTER_DEV(device);
    NEED(out);
    const Profile *p = profile_by(profile, 0, 0);
    if (p == NULL)
        return fk_leave(NVML_ERROR_NOT_SUPPORTED);
    memset(out, 0, sizeof *out);
    out->id = p->info.id;
    out->sliceCount = p->info.sliceCount;
    out->instanceCount = p->info.instanceCount;
    out->multiprocessorCount = p->info.multiprocessorCount;
    out->decoderCount = p->info.decoderCount;
    out->jpegCount = p->info.jpegCount;
    out->ofaCount = p->info.ofaCount;
    out->memorySizeMB = p->info.memorySizeMB;
    return fk_leave(NVML_SUCCESS);
}

static nvmlReturn_t profile_v2(const Profile *p, nvmlGpuInstanceProfileInfo_v2_t *out) {
    unsigned int version = out->version;
    if (version != nvmlGpuInstanceProfileInfo_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (p == NULL)
        return NVML_ERROR_NOT_SUPPORTED;
    *out = p->info;
    out->version = version;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int profile,
                                                  nvmlGpuInstanceProfileInfo_v2_t *out) {
    ENTER_DEV(device);
    NEED(out);
    return fk_leave(profile_v2(profile_by(profile, 0, 0), out));
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t device, unsigned int id,
                                                      nvmlGpuInstanceProfileInfo_v2_t *out) {
    ENTER_DEV(device);
    NEED(out);
    return fk_leave(profile_v2(profile_by(0, id, 1), out));
}

#define MAX_INSTANCES 1024
static struct nvmlGpuInstance_st gpu_instances[MAX_INSTANCES];
static struct nvmlComputeInstance_st compute_instances[MAX_INSTANCES];

static nvmlGpuInstance_t gpu_instance(nvmlDevice_t gpu, unsigned int gi) {
    for (int i = 0; i < MAX_INSTANCES; i++) {
        nvmlGpuInstance_t it = &gpu_instances[i];
        if (it->gpu == NULL)
            it->gpu = gpu, it->gi = gi;
        if (it->gpu == gpu && it->gi == gi)
            return it;
    }
    abort();
}

static nvmlComputeInstance_t compute_instance(nvmlGpuInstance_t instance, unsigned int ci) {
    for (int i = 0; i < MAX_INSTANCES; i++) {
        nvmlComputeInstance_t it = &compute_instances[i];
        if (it->instance == NULL)
            it->instance = instance, it->ci = ci;
        if (it->instance == instance && it->ci == ci)
            return it;
    }
    abort();
}

/* The MIG device of a GPU instance, of any compute instance when ci is NO_INSTANCE. */
static Dev *mig_of(nvmlDevice_t gpu, unsigned int gi, unsigned int ci) {
    Dev *dev = fk_find(gpu);
    Dev *mig = dev != NULL ? dev->migs : NULL;
    while (mig != NULL && (mig->gi != gi || (ci != NO_INSTANCE && mig->ci != ci)))
        mig = mig->next;
    return mig;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id,
                                          nvmlGpuInstance_t *out) {
    ENTER_DEV(device);
    NEED(out);
    if (!fk_mig_is_on(dev))
        return fk_leave(NVML_ERROR_NOT_SUPPORTED);
    if (mig_of(device, id, NO_INSTANCE) == NULL)
        return fk_leave(NVML_ERROR_NOT_FOUND);
    *out = gpu_instance(device, id);
    return fk_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profile_id,
                                       nvmlGpuInstance_t *out, unsigned int *count) {
    unsigned int n = 0;
    ENTER_DEV(device);
    NEED(out);
    NEED(count);
    for (const Dev *mig = dev->migs; mig != NULL; mig = mig->next) {
        if (mig->profile_id != profile_id || mig_of(device, mig->gi, NO_INSTANCE) != mig)
            continue; /* a second compute instance of a GPU instance that was listed */
        out[n++] = gpu_instance(device, mig->gi);
    }
    *count = n;
    return fk_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *out) {
    ENTER();
    NEED(instance);
    NEED(out);
    const Dev *mig = mig_of(instance->gpu, instance->gi, NO_INSTANCE);
    if (mig == NULL)
        return fk_leave(NVML_ERROR_NOT_FOUND);
    memset(out, 0, sizeof *out);
    out->device = instance->gpu;
    out->id = instance->gi;
    out->profileId = mig->profile_id;
    fk_u32(mig->values, "placement_start", &out->placement.start);
    fk_u32(mig->values, "placement_size", &out->placement.size);
    return fk_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned int id,
                                                   nvmlComputeInstance_t *out) {
    ENTER();
    NEED(instance);
    NEED(out);
    if (mig_of(instance->gpu, instance->gi, id) == NULL)
        return fk_leave(NVML_ERROR_NOT_FOUND);
    *out = compute_instance(instance, id);
    return fk_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t instance,
                                           nvmlComputeInstanceInfo_t *out) {
    ENTER();
    NEED(instance);
    NEED(out);
    nvmlGpuInstance_t parent = instance->instance;
    const Dev *mig = mig_of(parent->gpu, parent->gi, instance->ci);
    if (mig == NULL)
        return fk_leave(NVML_ERROR_NOT_FOUND);
    memset(out, 0, sizeof *out);
    out->device = parent->gpu;
    out->gpuInstance = parent;
    out->id = instance->ci;
    out->profileId = mig->ci_profile_id;
    return fk_leave(NVML_SUCCESS);
}
