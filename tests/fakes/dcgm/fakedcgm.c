/* A fake client library of DCGM that plays a scenario file. scenario.py describes its lines.

   Layouts, numbers and rules are those of DCGM's public headers (dcgm_structs.h, dcgm_agent.h);
   nothing here has met a real host engine. */

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, BADPARAM = -1, UNINITIALIZED = -10, VER_MISMATCH = -12, UNKNOWN_FIELD = -13,
       NO_DATA = -14, NOT_WATCHED = -16, GONE = -21 };
enum { GPU = 1, INSTANCE = 4, COMPUTE = 5 };

typedef struct { int kind; unsigned id; } entity_t;
typedef struct { unsigned version, persist, timeout_ms, is_socket; } connect_t;
typedef struct {
    unsigned version;
    int kind;
    unsigned entity;
    unsigned short field, type;
    int status;
    unsigned unused;
    int64_t ts;
    union { int64_t i64; double dbl; char str[256]; char blob[4096]; } value;
} value_t;
typedef struct { char uuid[128]; unsigned index, gi, ci, profile, slices; } mig_info_t;
typedef struct { entity_t entity, parent; mig_info_t info; } mig_t;
typedef struct { unsigned version, count; mig_t entities[32 * 14]; } hierarchy_t;

#define VERSION(type, number) (unsigned)(sizeof(type) | ((unsigned long)(number) << 24U))
#define MANY 64

typedef struct { int count; entity_t entities[MANY]; } group_t;
typedef struct { int count; unsigned short fields[MANY]; } field_group_t;

static char scenario[4096];
static int inits;
static long opened, epoch_of[1024];
static group_t groups[MANY];
static field_group_t field_groups[MANY];
static struct { long group, fields; } watches[MANY];
static int group_count, field_group_count, watch_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void fakedcgm_use(const char *path) {
    pthread_mutex_lock(&lock);
    snprintf(scenario, sizeof scenario, "%s", path);
    inits = 0;
    group_count = field_group_count = watch_count = 0;
    pthread_mutex_unlock(&lock);
}

int fakedcgm_inits(void) { return inits; }

size_t fakedcgm_size(const char *name) {
    if (!strcmp(name, "connect")) return sizeof(connect_t);
    if (!strcmp(name, "value")) return sizeof(value_t);
    if (!strcmp(name, "hierarchy")) return sizeof(hierarchy_t);
    return sizeof(entity_t);
}

static FILE *open_scenario(void) {
    if (!scenario[0] && getenv("FAKEDCGM_SCENARIO"))
        snprintf(scenario, sizeof scenario, "%s", getenv("FAKEDCGM_SCENARIO"));
    return fopen(scenario, "r");
}

/* Copy the text after `key` on the first line that starts with it. */
static int look_up(const char *key, char *found, size_t size) {
    char line[1024];
    size_t length = strlen(key);
    FILE *file = open_scenario();
    if (!file) return 0;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, key, length) && line[length] == ' ') {
            snprintf(found, size, "%.*s", (int)size - 1, line + length + 1);
            fclose(file);
            return 1;
        }
    }
    fclose(file);
    return 0;
}

static long number(const char *key, long otherwise) {
    char found[256];
    return look_up(key, found, sizeof found) ? strtol(found, NULL, 10) : otherwise;
}

static void note(const char *text) {
    char path[4200];
    if (!scenario[0] && getenv("FAKEDCGM_SCENARIO"))
        snprintf(scenario, sizeof scenario, "%s", getenv("FAKEDCGM_SCENARIO"));
    snprintf(path, sizeof path, "%s.calls", scenario);
    FILE *file = fopen(path, "a");
    if (!file) return;
    fprintf(file, "%s\n", text);
    fclose(file);
}

/* Enter a call: log it, hang while the scenario has a `hang` line, return the scenario's code. */
static int begin(const char *name) {
    char key[128];
    note(name);
    snprintf(key, sizeof key, "hang %s", name);
    while (number(key, 0)) usleep(2000);
    snprintf(key, sizeof key, "return %s", name);
    return (int)number(key, OK);
}

