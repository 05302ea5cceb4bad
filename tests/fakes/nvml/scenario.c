#define _GNU_SOURCE
#include "scenario.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_HANDLES 4096
#define MAX_FUNCTIONS 512

Scenario *fk_now;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nvmlDevice_st handles[MAX_HANDLES];
static int handle_count;
static char path[4096];
static struct stat seen;
static int init_count;
static double first_load;
static struct {
    const char *name;
    u64 count;
} counters[MAX_FUNCTIONS];

void fk_lock(void) { pthread_mutex_lock(&lock); }
void fk_unlock(void) { pthread_mutex_unlock(&lock); }
int fk_initialised(void) { return init_count > 0; }
const char *fk_path(void) { return path; }

void fk_nap(void) {
    struct timespec slice = {0, 2 * 1000 * 1000};
    nanosleep(&slice, NULL);
}

double fk_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- parsing ---- */

static void *grab(size_t size) {
    void *p = calloc(1, size);
    if (p == NULL)
        abort();
    return p;
}

static Kv *kv_add(Kv **list, const char *key, const char *rest) {
    Kv *kv = grab(sizeof *kv);
    kv->key = strdup(key);
    kv->text = strdup(rest);
    if (strncmp(rest, "ramp ", 5) == 0) {
        char *end;
        kv->start = strtoull(rest + 5, &end, 0);
        kv->rate = strtod(end, NULL);
    } else {
        kv->start = strtoull(rest, NULL, 0);
    }
    /* The newest comes first, so a later line overrides an earlier one. */
    kv->next = *list;
    *list = kv;
    return kv;
}

static void kv_free(Kv *kv) {
    while (kv != NULL) {
        Kv *next = kv->next;
        free(kv->key);
        free(kv->text);
        free(kv);
        kv = next;
    }
}

static void dev_free(Dev *dev) {
    while (dev != NULL) {
        Dev *next = dev->next;
        dev_free(dev->migs);
        kv_free(dev->values), kv_free(dev->texts), kv_free(dev->errors);
        kv_free(dev->blocks), kv_free(dev->fields);
        kv_free(dev->gpm), kv_free(dev->sampled), kv_free(dev->loads);
        for (Proc *p = dev->procs, *n; p != NULL; p = n)
            n = p->next, free(p);
        for (Sample *s = dev->samples, *n; s != NULL; s = n)
            n = s->next, free(s);
        free(dev);
        dev = next;
    }
}

static void scenario_free(Scenario *s) {
    if (s == NULL)
        return;
    dev_free(s->gpus);
    kv_free(s->values), kv_free(s->texts), kv_free(s->errors), kv_free(s->blocks);
    for (Profile *p = s->profiles, *n; p != NULL; p = n)
        n = p->next, free(p);
    free(s);
}

static Dev *dev_append(Dev **list, Dev *parent, unsigned int index) {
    Dev *dev = grab(sizeof *dev);
    dev->parent = parent;
    dev->index = index;
    dev->gi = dev->ci = NO_INSTANCE;
    while (*list != NULL)
        list = &(*list)->next;
    *list = dev;
    return dev;
}

static void add_process(Dev *dev, const char *rest) {
    Proc *proc = grab(sizeof *proc), **tail = &dev->procs;
    proc->kind = rest[0];
    sscanf(rest, "%*s %u %llu", &proc->pid, &proc->memory);
    while (*tail != NULL)
        tail = &(*tail)->next;
    *tail = proc;
}

static void add_sample(Dev *dev, const char *rest) {
    Sample *s = grab(sizeof *s), **tail = &dev->samples;
    sscanf(rest, "%u %u %u %u %u %llu", &s->sample.pid, &s->sample.smUtil, &s->sample.memUtil,
           &s->sample.encUtil, &s->sample.decUtil, &s->sample.timeStamp);
    while (*tail != NULL)
        tail = &(*tail)->next;
    *tail = s;
}

