/* The functions of NVML that return one value of one GPU. */
#include "scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *nvmlErrorString(nvmlReturn_t result) {
    static const char *const names[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported",
        "Insufficient Permissions", "Already Initialized", "Not Found", "Insufficient Size",
        "Insufficient External Power", "Driver Not Loaded", "Timeout", "Interrupt Request Issue",
        "NVML Shared Library Not Found", "Function Not Found", "Corrupted infoROM", "GPU is lost",
        "GPU requires reset",
    };
    if ((size_t)result < sizeof names / sizeof names[0])
        return names[result];
    return "Unknown Error";
}

/* ---- system ---- */

#define SYSTEM_TEXT(fn, key)                                        \
    nvmlReturn_t fn(char *out, unsigned int length) {               \
        ENTER();                                                    \
        return fk_leave(fk_copy(fk_text(fk_now->texts, key), out, length)); \
    }
SYSTEM_TEXT(nvmlSystemGetDriverVersion, "driver")
SYSTEM_TEXT(nvmlSystemGetNVMLVersion, "nvml")

#define SYSTEM_INT(fn, key)                                         \
    nvmlReturn_t fn(int *out) {                                     \
        ENTER();                                                    \
        return fk_leave(fk_u32(fk_now->values, key, (unsigned int *)out)); \
    }
SYSTEM_INT(nvmlSystemGetCudaDriverVersion, "cuda")
SYSTEM_INT(nvmlSystemGetCudaDriverVersion_v2, "cuda")

/* ---- finding devices ---- */

static unsigned int gpu_count(void) {
    unsigned int n = 0;
    for (Dev *gpu = fk_now->gpus; gpu != NULL; gpu = gpu->next)
        n++;
    return n;
}

#define COUNT(fn)                        \
    nvmlReturn_t fn(unsigned int *out) { \
        ENTER();                         \
        NEED(out);                       \
        *out = gpu_count();              \
        return fk_leave(NVML_SUCCESS);   \
    }
COUNT(nvmlDeviceGetCount)
COUNT(nvmlDeviceGetCount_v2)

static nvmlReturn_t found(const char *fn, Dev *dev, nvmlDevice_t *out) {
    if (out == NULL)
        return fk_leave(NVML_ERROR_INVALID_ARGUMENT);
    if (dev == NULL)
        return fk_leave(NVML_ERROR_NOT_FOUND);
    nvmlReturn_t code = fk_check_dev(fn, &dev);
    if (code != NVML_SUCCESS)
        return code;
    *out = fk_handle(dev);
    return fk_leave(NVML_SUCCESS);
}

static Dev *by_index(unsigned int index) {
    Dev *gpu = fk_now->gpus;
    while (gpu != NULL && gpu->index != index)
        gpu = gpu->next;
    return gpu;
}

#define BY_INDEX(fn)                                             \
    nvmlReturn_t fn(unsigned int index, nvmlDevice_t *device) {  \
        ENTER();                                                 \
        Dev *gpu = by_index(index);                              \
        if (gpu == NULL)                                         \
            return fk_leave(NVML_ERROR_INVALID_ARGUMENT);        \
        return found(__func__, gpu, device);                     \
    }
BY_INDEX(nvmlDeviceGetHandleByIndex)
BY_INDEX(nvmlDeviceGetHandleByIndex_v2)

