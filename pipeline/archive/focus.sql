-- The rows of an archive with the columns of FOCUS 1.2, in DuckDB. docs/focus.md shows how to use it.
--
-- The view `focus_source` has rows of the archive, each once. The tables focus_periods,
-- focus_prices and focus_parts are filled by the reader of the archive. The tables focus_sums,
-- focus_facts and focus_devices are filled from the views with the same names and `new_`, for all
-- days at once or for one day after the other.

-- Charge periods: days or hours. No price changes in a period.
CREATE OR REPLACE TEMP TABLE focus_periods (
    period_start TIMESTAMPTZ, period_end TIMESTAMPTZ,
    billing_start TIMESTAMPTZ, billing_end TIMESTAMPTZ,
    price_start TIMESTAMPTZ
);
-- The price of an hour of a whole GPU (kind: held, free or unknown), or of a kWh (kind: energy).
CREATE OR REPLACE TEMP TABLE focus_prices (
    kind VARCHAR, cluster VARCHAR, model VARCHAR, price_start TIMESTAMPTZ, unit_price DECIMAL(18, 9)
);
-- Which part of a GPU a device is: 2 of 7 slices; 1 of 1 for a GPU.
CREATE OR REPLACE TEMP TABLE focus_parts (
    model VARCHAR, profile VARCHAR, is_instance BOOLEAN, slices INTEGER, of_slices INTEGER
);

-- Amounts by charge period, device and pod. Without a pod: time that no container held, and usage
-- of no known container.
CREATE OR REPLACE TEMP VIEW new_focus_sums AS
WITH hours AS (
    SELECT
        cluster, node, ledger, device, hour, namespace, pod, container, pod_uid,
        sum(held_ns) AS held_ns,
        CASE WHEN sum(busy_ns) = 0 AND arg_max(busy_ns IS NULL, serial) THEN NULL
            ELSE sum(busy_ns) END AS busy_ns,
        sum(energy_mj) AS energy_mj,
        CAST(0 AS HUGEINT) AS unknown_ns,
        max(sample_data) AS sample_data
    FROM focus_source
    WHERE row = 'usage'
    GROUP BY ALL
    UNION ALL BY NAME
    SELECT cluster, node, ledger, device, hour, CAST(unknown_ns AS HUGEINT) AS unknown_ns
    FROM focus_source
    WHERE row = 'device'
)
SELECT
    period_start, cluster, node, device, namespace, pod,
    if(pod_uid = '', concat_ws('/', node, ledger, namespace, pod, container), pod_uid) AS pod_key,
    sum(held_ns) AS held_ns,
    sum(busy_ns) AS busy_ns,
    sum(held_ns - busy_ns) AS idle_ns,
    sum(energy_mj) AS energy_mj,
    sum(unknown_ns) AS unknown_ns,
    max(sample_data) AS sample_data
FROM hours
ASOF JOIN focus_periods ON hours.hour >= focus_periods.period_start
WHERE hour < period_end
GROUP BY ALL;

-- What is known of each pod.
CREATE OR REPLACE TEMP VIEW new_focus_facts AS
SELECT
    cluster, node,
    if(pod_uid = '', concat_ws('/', node, ledger, namespace, pod, container), pod_uid) AS pod_key,
    namespace, pod,
    arg_max(owner_kind, serial) FILTER (WHERE owner_name <> '') AS owner_kind,
    arg_max(owner_name, serial) FILTER (WHERE owner_name <> '') AS owner_name,
    arg_max(labels, serial) AS labels,
    max(serial) AS serial
FROM focus_source
WHERE row = 'container'
GROUP BY ALL;

CREATE OR REPLACE TEMP VIEW new_focus_devices AS
SELECT
    cluster, node, device,
    arg_max(gpu_index, hour) AS gpu_index,
    arg_max(model, hour) AS model,
    arg_max(profile, hour) AS profile,
    max(hour) AS hour
FROM focus_source
WHERE row IN ('usage', 'device')
GROUP BY ALL;

CREATE OR REPLACE TEMP TABLE focus_sums AS FROM new_focus_sums LIMIT 0;
CREATE OR REPLACE TEMP TABLE focus_facts AS FROM new_focus_facts LIMIT 0;
CREATE OR REPLACE TEMP TABLE focus_devices AS FROM new_focus_devices LIMIT 0;

-- A uid without a name belongs to the only name that it has on its node. Names and facts are those of
-- the own node, so that no node can change the charges of other nodes' usage.
CREATE OR REPLACE TEMP VIEW focus_pods AS
SELECT
    cluster, node, pod_key,
    if(count(DISTINCT (namespace, pod)) FILTER (WHERE pod <> '') = 1,
        max(namespace) FILTER (WHERE pod <> ''), NULL) AS only_namespace,
    if(count(DISTINCT (namespace, pod)) FILTER (WHERE pod <> '') = 1,
        max(pod) FILTER (WHERE pod <> ''), NULL) AS only_pod,
    arg_max(owner_kind, serial) FILTER (WHERE owner_name IS NOT NULL) AS owner_kind,
    arg_max(owner_name, serial) FILTER (WHERE owner_name IS NOT NULL) AS owner_name,
    arg_max(labels, serial) AS labels