static void add_profile(Scenario *s, const char *rest) {
    Profile *p = grab(sizeof *p);
    nvmlGpuInstanceProfileInfo_v2_t *i = &p->info;
    int at = 0;
    sscanf(rest, "%u %u %u %u %u %llu %n", &p->number, &i->id, &i->sliceCount, &i->instanceCount,
           &i->multiprocessorCount, &i->memorySizeMB, &at);
    snprintf(i->name, sizeof i->name, "%s", rest + at);
    /* As on a Hopper card, whose one OFA is in the whole-GPU and the media extension profiles. */
    i->decoderCount = i->jpegCount = i->sliceCount;
    i->ofaCount = p->number == NVML_GPU_INSTANCE_PROFILE_7_SLICE ||
                  p->number == NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1;
    p->next = s->profiles;
    s->profiles = p;
}

static void parse_pair(Kv **list, char *rest) {
    char *space = strchr(rest, ' ');
    if (space != NULL)
        *space = '\0';
    kv_add(list, rest, space != NULL ? space + 1 : "");
}

/* Returns 0 for a line that cannot be read, so that a typing error in a scenario is noticed. */
static int parse_line(Scenario *s, Dev **gpu, Dev **dev, char *line) {
    char *rest = strchr(line, ' ');
    if (rest != NULL)
        *rest++ = '\0';
    else
        rest = line + strlen(line);
    if (line[0] == '\0' || line[0] == '#')
        return 1;
    if (strcmp(line, "gpu") == 0)
        *gpu = *dev = dev_append(&s->gpus, NULL, (unsigned int)strtoul(rest, NULL, 0));
    else if (strcmp(line, "mig") == 0 && *gpu != NULL) {
        *dev = dev_append(&(*gpu)->migs, *gpu, 0);
        return sscanf(rest, "%u %u %u %u %u", &(*dev)->index, &(*dev)->gi, &(*dev)->ci,
                      &(*dev)->profile_id, &(*dev)->ci_profile_id) == 5;
    } else if (strcmp(line, "t0") == 0)
        s->t0 = strtod(rest, NULL);
    else if (strcmp(line, "profile") == 0)
        add_profile(s, rest);
    else if (strcmp(line, "value") == 0)
        parse_pair(*dev != NULL ? &(*dev)->values : &s->values, rest);
    else if (strcmp(line, "text") == 0)
        parse_pair(*dev != NULL ? &(*dev)->texts : &s->texts, rest);
    else if (strcmp(line, "error") == 0)
        parse_pair(*dev != NULL ? &(*dev)->errors : &s->errors, rest);
    else if (strcmp(line, "block") == 0)
        parse_pair(*dev != NULL ? &(*dev)->blocks : &s->blocks, rest);
    else if (strcmp(line, "field") == 0 && *dev != NULL)
        parse_pair(&(*dev)->fields, rest);
    else if (strcmp(line, "gpm") == 0 && *dev != NULL)
        parse_pair(&(*dev)->gpm, rest);
    else if (strcmp(line, "sampled") == 0 && *dev != NULL)
        parse_pair(&(*dev)->sampled, rest);
    else if (strcmp(line, "load") == 0 && *dev != NULL)
        parse_pair(&(*dev)->loads, rest);
    else if (strcmp(line, "lost") == 0 && *dev != NULL)
        (*dev)->lost = 1;
    else if (strcmp(line, "process") == 0 && *dev != NULL)
        add_process(*dev, rest);
    else if (strcmp(line, "sample") == 0 && *dev != NULL)
        add_sample(*dev, rest);
    else
        return 0;
    return 1;
}