static Dev *by_text(const char *key, const char *wanted) {
    for (Dev *gpu = fk_now->gpus; gpu != NULL; gpu = gpu->next) {
        const char *own = fk_text(gpu->texts, key);
        if (own != NULL && strcasecmp(own, wanted) == 0)
            return gpu;
        for (Dev *mig = gpu->migs; mig != NULL; mig = mig->next) {
            own = fk_text(mig->texts, key);
            if (own != NULL && strcasecmp(own, wanted) == 0)
                return mig;
        }
    }
    return NULL;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    ENTER();
    NEED(uuid);
    return found(__func__, by_text("uuid", uuid), device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *device) {
    ENTER();
    NEED(uuid);
    if (uuid->type != NVML_UUID_TYPE_ASCII)
        return fk_leave(NVML_ERROR_NOT_SUPPORTED);
    return found(__func__, by_text("uuid", uuid->value.str), device);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    ENTER();
    NEED(serial);
    return found(__func__, by_text("serial", serial), device);
}

static int same_bus_id(const char *a, const char *b) {
    unsigned int x[4], y[4];
    return sscanf(a, "%x:%x:%x.%x", &x[0], &x[1], &x[2], &x[3]) == 4 &&
           sscanf(b, "%x:%x:%x.%x", &y[0], &y[1], &y[2], &y[3]) == 4 &&
           memcmp(x, y, sizeof x) == 0;
}

static Dev *by_bus_id(const char *wanted) {
    for (Dev *gpu = fk_now->gpus; gpu != NULL; gpu = gpu->next) {
        const char *own = fk_text(gpu->texts, "bus_id");
        if (own != NULL && same_bus_id(own, wanted))
            return gpu;
    }
    return NULL;
}

#define BY_BUS_ID(fn)                                            \
    nvmlReturn_t fn(const char *bus_id, nvmlDevice_t *device) {  \
        ENTER();                                                 \
        NEED(bus_id);                                            \
        return found(__func__, by_bus_id(bus_id), device);       \
    }
BY_BUS_ID(nvmlDeviceGetHandleByPciBusId)
BY_BUS_ID(nvmlDeviceGetHandleByPciBusId_v2)

/* ---- identity ---- */

#define DEVICE_TEXT(fn, key)                                               \
    nvmlReturn_t fn(nvmlDevice_t device, char *out, unsigned int length) { \
        ENTER_DEV(device);                                                 \
        return fk_leave(fk_copy(fk_text(dev->texts, key), out, length));   \
    }
DEVICE_TEXT(nvmlDeviceGetUUID, "uuid")
DEVICE_TEXT(nvmlDeviceGetName, "name")
DEVICE_TEXT(nvmlDeviceGetSerial, "serial")
DEVICE_TEXT(nvmlDeviceGetBoardPartNumber, "part_number")
DEVICE_TEXT(nvmlDeviceGetVbiosVersion, "vbios")
DEVICE_TEXT(nvmlDeviceGetInforomImageVersion, "inforom")

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    ENTER_DEV(device);
    NEED(index);
    *index = dev->index;
    return fk_leave(NVML_SUCCESS);
}

static nvmlReturn_t pci_info(const Dev *dev, nvmlPciInfo_t *pci) {
    const char *bus_id = fk_text(dev->texts, "bus_id");
    if (bus_id == NULL)
        return NVML_ERROR_NOT_SUPPORTED;
    memset(pci, 0, sizeof *pci);
    sscanf(bus_id, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    fk_u32(dev->values, "pci_device_id", &pci->pciDeviceId);
    fk_u32(dev->values, "pci_subsystem_id", &pci->pciSubSystemId);
    snprintf(pci->busId, sizeof pci->busId, "%s", bus_id);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0",
             pci->domain & 0xFFFFU, pci->bus & 0xFFU, pci->device & 0xFFU);
    return NVML_SUCCESS;
}

#define PCI_INFO(fn)                                                   \
    nvmlReturn_t fn(nvmlDevice_t device, nvmlPciInfo_t *pci) {         \
        ENTER_DEV(device);                                             \
        NEED(pci);                                                     \
        return fk_leave(pci_info(dev, pci));                           \
    }
PCI_INFO(nvmlDeviceGetPciInfo)
PCI_INFO(nvmlDeviceGetPciInfo_v2)
PCI_INFO(nvmlDeviceGetPciInfo_v3)

/* ---- plain numbers ---- */

#define DEVICE_NUMBER(fn, type, key)                                          \
    nvmlReturn_t fn(nvmlDevice_t device, type *out) {                         \
        _Static_assert(sizeof(type) == 4, "a 32-bit value");                  \
        ENTER_DEV(device);                                                    \
        return fk_leave(fk_u32(dev->values, key, (unsigned int *)out));       \
    }
