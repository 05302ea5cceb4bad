/* The scenario of the fake NVML: the parsed file, and how calls enter it. */
#ifndef FAKENVML_SCENARIO_H
#define FAKENVML_SCENARIO_H

/* pynvml uses old and new symbol names, so the header's macros must not rename any. */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#define ALL_ONES 0xFFFFFFFFFFFFFFFFULL
#define NO_INSTANCE 0xFFFFFFFFU

typedef unsigned long long u64;

typedef struct Kv {
    struct Kv *next;
    char *key;
    char *text; /* the words after the key, as written */
    u64 start;
    double rate; /* per second since t0 */
} Kv;

typedef struct Proc {
    struct Proc *next;
    char kind; /* 'c'ompute, 'g'raphics, 'm'ps */
    unsigned int pid;
    u64 memory;
} Proc;

typedef struct Sample {
    struct Sample *next;
    nvmlProcessUtilizationSample_t sample;
} Sample;

typedef struct Dev {
    struct Dev *next;   /* the next GPU, or the next MIG device of the same GPU */
    struct Dev *parent; /* NULL for a GPU */
    struct Dev *migs;
    unsigned int index, gi, ci, profile_id, ci_profile_id;
    int lost;
    Kv *values, *texts, *errors, *blocks, *fields;
    Kv *gpm;     /* by metric id */
    Kv *sampled; /* by sampling type */
    Kv *loads;   /* by pid */
    Proc *procs;
    Sample *samples;
} Dev;

typedef struct Profile {
    struct Profile *next;
    nvmlGpuInstanceProfileInfo_v2_t info;
    unsigned int number; /* NVML_GPU_INSTANCE_PROFILE_x */
} Profile;

typedef struct Scenario {
    Dev *gpus;
    Profile *profiles;
    Kv *values, *texts, *errors, *blocks;
    double t0;
} Scenario;

extern Scenario *fk_now;

/* A handle is a slot that never moves or ends, found by UUID: it stays valid over a rewrite of the
 * scenario, and a call on it can detect that its device is gone. */
struct nvmlDevice_st {
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    int is_mig;
};

struct nvmlGpuInstance_st {
    nvmlDevice_t gpu;
    unsigned int gi;
};

struct nvmlComputeInstance_st {
    nvmlGpuInstance_t instance;
    unsigned int ci;
};

/* On NVML_SUCCESS all return with the lock held, otherwise without it. */
nvmlReturn_t fk_enter(const char *fn);
nvmlReturn_t fk_enter_dev(const char *fn, nvmlDevice_t device, Dev **out);
/* For functions that look a device up: the caller holds the lock and keeps it on success. */
nvmlReturn_t fk_check_dev(const char *fn, Dev **dev);
nvmlReturn_t fk_leave(nvmlReturn_t code);
int fk_initialised(void);
void fk_lock(void);
void fk_unlock(void);
void fk_nap(void);
/* Reads a rewritten scenario file. Lock held. */
void fk_refresh(void);
double fk_clock(void);
const char *fk_path(void);
/* Drops all event sets. Lock held. */
void fk_drop_events(void);
/* Drops all GPM samples. Lock held. */
void fk_drop_gpm(void);

nvmlDevice_t fk_handle(const Dev *dev);
Dev *fk_find(nvmlDevice_t device);
const char *fk_text(const Kv *list, const char *key);
const Kv *fk_get(const Kv *list, const char *key);
nvmlReturn_t fk_u64(const Kv *list, const char *key, u64 *out);
nvmlReturn_t fk_u32(const Kv *list, const char *key, unsigned int *out);
nvmlReturn_t fk_copy(const char *text, char *out, unsigned int length);
u64 fk_value(const Kv *kv);
/* The average of a number, or of `ramp START RATE`, between two times of fk_clock. */
double fk_mean(const char *text, double from, double to);
/* Converts fk_clock to the wall clock time of a driver's timestamp, in microseconds. */
long long fk_wall_offset_us(const Dev *dev);
int fk_mig_is_on(const Dev *dev);

#define ENTER()                                          \
    do {                                                 \
        nvmlReturn_t entered_ = fk_enter(__func__);      \
        if (entered_ != NVML_SUCCESS)                    \
            return entered_;                             \
    } while (0)
#define ENTER_DEV(handle)                                              \
    Dev *dev;                                                          \
    do {                                                               \
        nvmlReturn_t entered_ = fk_enter_dev(__func__, (handle), &dev); \
        if (entered_ != NVML_SUCCESS)                                  \
            return entered_;                                           \
    } while (0)
#define NEED(pointer)                                        \
    do {                                                     \
        if ((pointer) == NULL)                               \
            return fk_leave(NVML_ERROR_INVALID_ARGUMENT);    \
    } while (0)

#endif