static void load(void) {
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return;
    Scenario *s = grab(sizeof *s);
    Dev *gpu = NULL, *dev = NULL;
    char *line = NULL;
    size_t size = 0;
    ssize_t n;
    for (int number = 1; (n = getline(&line, &size, f)) >= 0; number++) {
        if (n > 0 && line[n - 1] == '\n')
            line[n - 1] = '\0';
        if (!parse_line(s, &gpu, &dev, line)) {
            fprintf(stderr, "fakenvml: %s:%d: cannot read this line: %s\n", path, number, line);
            abort();
        }
    }
    free(line);
    fclose(f);
    if (s->t0 == 0.0) {
        if (first_load == 0.0)
            first_load = fk_clock();
        s->t0 = first_load;
    }
    scenario_free(fk_now);
    fk_now = s;
}

void fk_refresh(void) {
    struct stat st;
    if (path[0] == '\0') {
        const char *env = getenv("FAKENVML_SCENARIO");
        if (env == NULL)
            return;
        snprintf(path, sizeof path, "%s", env);
    }
    if (stat(path, &st) != 0)
        return;
    if (fk_now != NULL && st.st_ino == seen.st_ino && st.st_dev == seen.st_dev &&
        st.st_size == seen.st_size && st.st_mtim.tv_sec == seen.st_mtim.tv_sec &&
        st.st_mtim.tv_nsec == seen.st_mtim.tv_nsec)
        return;
    seen = st;
    load();
}

/* ---- values ---- */

const Kv *fk_get(const Kv *list, const char *key) {
    for (; list != NULL; list = list->next)
        if (strcmp(list->key, key) == 0)
            return list;
    return NULL;
}

u64 fk_value(const Kv *kv) {
    if (kv->rate == 0.0)
        return kv->start;
    return kv->start + (u64)(long long)(kv->rate * (fk_clock() - fk_now->t0));
}

double fk_mean(const char *text, double from, double to) {
    char *end;
    if (strncmp(text, "ramp ", 5) != 0)
        return strtod(text, NULL);
    double start = strtod(text + 5, &end);
    return start + strtod(end, NULL) * ((from + to) / 2 - fk_now->t0);
}

const char *fk_text(const Kv *list, const char *key) {
    const Kv *kv = fk_get(list, key);
    return kv != NULL ? kv->text : NULL;
}