#define DEVICE_NUMBER64(fn, key)                                   \
    nvmlReturn_t fn(nvmlDevice_t device, unsigned long long *out) { \
        ENTER_DEV(device);                                         \
        return fk_leave(fk_u64(dev->values, key, out));            \
    }
#define DEVICE_PAIR(fn, type, first, second)                                   \
    nvmlReturn_t fn(nvmlDevice_t device, type *one, type *two) {               \
        _Static_assert(sizeof(type) == 4, "a 32-bit value");                   \
        ENTER_DEV(device);                                                     \
        nvmlReturn_t code = fk_u32(dev->values, first, (unsigned int *)one);   \
        if (code == NVML_SUCCESS)                                              \
            code = fk_u32(dev->values, second, (unsigned int *)two);           \
        return fk_leave(code);                                                 \
    }

DEVICE_NUMBER(nvmlDeviceGetMinorNumber, unsigned int, "minor")
DEVICE_NUMBER(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t, "architecture")
DEVICE_NUMBER(nvmlDeviceGetBrand, nvmlBrandType_t, "brand")
DEVICE_NUMBER(nvmlDeviceGetPowerUsage, unsigned int, "power_usage")
DEVICE_NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned int, "power_limit")
DEVICE_NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned int, "power_default_limit")
DEVICE_NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned int, "enforced_power_limit")
DEVICE_NUMBER(nvmlDeviceGetPowerManagementMode, nvmlEnableState_t, "power_management")
DEVICE_NUMBER(nvmlDeviceGetPerformanceState, nvmlPstates_t, "pstate")
DEVICE_NUMBER(nvmlDeviceGetPowerState, nvmlPstates_t, "pstate")
DEVICE_NUMBER(nvmlDeviceGetPcieReplayCounter, unsigned int, "pcie_replay")
DEVICE_NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, "pcie_link_gen")
DEVICE_NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, "pcie_link_width")
DEVICE_NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int, "pcie_max_link_gen")
DEVICE_NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned int, "pcie_max_link_width")
DEVICE_NUMBER(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, "persistence_mode")
DEVICE_NUMBER(nvmlDeviceGetComputeMode, nvmlComputeMode_t, "compute_mode")
DEVICE_NUMBER(nvmlDeviceGetNumGpuCores, unsigned int, "gpu_cores")
DEVICE_NUMBER(nvmlDeviceGetNumFans, unsigned int, "fans")
DEVICE_NUMBER(nvmlDeviceGetFanSpeed, unsigned int, "fan_speed")
DEVICE_NUMBER(nvmlDeviceGetBoardId, unsigned int, "board_id")
DEVICE_NUMBER(nvmlDeviceGetModuleId, unsigned int, "module_id")
DEVICE_NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, nvmlEnableState_t, "retired_pending")
DEVICE_NUMBER64(nvmlDeviceGetTotalEnergyConsumption, "energy")
DEVICE_NUMBER64(nvmlDeviceGetCurrentClocksThrottleReasons, "clocks_event_reasons")
DEVICE_NUMBER64(nvmlDeviceGetCurrentClocksEventReasons, "clocks_event_reasons")
DEVICE_NUMBER64(nvmlDeviceGetSupportedClocksThrottleReasons, "supported_clocks_event_reasons")
DEVICE_NUMBER64(nvmlDeviceGetSupportedClocksEventReasons, "supported_clocks_event_reasons")
DEVICE_PAIR(nvmlDeviceGetEccMode, nvmlEnableState_t, "ecc_mode_current", "ecc_mode_pending")
DEVICE_PAIR(nvmlDeviceGetEncoderUtilization, unsigned int, "enc_util", "util_period")
DEVICE_PAIR(nvmlDeviceGetDecoderUtilization, unsigned int, "dec_util", "util_period")
DEVICE_PAIR(nvmlDeviceGetJpgUtilization, unsigned int, "jpg_util", "util_period")
DEVICE_PAIR(nvmlDeviceGetOfaUtilization, unsigned int, "ofa_util", "util_period")
DEVICE_PAIR(nvmlDeviceGetPowerManagementLimitConstraints, unsigned int, "power_limit_min",
            "power_limit_max")
