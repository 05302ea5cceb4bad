/*
 * The floor of the sampler's cost: the NVML calls that podgpu makes (docs/fields.md), from C, on the
 * same schedule, with nothing done with the answers. Build:
 *
 *   gcc -O2 -pthread -I INCLUDE -o floor tests/bench/floor.c -l:libnvidia-ml.so.1
 *
 *   floor SECONDS INTERVAL_MS SLOW_INTERVAL_MS
 *
 * Prints one JSON object: processor time and mean time of a round, initialisation apart.
 */
#include <nvml.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#define GPUS 64
#define PROCESSES 128

static nvmlDevice_t gpus[GPUS];
static unsigned count;

/* Metrics between two samples, by turns: those of each round, and those of slow rounds. */
typedef struct {
    nvmlGpmSample_t samples[2];
    unsigned taken;
} Profile;
static Profile often[GPUS], rarely[GPUS];

static double seconds(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void profile(nvmlDevice_t gpu, Profile *of, const unsigned *ids, unsigned number)
{
    static nvmlGpmMetricsGet_t get;
    unsigned newer = of->taken++ % 2;
    if (nvmlGpmSampleGet(gpu, of->samples[newer]) != NVML_SUCCESS || of->taken < 2)
        return;
    get.version = NVML_GPM_METRICS_GET_VERSION;
    get.numMetrics = number;
    get.sample1 = of->samples[1 - newer];
    get.sample2 = of->samples[newer];
    for (unsigned i = 0; i < number; i++)
        get.metrics[i].metricId = ids[i];
    nvmlGpmMetricsGet(&get);
}

static void fast(nvmlDevice_t gpu, Profile *of)
{
    static const unsigned metrics[] = {1, 5, 10, 20, 21};
    static nvmlProcessInfo_t list[PROCESSES];
    nvmlUtilization_t busy;
    nvmlMemory_v2_t memory = {.version = nvmlMemory_v2};
    nvmlFieldValue_t fields[] = {{.fieldId = NVML_FI_DEV_MEMORY_TEMP},
                                 {.fieldId = NVML_FI_DEV_POWER_INSTANT}};
    nvmlPstates_t state;
    unsigned long long mask;
    unsigned number, period;

    nvmlDeviceGetClockInfo(gpu, NVML_CLOCK_SM, &number);
    nvmlDeviceGetClockInfo(gpu, NVML_CLOCK_MEM, &number);
    nvmlDeviceGetFieldValues(gpu, 2, fields);
    nvmlDeviceGetTemperature(gpu, NVML_TEMPERATURE_GPU, &number);
    nvmlDeviceGetPowerUsage(gpu, &number);
    nvmlDeviceGetUtilizationRates(gpu, &busy);
    nvmlDeviceGetEncoderUtilization(gpu, &number, &period);
    nvmlDeviceGetDecoderUtilization(gpu, &number, &period);
    nvmlDeviceGetPerformanceState(gpu, &state);
    nvmlDeviceGetCurrentClocksEventReasons(gpu, &mask);
    nvmlDeviceGetMemoryInfo_v2(gpu, &memory);
    number = PROCESSES;
    nvmlDeviceGetComputeRunningProcesses_v3(gpu, &number, list);
    number = PROCESSES;
    nvmlDeviceGetGraphicsRunningProcesses_v3(gpu, &number, list);
    number = PROCESSES;
    nvmlDeviceGetMPSComputeRunningProcesses_v3(gpu, &number, list);
    profile(gpu, of, metrics, 5);
}

static void slow(nvmlDevice_t gpu, Profile *of)
{
    static const unsigned metrics[] = {20, 21};
    unsigned long long big;
    static nvmlGridLicensableFeatures_t licence;
    unsigned a, b, c, d, current, pending;
    nvmlFieldValue_t links[] = {
        {.fieldId = NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, .scopeId = 0xFFFFFFFF},
        {.fieldId = NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, .scopeId = 0xFFFFFFFF}};

    nvmlDeviceGetTotalEnergyConsumption(gpu, &big);
    nvmlDeviceGetPcieReplayCounter(gpu, &a);
    for (unsigned kind = 0; kind < 2; kind++)
        for (unsigned counter = 0; counter < 2; counter++)
            nvmlDeviceGetTotalEccErrors(gpu, kind, counter, &big);
    nvmlDeviceGetRemappedRows(gpu, &a, &b, &c, &d);
    nvmlDeviceGetMigMode(gpu, &current, &pending);
    nvmlDeviceGetGridLicensableFeatures_v4(gpu, &licence);
    nvmlDeviceGetFieldValues(gpu, 2, links);
    profile(gpu, of, metrics, 2);
}

static void *events(void *unused)
{
    (void)unused;
    nvmlEventSet_t set;
    nvmlEventData_t data;
    nvmlEventSetCreate(&set);
    for (unsigned i = 0; i < count; i++)
        nvmlDeviceRegisterEvents(gpus[i], nvmlEventTypeXidCriticalError, set);
    for (;;)
        nvmlEventSetWait_v2(set, &data, 1000);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: floor SECONDS INTERVAL_MS SLOW_INTERVAL_MS\n");
        return 2;
    }
    double length = atof(argv[1]), interval = atof(argv[2]) / 1e3, rare = atof(argv[3]) / 1e3;
    nvmlReturn_t code = nvmlInit_v2();
    if (code != NVML_SUCCESS) {
        fprintf(stderr, "floor: %s\n", nvmlErrorString(code));
        return 1;
    }
    nvmlDeviceGetCount_v2(&count);
    count = count > GPUS ? GPUS : count;
    for (unsigned i = 0; i < count; i++)
        nvmlDeviceGetHandleByIndex_v2(i, &gpus[i]);
    for (unsigned i = 0; i < count; i++)
        for (unsigned half = 0; half < 2; half++) {
            nvmlGpmSampleAlloc(&often[i].samples[half]);
            nvmlGpmSampleAlloc(&rarely[i].samples[half]);
        }
    pthread_t waiter;
    pthread_create(&waiter, NULL, events, NULL);

    double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID), start = seconds(CLOCK_MONOTONIC);
    double busy = 0, next = start, next_slow = start, end = start + length;
    unsigned rounds = 0, now_count;
    while (next < end) {
        double began = seconds(CLOCK_MONOTONIC);
        int also_slow = began >= next_slow;
        nvmlDeviceGetCount_v2(&now_count);
        for (unsigned i = 0; i < count; i++) {
            fast(gpus[i], &often[i]);
            if (also_slow)
                slow(gpus[i], &rarely[i]);
        }
        if (also_slow)
            next_slow += rare;
        busy += seconds(CLOCK_MONOTONIC) - began;
        rounds++;
        next += interval;
        double wait = next - seconds(CLOCK_MONOTONIC);
        if (wait > 0)
            nanosleep(&(struct timespec){(time_t)wait, (long)((wait - (time_t)wait) * 1e9)}, NULL);
    }
    cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    double wall = seconds(CLOCK_MONOTONIC) - start;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"gpus\": %u, \"rounds\": %u, \"wall_seconds\": %.3f, \"cpu_seconds\": %.4f, "
           "\"cpu_percent\": %.3f, \"round_ms\": %.3f, \"max_rss_mb\": %.1f}\n",
           count, rounds, wall, cpu, 100 * cpu / wall, 1e3 * busy / rounds,
           usage.ru_maxrss * 1024 / 1e6);
    return 0;
}