nvmlReturn_t fk_u64(const Kv *list, const char *key, u64 *out) {
    const Kv *kv = fk_get(list, key);
    if (kv == NULL)
        return NVML_ERROR_NOT_SUPPORTED;
    if (out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *out = fk_value(kv);
    return NVML_SUCCESS;
}

nvmlReturn_t fk_u32(const Kv *list, const char *key, unsigned int *out) {
    u64 wide;
    nvmlReturn_t code = fk_u64(list, key, &wide);
    if (code == NVML_SUCCESS && out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS)
        *out = (unsigned int)wide;
    return code;
}

nvmlReturn_t fk_copy(const char *text, char *out, unsigned int length) {
    if (text == NULL)
        return NVML_ERROR_NOT_SUPPORTED;
    if (out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

/* ---- handles ---- */

nvmlDevice_t fk_handle(const Dev *dev) {
    const char *uuid = fk_text(dev->texts, "uuid");
    if (uuid == NULL)
        return NULL;
    for (int i = 0; i < handle_count; i++)
        if (strcmp(handles[i].uuid, uuid) == 0)
            return &handles[i];
    if (handle_count == MAX_HANDLES)
        abort();
    snprintf(handles[handle_count].uuid, sizeof handles[0].uuid, "%s", uuid);
    handles[handle_count].is_mig = dev->parent != NULL;
    return &handles[handle_count++];
}

static int is_handle(nvmlDevice_t device) {
    return device != NULL && device >= handles && device < handles + handle_count &&
           ((char *)device - (char *)handles) % sizeof handles[0] == 0;
}

static int has_uuid(const Dev *dev, const char *uuid) {
    const char *own = fk_text(dev->texts, "uuid");
    return own != NULL && strcmp(own, uuid) == 0;
}

Dev *fk_find(nvmlDevice_t device) {
    if (!is_handle(device))
        return NULL;
    for (Dev *gpu = fk_now->gpus; gpu != NULL; gpu = gpu->next) {
        if (has_uuid(gpu, device->uuid))
            return gpu;
        for (Dev *mig = gpu->migs; mig != NULL; mig = mig->next)
            if (has_uuid(mig, device->uuid))
                return mig;
    }
    return NULL;
}

/* ---- entering a call ---- */

static void count_call(const char *fn) {
    for (int i = 0; i < MAX_FUNCTIONS; i++) {
        if (counters[i].name == NULL)
            counters[i].name = fn;
        /* Each function has one __func__, so the address is enough after the first call. */
        if (counters[i].name == fn || strcmp(counters[i].name, fn) == 0) {
            counters[i].count++;
            return;
        }
    }
}

/* One line per call, for tests in which another process uses NVML. */
static void log_call(const char *fn) {
    static int fd = -2;
    char line[128];
    if (fd == -2) {
        const char *name = getenv("FAKENVML_CALL_LOG");
        fd = name != NULL ? open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    }
    if (fd < 0)
        return;
    int n = snprintf(line, sizeof line, "%s\n", fn);
    if (write(fd, line, (size_t)n) < 0)
        fd = -1;
}

/* A line for "nvmlX" also applies to nvmlX_v2 and others without their own line: tests need
 * not know which version pynvml calls. */
static const Kv *line_for(const Kv *list, const char *fn) {
    char bare[128];
    const Kv *kv = fk_get(list, fn);
    size_t n = strlen(fn);
    if (kv != NULL || n < 4 || n >= sizeof bare || memcmp(fn + n - 3, "_v", 2) != 0)
        return kv;
    memcpy(bare, fn, n - 3);
    bare[n - 3] = '\0';
    return fk_get(list, bare);
}

static double block_seconds(const char *fn, const Kv *own, const Kv *everywhere) {
    const Kv *kv = line_for(own, fn);
    if (kv == NULL)
        kv = line_for(everywhere, fn);
    return kv != NULL ? strtod(kv->text, NULL) : 0.0;
}

/* Sleeps without the lock, and checks at intervals whether the scenario still blocks. The scenario
 * may be another one afterwards, so callers must look up their device again. */
static void block(const char *fn, nvmlDevice_t device, int everywhere) {
    double start = fk_clock();
    for (;;) {
        Dev *dev = device != NULL ? fk_find(device) : NULL;
        double seconds = block_seconds(fn, dev != NULL ? dev->blocks : NULL,
                                       everywhere ? fk_now->blocks : NULL);
        if (fk_clock() - start >= seconds)
            return;
        fk_unlock();
        fk_nap();
        fk_lock();
        fk_refresh();
    }
}

static nvmlReturn_t scripted_error(const Kv *errors, const char *fn, int wildcard) {
    const Kv *kv = line_for(errors, fn);
    if (kv == NULL && wildcard)
        kv = fk_get(errors, "*");
    return kv != NULL ? (nvmlReturn_t)kv->start : NVML_SUCCESS;
}

static int is_lifecycle(const char *fn) {
    return strncmp(fn, "nvmlInit", 8) == 0 || strcmp(fn, "nvmlShutdown") == 0;
}

static nvmlReturn_t begin(const char *fn, nvmlDevice_t device) {
    fk_lock();
    fk_refresh();
    count_call(fn);
    log_call(fn);
    if (fk_now == NULL)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if (!is_lifecycle(fn) && !fk_initialised())
        return NVML_ERROR_UNINITIALIZED;
    block(fn, device, 1);
    /* Another thread may have shut down while this one was blocked. */
    if (!is_lifecycle(fn) && !fk_initialised())
        return NVML_ERROR_UNINITIALIZED;
    return scripted_error(fk_now->errors, fn, !is_lifecycle(fn));
}

nvmlReturn_t fk_leave(nvmlReturn_t code) {
    fk_unlock();
    return code;
}

nvmlReturn_t fk_enter(const char *fn) {
    nvmlReturn_t code = begin(fn, NULL);
    return code == NVML_SUCCESS ? code : fk_leave(code);
}

static nvmlReturn_t device_error(const char *fn, const Dev *dev) {
    if (dev->lost || (dev->parent != NULL && dev->parent->lost))
        return NVML_ERROR_GPU_IS_LOST;
    return scripted_error(dev->errors, fn, 1);
}

nvmlReturn_t fk_enter_dev(const char *fn, nvmlDevice_t device, Dev **out) {
    nvmlReturn_t code = begin(fn, is_handle(device) ? device : NULL);
    if (code != NVML_SUCCESS)
        return fk_leave(code);
    if (!is_handle(device))
        return fk_leave(NVML_ERROR_INVALID_ARGUMENT);
    *out = fk_find(device);
    if (*out == NULL) {
        u64 stale = NVML_ERROR_NOT_FOUND;
        if (!device->is_mig)
            return fk_leave(NVML_ERROR_GPU_IS_LOST);
        fk_u64(fk_now->values, "stale_mig_error", &stale);
        return fk_leave((nvmlReturn_t)stale);
    }
    code = device_error(fn, *out);
    return code == NVML_SUCCESS ? code : fk_leave(code);
}

nvmlReturn_t fk_check_dev(const char *fn, Dev **dev) {
    nvmlDevice_t device = fk_handle(*dev);
    if (device == NULL)
        return fk_leave(NVML_ERROR_NOT_FOUND);
    /* The block of all devices was waited for on entry. */
    block(fn, device, 0);
    *dev = fk_find(device);
    if (*dev == NULL)
        return fk_leave(NVML_ERROR_NOT_FOUND);
    nvmlReturn_t code = device_error(fn, *dev);
    return code == NVML_SUCCESS ? code : fk_leave(code);
}

/* ---- life cycle ---- */

static nvmlReturn_t init(const char *fn) {
    u64 code = NVML_SUCCESS;
    nvmlReturn_t entered = fk_enter(fn);
    if (entered != NVML_SUCCESS)
        return entered;
    fk_u64(fk_now->values, "init_error", &code);
    if (code == NVML_SUCCESS)
        init_count++;
    return fk_leave((nvmlReturn_t)code);
}

nvmlReturn_t nvmlInit(void) { return init(__func__); }
nvmlReturn_t nvmlInit_v2(void) { return init(__func__); }
nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    return init(__func__);
}

nvmlReturn_t nvmlShutdown(void) {
    ENTER();
    if (init_count == 0)
        return fk_leave(NVML_ERROR_UNINITIALIZED);
    init_count--;
    return fk_leave(NVML_SUCCESS);
}

/* ---- functions for the tests ---- */

void fakenvml_use(const char *scenario);
void fakenvml_use(const char *scenario) {
    fk_lock();
    snprintf(path, sizeof path, "%s", scenario);
    init_count = 0;
    first_load = 0.0;
    fk_drop_events();
    fk_drop_gpm();
    memset(&seen, 0, sizeof seen);
    fk_refresh();
    fk_unlock();
}

void fakenvml_reload(void);
void fakenvml_reload(void) {
    fk_lock();
    memset(&seen, 0, sizeof seen);
    fk_refresh();
    fk_unlock();
}

/* Writes "name count" lines and returns their number of bytes. */
unsigned long fakenvml_calls(char *out, unsigned long length, int reset);
unsigned long fakenvml_calls(char *out, unsigned long length, int reset) {
    unsigned long used = 0;
    fk_lock();
    for (int i = 0; i < MAX_FUNCTIONS && counters[i].name != NULL; i++) {
        if (counters[i].count == 0)
            continue;
        int n = snprintf(out + used, used < length ? length - used : 0, "%s %llu\n",
                         counters[i].name, counters[i].count);
        used += (unsigned long)n;
    }
    if (reset)
        for (int i = 0; i < MAX_FUNCTIONS; i++)
            counters[i].count = 0;
    fk_unlock();
    return used;
}