DEVICE_PAIR(nvmlDeviceGetCudaComputeCapability, int, "compute_major", "compute_minor")

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out) {
    ENTER_DEV(device);
    NEED(out);
    nvmlReturn_t code = fk_u32(dev->values, "util_gpu", &out->gpu);
    if (code == NVML_SUCCESS)
        code = fk_u32(dev->values, "util_memory", &out->memory);
    return fk_leave(code);
}

/* ---- numbers selected by an argument, which is part of the key ---- */

static nvmlReturn_t keyed(const Dev *dev, const char *stem, int a, unsigned int *out) {
    char key[64];
    snprintf(key, sizeof key, "%s_%d", stem, a);
    return fk_u32(dev->values, key, out);
}

#define DEVICE_KEYED(fn, type, stem)                                       \
    nvmlReturn_t fn(nvmlDevice_t device, type which, unsigned int *out) {  \
        ENTER_DEV(device);                                                 \
        return fk_leave(keyed(dev, stem, (int)which, out));                \
    }
DEVICE_KEYED(nvmlDeviceGetClockInfo, nvmlClockType_t, "clock")
DEVICE_KEYED(nvmlDeviceGetMaxClockInfo, nvmlClockType_t, "max_clock")
DEVICE_KEYED(nvmlDeviceGetTemperatureThreshold, nvmlTemperatureThresholds_t, "temp_threshold")
DEVICE_KEYED(nvmlDeviceGetPcieThroughput, nvmlPcieUtilCounter_t, "pcie_throughput")
DEVICE_KEYED(nvmlDeviceGetNvLinkVersion, unsigned int, "nvlink_version")

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor,
                                      unsigned int *out) {
    ENTER_DEV(device);
    if (sensor != NVML_TEMPERATURE_GPU)
        return fk_leave(NVML_ERROR_INVALID_ARGUMENT);
    return fk_leave(fk_u32(dev->values, "temperature", out));
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *out) {
    ENTER_DEV(device);
    NEED(out);
    if (out->version != nvmlTemperature_v1)
        return fk_leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    if (out->sensorType != NVML_TEMPERATURE_GPU)
        return fk_leave(NVML_ERROR_INVALID_ARGUMENT);
    return fk_leave(fk_u32(dev->values, "temperature", (unsigned int *)&out->temperature));
}

nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_t *out) {
    ENTER_DEV(device);
    NEED(out);
    return fk_leave(
        fk_u32(dev->values, "margin_temperature", (unsigned int *)&out->marginTemperature));
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                         nvmlEccCounterType_t counter, unsigned long long *out) {
    char key[64];
    ENTER_DEV(device);
    snprintf(key, sizeof key, "ecc_%d_%d", (int)type, (int)counter);
    return fk_leave(fk_u64(dev->values, key, out));
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                             nvmlEccCounterType_t counter,
                                             nvmlMemoryLocation_t location,
                                             unsigned long long *out) {
    char key[64];
    ENTER_DEV(device);
    snprintf(key, sizeof key, "ecc_%d_%d_%d", (int)type, (int)counter, (int)location);
    return fk_leave(fk_u64(dev->values, key, out));
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *correctable,
                                       unsigned int *uncorrectable, unsigned int *pending,
                                       unsigned int *failure) {
    ENTER_DEV(device);
    nvmlReturn_t code = fk_u32(dev->values, "remapped_correctable", correctable);
    if (code == NVML_SUCCESS)
        code = fk_u32(dev->values, "remapped_uncorrectable", uncorrectable);
    if (code == NVML_SUCCESS)
        code = fk_u32(dev->values, "remapped_pending", pending);
    if (code == NVML_SUCCESS)
        code = fk_u32(dev->values, "remapped_failure", failure);
    return fk_leave(code);
}

/* ---- memory ---- */