FROM focus_facts
GROUP BY ALL;

-- The amount of each charge: nanoseconds of time, or millijoules of energy.
CREATE OR REPLACE TEMP VIEW new_focus_amounts AS
WITH
devices AS (
    SELECT
        cluster, node, device,
        arg_max(gpu_index, hour) AS gpu_index,
        coalesce(arg_max(model, hour), '') AS model,
        coalesce(arg_max(profile, hour), '') AS profile,
        starts_with(device, 'MIG-') AS is_instance
    FROM focus_devices
    GROUP BY cluster, node, device
),
held AS (
    SELECT
        period_start, cluster, node, device,
        -- A pod, a job of Slurm, or a container without a pod. Only pods are in a namespace.
        CASE
            WHEN starts_with(pod_key, 'slurm://') THEN 'SlurmJob'
            WHEN starts_with(pod_key, 'docker://') OR starts_with(pod_key, 'podman://')
                THEN 'Container'
            ELSE 'Pod' END AS holder,
        if(holder = 'Pod', coalesce(nullif(namespace, ''), only_namespace, ''), '')
            AS workload_namespace,
        if(holder = 'SlurmJob', coalesce(nullif(pod, ''), only_pod), NULL) AS job,
        coalesce(owner_kind, holder) AS workload_kind,
        coalesce(owner_name, nullif(pod, ''), only_pod, 'uid ' || pod_key) AS workload_name,
        coalesce(labels, '{}') AS labels,
        sum(held_ns) AS held_ns,
        sum(busy_ns) AS busy_ns,
        sum(idle_ns) AS idle_ns,
        sum(energy_mj) AS energy_mj,
        max(sample_data) AS sample_data
    FROM focus_sums LEFT JOIN focus_pods USING (cluster, node, pod_key)
    WHERE namespace IS NOT NULL
    GROUP BY ALL
),
unheld AS (
    SELECT
        period_start, cluster, node, device,
        coalesce(sum(held_ns), 0) AS unheld_ns,
        least(sum(unknown_ns), unheld_ns) AS unknown_ns,
        sum(energy_mj) AS energy_mj,
        max(sample_data) AS sample_data
    FROM focus_sums
    WHERE namespace IS NULL
    GROUP BY ALL
),
amounts AS (
    SELECT * EXCLUDE (held_ns, energy_mj), 'held' AS kind, 'held' AS state, held_ns AS amount
    FROM held
    UNION ALL BY NAME
    SELECT * EXCLUDE (unheld_ns, unknown_ns, energy_mj), 'free' AS kind, 'free' AS state,
        unheld_ns - unknown_ns AS amount
    FROM unheld
    UNION ALL BY NAME
    SELECT * EXCLUDE (unheld_ns, unknown_ns, energy_mj), 'unknown' AS kind, 'unknown' AS state,
        unknown_ns AS amount
    FROM unheld
    UNION ALL BY NAME
    SELECT * EXCLUDE (held_ns, busy_ns, idle_ns, energy_mj), 'energy' AS kind, 'held' AS state,
        energy_mj AS amount
    FROM held
    UNION ALL BY NAME
    SELECT * EXCLUDE (unheld_ns, unknown_ns, energy_mj), 'energy' AS kind,
        'unattributed' AS state, energy_mj AS amount
    FROM unheld
)
SELECT
    amounts.*, gpu_index, model, profile, is_instance,
    period_end, billing_start, billing_end, price_start,
    coalesce(nullif(cluster, ''), node) AS account,
    if(nullif(cluster, '') IS NULL, 'Node', 'Cluster') AS account_type
FROM amounts
JOIN devices USING (cluster, node, device)
JOIN focus_periods USING (period_start)
WHERE amount > 0;

CREATE OR REPLACE TEMP TABLE focus_amounts AS FROM new_focus_amounts LIMIT 0;

-- The charges with their prices. A billionth of an hour is 3600 ns, and 1 kWh is 3.6e9 mJ.
CREATE OR REPLACE TEMP VIEW focus_charges AS
WITH quantities AS (
    SELECT
        focus_amounts.*, coalesce(nullif(model, ''), 'unknown') AS sku, unit_price, slices,
        of_slices,
        CASE kind
            WHEN 'energy' THEN (20 * amount + 36) // 72
            ELSE (2 * amount + 3600) // 7200 END AS consumed_billionths,
        CASE kind
            WHEN 'energy' THEN (20 * amount + 36) // 72
            ELSE (2 * amount * slices + 3600 * of_slices) // (7200 * of_slices)
            END AS priced_billionths
    FROM focus_amounts
    JOIN focus_prices USING (kind, cluster, model, price_start)
    JOIN focus_parts USING (model, profile, is_instance)
)
SELECT
    *,
    CAST(CAST(consumed_billionths AS DECIMAL(19, 0)) * CAST(0.000000001 AS DECIMAL(10, 9))
        AS DECIMAL(20, 9)) AS consumed,
    CAST(CAST(priced_billionths AS DECIMAL(19, 0)) * CAST(0.000000001 AS DECIMAL(10, 9))
        AS DECIMAL(20, 9)) AS priced,
    priced * unit_price AS cost