static int connected(const char *name, void *handle) {
    int code = begin(name);
    long at = (long)(intptr_t)handle;
    if (code) return code;
    if (!inits) return UNINITIALIZED;
    return at > 0 && at <= opened && epoch_of[at] && epoch_of[at] == number("epoch", 1) ? OK : GONE;
}

const char *errorString(int code) {
    switch (code) {
    case VER_MISMATCH: return "API version mismatch";
    case GONE: return "Host engine connection invalid/disconnected";
    case -29: return "This operation is not supported when the host engine is running as non root";
    default: return "an error of the fake";
    }
}

int dcgmInit(void) {
    int code = begin("dcgmInit");
    if (!code) inits++;
    return code;
}

int dcgmShutdown(void) {
    int code = begin("dcgmShutdown");
    if (!code) inits = 0;
    return code;
}

int dcgmConnect_v2(const char *address, connect_t *params, void **handle) {
    char text[512];
    snprintf(text, sizeof text, "dcgmConnect_v2 %.400s %u %u", address, params->is_socket,
             params->timeout_ms);
    note(text);
    int code = begin("dcgmConnect_v2");
    if (code) return code;
    if (!inits) return UNINITIALIZED;
    if (params->version != VERSION(connect_t, 2)) return VER_MISMATCH;
    if (!number("epoch", 1)) return GONE;
    pthread_mutex_lock(&lock);
    opened = opened % 1000 + 1;
    epoch_of[opened] = number("epoch", 1);
    *handle = (void *)(intptr_t)opened;
    pthread_mutex_unlock(&lock);
    return OK;
}

int dcgmDisconnect(void *handle) {
    int code = connected("dcgmDisconnect", handle);
    group_count = field_group_count = watch_count = 0;
    if (!code) epoch_of[(intptr_t)handle] = 0;
    return code;
}

int dcgmGetEntityGroupEntities(void *handle, int kind, unsigned *ids, int *count, unsigned flags) {
    char line[1024];
    int code = connected("dcgmGetEntityGroupEntities", handle), found = 0;
    if (code) return code;
    if (kind != GPU || flags > 1) return BADPARAM;
    FILE *file = open_scenario();
    while (file && fgets(line, sizeof line, file)) {
        unsigned id;
        if (sscanf(line, "gpu %u", &id) == 1 && found < *count) ids[found++] = id;
    }
    if (file) fclose(file);
    *count = found;
    return OK;
}

int dcgmGetGpuInstanceHierarchy(void *handle, hierarchy_t *out) {
    char line[1024];
    int code = connected("dcgmGetGpuInstanceHierarchy", handle);
    if (code) return code;
    if (out->version != VERSION(hierarchy_t, 2)) return VER_MISMATCH;
    out->count = 0;
    FILE *file = open_scenario();
    while (file && fgets(line, sizeof line, file)) {
        unsigned id, parent, gi, ci, slices;
        mig_t *one = &out->entities[out->count];
        if (sscanf(line, "instance %u %u %u %u", &id, &parent, &gi, &slices) == 4)
            *one = (mig_t){{INSTANCE, id}, {GPU, parent}, {"", 0, gi, (unsigned)-1, 0, slices}};
        else if (sscanf(line, "compute %u %u %u %u", &id, &parent, &gi, &ci) == 4)
            *one = (mig_t){{COMPUTE, id}, {INSTANCE, parent}, {"", 0, gi, ci, 0, 0}};
        else
            continue;
        out->count++;
    }
    if (file) fclose(file);
    return OK;
}

int dcgmGroupCreate(void *handle, int type, const char *name, void **group) {
    int code = connected("dcgmGroupCreate", handle);
    if (code) return code;
    if (type != 1 || !name[0] || group_count >= MANY - 1) return BADPARAM;
    groups[++group_count].count = 0;
    *group = (void *)(intptr_t)group_count;
    return OK;
}

