/* Fans, licence, firmware and NVLink error counters of a board. */
#include "scenario.h"

#include <stdio.h>
#include <string.h>

#define GSP_TEXT 64 /* NVML_GSP_FIRMWARE_VERSION_BUF_SIZE */

nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int *out) {
    char key[32];
    unsigned int count = 0;
    ENTER_DEV(device);
    if (fk_u32(dev->values, "fans", &count) == NVML_SUCCESS && fan >= count)
        return fk_leave(NVML_ERROR_INVALID_ARGUMENT);
    snprintf(key, sizeof key, "fan_speed_%u", fan);
    return fk_leave(fk_u32(dev->values, key, out));
}

nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t device,
                                                    nvmlGridLicensableFeatures_t *out) {
    ENTER_DEV(device);
    NEED(out);
    memset(out, 0, sizeof *out);
    nvmlReturn_t code =
        fk_u32(dev->values, "licence_supported", (unsigned int *)&out->isGridLicenseSupported);
    if (code != NVML_SUCCESS || !out->isGridLicenseSupported)
        return fk_leave(code);
    out->licensableFeaturesCount = 1;
    fk_u32(dev->values, "licence_state", &out->gridLicensableFeatures[0].featureState);
    return fk_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t device, nvmlInforomObject_t object,
                                         char *out, unsigned int length) {
    static const char *const keys[] = {"inforom_oem", "inforom_ecc", "inforom_power"};
    ENTER_DEV(device);
    if ((unsigned int)object >= sizeof keys / sizeof keys[0])
        return fk_leave(NVML_ERROR_NOT_SUPPORTED);
    return fk_leave(fk_copy(fk_text(dev->texts, keys[object]), out, length));
}

nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *out) {
    ENTER_DEV(device);
    return fk_leave(fk_copy(fk_text(dev->texts, "gsp_firmware"), out, GSP_TEXT));
}

nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link,
                                             nvmlNvLinkErrorCounter_t counter,
                                             unsigned long long *out) {
    char key[48];
    ENTER_DEV(device);
    snprintf(key, sizeof key, "nvlink_error_%u_%u", link, (unsigned int)counter);
    return fk_leave(fk_u64(dev->values, key, out));
}