FROM quantities;

-- The columns of FOCUS 1.2 in alphabetical order, then podgpu's own.
CREATE OR REPLACE TEMP VIEW focus AS
SELECT
    CAST(NULL AS VARCHAR) AS AvailabilityZone,
    cost AS BilledCost,
    account AS BillingAccountId,
    account AS BillingAccountName,
    account_type AS BillingAccountType,
    getvariable('currency') AS BillingCurrency,
    billing_end AS BillingPeriodEnd,
    billing_start AS BillingPeriodStart,
    CAST(NULL AS VARCHAR) AS CapacityReservationId,
    CAST(NULL AS VARCHAR) AS CapacityReservationStatus,
    'Usage' AS ChargeCategory,
    CAST(NULL AS VARCHAR) AS ChargeClass,
    concat(
        if(kind = 'energy', 'Energy of ', 'Time of '),
        coalesce(nullif(model, ''), 'a GPU'),
        if(profile = '', '', ' ' || profile),
        ', ',
        if(state = 'held', concat_ws('/', nullif(workload_namespace, ''), workload_kind, workload_name),
            state)
    ) AS ChargeDescription,
    'Usage-Based' AS ChargeFrequency,
    period_end AS ChargePeriodEnd,
    period_start AS ChargePeriodStart,
    CAST(NULL AS VARCHAR) AS CommitmentDiscountCategory,
    CAST(NULL AS VARCHAR) AS CommitmentDiscountId,
    CAST(NULL AS VARCHAR) AS CommitmentDiscountName,
    CAST(NULL AS DECIMAL(20, 9)) AS CommitmentDiscountQuantity,
    CAST(NULL AS VARCHAR) AS CommitmentDiscountStatus,
    CAST(NULL AS VARCHAR) AS CommitmentDiscountType,
    CAST(NULL AS VARCHAR) AS CommitmentDiscountUnit,
    consumed AS ConsumedQuantity,
    if(kind = 'energy', 'kWh', 'Hours') AS ConsumedUnit,
    cost AS ContractedCost,
    unit_price AS ContractedUnitPrice,
    cost AS EffectiveCost,
    CAST(NULL AS VARCHAR) AS InvoiceId,
    getvariable('provider') AS InvoiceIssuerName,
    cost AS ListCost,
    unit_price AS ListUnitPrice,
    'Standard' AS PricingCategory,
    getvariable('currency') AS PricingCurrency,
    unit_price AS PricingCurrencyContractedUnitPrice,
    cost AS PricingCurrencyEffectiveCost,
    unit_price AS PricingCurrencyListUnitPrice,
    priced AS PricingQuantity,
    if(kind = 'energy', 'kWh', 'GPU-Hours') AS PricingUnit,
    getvariable('provider') AS ProviderName,
    getvariable('provider') AS PublisherName,
    CAST(NULL AS VARCHAR) AS RegionId,
    CAST(NULL AS VARCHAR) AS RegionName,
    device AS ResourceId,
    concat_ws(' ', node, if(gpu_index IS NULL, device, 'GPU ' || gpu_index), nullif(profile, ''))
        AS ResourceName,
    if(is_instance, 'MIG instance', 'GPU') AS ResourceType,
    'Compute' AS ServiceCategory,
    'GPU' AS ServiceName,
    'Other (Compute)' AS ServiceSubcategory,
    if(kind = 'energy', 'energy', 'gpu-hour/' || sku) AS SkuId,
    if(kind = 'energy', 'Energy', 'GPU time') AS SkuMeter,
    if(kind = 'energy', NULL, CAST(json_object('x_Model', sku) AS VARCHAR)) AS SkuPriceDetails,
    if(kind = 'energy', 'energy', concat('gpu-hour/', sku, '/', kind)) AS SkuPriceId,
    account || '/' || nullif(workload_namespace, '') AS SubAccountId,
    nullif(workload_namespace, '') AS SubAccountName,
    if(nullif(workload_namespace, '') IS NULL, NULL, 'Namespace') AS SubAccountType,
    CAST(json_merge_patch(
        if(json_valid(labels), CAST(labels AS JSON), CAST('{}' AS JSON)),
        json_object(
            'podgpu/job', job, 'podgpu/namespace', nullif(workload_namespace, ''),
            'podgpu/node', node,
            'podgpu/state', state, 'podgpu/workload', workload_kind || '/' || workload_name
        )
    ) AS VARCHAR) AS Tags,
    CAST(round(CAST(busy_ns AS DOUBLE) / 3.6e12, 9) AS DECIMAL(20, 9)) AS x_BusyHours,
    CAST(round(CAST(idle_ns AS DOUBLE) / 3.6e12, 9) AS DECIMAL(20, 9)) AS x_IdleHours,
    nullif(profile, '') AS x_MigProfileName,
    node AS x_NodeName,
    sample_data AS x_SampleData,
    state AS x_UsageState,
    workload_kind AS x_WorkloadKind,
    workload_name AS x_WorkloadName
FROM focus_charges;