int dcgmGroupAddEntity(void *handle, void *group, int kind, unsigned id) {
    int code = connected("dcgmGroupAddEntity", handle);
    group_t *into = &groups[(intptr_t)group];
    if (code) return code;
    if ((intptr_t)group > group_count || into->count >= MANY) return BADPARAM;
    into->entities[into->count++] = (entity_t){kind, id};
    return OK;
}

int dcgmFieldGroupCreate(void *handle, int count, const unsigned short *fields, const char *name,
                         void **group) {
    int code = connected("dcgmFieldGroupCreate", handle);
    if (code) return code;
    if (count < 1 || count > MANY || !name[0] || field_group_count >= MANY - 1) return BADPARAM;
    field_group_t *made = &field_groups[++field_group_count];
    made->count = count;
    memcpy(made->fields, fields, sizeof(fields[0]) * (size_t)count);
    *group = (void *)(intptr_t)field_group_count;
    return OK;
}

int dcgmWatchFields(void *handle, void *group, void *fields, long long usec, double keep_age,
                    int keep_samples) {
    char text[256], key[64];
    int code = connected("dcgmWatchFields", handle);
    if (code) return code;
    if (usec <= 0 || keep_age <= 0 || keep_samples < 1 || (intptr_t)group > group_count ||
        (intptr_t)fields > field_group_count)
        return BADPARAM;
    snprintf(text, sizeof text, "watch every %lld", usec);
    note(text);
    snprintf(key, sizeof key, "unwatchable %u", groups[(intptr_t)group].entities[0].id);
    if ((code = (int)number(key, OK))) return code;
    watches[watch_count].group = (intptr_t)group;
    watches[watch_count++].fields = (intptr_t)fields;
    return OK;
}

int dcgmUpdateAllFields(void *handle, int wait) {
    (void)wait;
    return connected("dcgmUpdateAllFields", handle);
}

static int is_watched(entity_t entity, unsigned short field) {
    for (int w = 0; w < watch_count; w++) {
        group_t *group = &groups[watches[w].group];
        field_group_t *fields = &field_groups[watches[w].fields];
        for (int e = 0; e < group->count; e++)
            for (int f = 0; f < fields->count; f++)
                if (group->entities[e].kind == entity.kind && group->entities[e].id == entity.id &&
                    fields->fields[f] == field)
                    return 1;
    }
    return 0;
}

static int64_t now_usec(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void fill(value_t *out, entity_t entity, unsigned short field, int live) {
    char key[64], text[512];
    *out = (value_t){.version = VERSION(value_t, 2), .kind = entity.kind, .entity = entity.id,
                     .field = field, .status = NO_DATA};
    if (!live && !is_watched(entity, field)) {
        out->status = NOT_WATCHED;
        return;
    }
    if (live && field >= 1001) {
        out->status = -32;  /* profiling fields can't be read live */
        return;
    }
    snprintf(key, sizeof key, "value %d %u %u", entity.kind, entity.id, field);
    if (!look_up(key, text, sizeof text)) return;
    out->type = (unsigned short)text[0];
    out->status = OK;
    out->ts = number("frozen", 0) ? number("frozen", 0) : now_usec();
    if (text[0] == 'd') out->value.dbl = strtod(text + 2, NULL);
    if (text[0] == 'i') out->value.i64 = strtoll(text + 2, NULL, 10);
    if (text[0] == 's') snprintf(out->value.str, sizeof out->value.str, "%.250s", text + 2);
}

int dcgmEntitiesGetLatestValues(void *handle, entity_t *entities, unsigned entity_count,
                                unsigned short *fields, unsigned field_count, unsigned flags,
                                value_t *values) {
    char key[64];
    int code = connected("dcgmEntitiesGetLatestValues", handle);
    if (code) return code;
    if (!entity_count || !field_count) return BADPARAM;
    for (unsigned e = 0; e < entity_count; e++) {
        snprintf(key, sizeof key, "unreadable %d %u", entities[e].kind, entities[e].id);
        if (!(flags & 1) && (code = (int)number(key, OK))) return code;
        for (unsigned f = 0; f < field_count; f++, values++)
            fill(values, entities[e], fields[f], flags & 1);
    }
    return OK;
}
