/* What a board is and how it is configured: modes, inforom, memory banks, place in a rack. */
#include "scenario.h"

#include <stdio.h>
#include <string.h>

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length) {
    (void)pid;
    ENTER();
    return fk_leave(fk_copy(fk_text(fk_now->texts, "process_name"), name, length));
}

nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, nvmlClockType_t type,
                                            unsigned int *out) {
    char key[48];
    ENTER_DEV(device);
    snprintf(key, sizeof key, "application_clock_%d", (int)type);
    return fk_leave(fk_u32(dev->values, key, out));
}

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device,
                                             nvmlGpuVirtualizationMode_t *out) {
    ENTER_DEV(device);
    return fk_leave(fk_u32(dev->values, "virtualization_mode", (unsigned int *)out));
}

nvmlReturn_t nvmlDeviceGetAutoBoostedClocksEnabled(nvmlDevice_t device, nvmlEnableState_t *on,
                                                   nvmlEnableState_t *by_default) {
    ENTER_DEV(device);
    NEED(by_default);
    *by_default = NVML_FEATURE_ENABLED;
    return fk_leave(fk_u32(dev->values, "autoboost", (unsigned int *)on));
}

nvmlReturn_t nvmlDeviceGetInforomConfigurationChecksum(nvmlDevice_t device, unsigned int *out) {
    ENTER_DEV(device);
    return fk_leave(fk_u32(dev->values, "inforom_checksum", out));
}

nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t device) {
    unsigned int valid = 0;
    ENTER_DEV(device);
    nvmlReturn_t code = fk_u32(dev->values, "inforom_valid", &valid);
    return fk_leave(code == NVML_SUCCESS && !valid ? NVML_ERROR_CORRUPTED_INFOROM : code);
}

nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device,
                                               nvmlRowRemapperHistogramValues_t *out) {
    ENTER_DEV(device);
    NEED(out);
    nvmlReturn_t code = fk_u32(dev->values, "banks_max", &out->max);
    if (code == NVML_SUCCESS)
        code = fk_u32(dev->values, "banks_high", &out->high);
    if (code == NVML_SUCCESS)
        code = fk_u32(dev->values, "banks_partial", &out->partial);
    if (code == NVML_SUCCESS)
        code = fk_u32(dev->values, "banks_low", &out->low);
    if (code == NVML_SUCCESS)
        code = fk_u32(dev->values, "banks_none", &out->none);
    return fk_leave(code);
}

nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_t *out) {
    ENTER_DEV(device);
    NEED(out);
    if (out->version != nvmlEccSramErrorStatus_v1)
        return fk_leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    return fk_leave(fk_u32(dev->values, "sram_exceeded", &out->bThresholdExceeded));
}

static unsigned char small(const Dev *dev, const char *key) {
    unsigned int value = 0;
    fk_u32(dev->values, key, &value);
    return (unsigned char)value;
}

nvmlReturn_t nvmlDeviceGetPlatformInfo(nvmlDevice_t device, nvmlPlatformInfo_t *out) {
    unsigned int unused, chassis = 1;
    ENTER_DEV(device);
    NEED(out);
    if (out->version != nvmlPlatformInfo_v2)
        return fk_leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    nvmlReturn_t code = fk_u32(dev->values, "platform_slot", &unused);
    fk_u32(dev->values, "platform_chassis", &chassis);
    memset(out->chassisSerialNumber, (int)chassis, sizeof out->chassisSerialNumber);
    out->slotNumber = small(dev, "platform_slot");
    out->trayIndex = small(dev, "platform_tray");
    out->hostId = small(dev, "platform_host");
    out->peerType = small(dev, "platform_peer");
    out->moduleId = small(dev, "platform_module");
    return fk_leave(code);
}