static nvmlReturn_t memory(const Dev *dev, u64 *total, u64 *used, u64 *available) {
    nvmlReturn_t code = fk_u64(dev->values, "memory_total", total);
    if (code == NVML_SUCCESS)
        code = fk_u64(dev->values, "memory_used", used);
    if (code == NVML_SUCCESS && fk_u64(dev->values, "memory_free", available) != NVML_SUCCESS)
        *available = *used > *total ? 0 : *total - *used;
    return code;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out) {
    ENTER_DEV(device);
    NEED(out);
    return fk_leave(memory(dev, &out->total, &out->used, &out->free));
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out) {
    ENTER_DEV(device);
    NEED(out);
    if (out->version != nvmlMemory_v2)
        return fk_leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    nvmlReturn_t code = memory(dev, &out->total, &out->used, &out->free);
    out->reserved = 0;
    if (code == NVML_SUCCESS)
        fk_u64(dev->values, "memory_reserved", &out->reserved);
    /* The first version includes reserved bytes in used bytes. The second one separates them. */
    if (code == NVML_SUCCESS && out->used != ALL_ONES)
        out->used = out->used > out->reserved ? out->used - out->reserved : 0;
    return fk_leave(code);
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *out) {
    ENTER_DEV(device);
    NEED(out);
    nvmlReturn_t code = fk_u64(dev->values, "bar1_total", &out->bar1Total);
    if (code == NVML_SUCCESS)
        code = fk_u64(dev->values, "bar1_used", &out->bar1Used);
    if (code == NVML_SUCCESS)
        out->bar1Free = out->bar1Total - out->bar1Used;
    return fk_leave(code);
}

/* ---- field values ---- */

static const Kv *field_of(const Dev *dev, unsigned int id, unsigned int scope) {
    char key[32];
    if (scope != 0)
        snprintf(key, sizeof key, "%u.%u", id, scope);
    else
        snprintf(key, sizeof key, "%u", id);
    return fk_get(dev->fields, key);
}

/* The text is "<type> <value>" or "error <code>"; the value may be a ramp. */
static void fill_field(const Dev *dev, nvmlFieldValue_t *out) {
    static const char *const types[] = {"double", "uint", "ulong", "ull", "sll", "int", "ushort"};
    const Kv *kv = field_of(dev, out->fieldId, out->scopeId);
    struct Kv number = {0};
    char type[16] = "";
    int at = 0;
    memset(&out->value, 0, sizeof out->value);
    out->timestamp = (long long)(fk_clock() * 1e6);
    out->latencyUsec = 1;
    out->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    if (kv == NULL || sscanf(kv->text, "%15s %n", type, &at) != 1)
        return;
    const char *rest = kv->text + at;
    if (strcmp(type, "error") == 0) {
        out->nvmlReturn = (nvmlReturn_t)strtol(rest, NULL, 0);
        return;
    }
    for (unsigned int i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(type, types[i]) == 0)
            out->valueType = (nvmlValueType_t)i;
    out->nvmlReturn = NVML_SUCCESS;
    if (out->valueType == NVML_VALUE_TYPE_DOUBLE) {
        out->value.dVal = strtod(rest, NULL);
        return;
    }
    char *end;
    if (strncmp(rest, "ramp ", 5) == 0) {
        number.start = strtoull(rest + 5, &end, 0);
        number.rate = strtod(end, NULL);
    } else {
        number.start = strtoull(rest, NULL, 0);
    }
    u64 value = fk_value(&number);
    if (out->valueType == NVML_VALUE_TYPE_UNSIGNED_SHORT)
        out->value.usVal = (unsigned short)value;
    else if (out->valueType == NVML_VALUE_TYPE_UNSIGNED_INT)
        out->value.uiVal = (unsigned int)value;
    else if (out->valueType == NVML_VALUE_TYPE_SIGNED_INT)
        out->value.siVal = (int)value;
    else
        out->value.ullVal = value;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    ENTER_DEV(device);
    NEED(values);
    for (int i = 0; i < count; i++)
        fill_field(dev, &values[i]);
    return fk_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceClearFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    ENTER_DEV(device);
    NEED(values);
    for (int i = 0; i < count; i++)
        values[i].nvmlReturn = field_of(dev, values[i].fieldId, values[i].scopeId) != NULL
                                   ? NVML_SUCCESS
                                   : NVML_ERROR_NOT_SUPPORTED;
    return fk_leave(NVML_SUCCESS);
}
