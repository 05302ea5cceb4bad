"""An independent reference of the accounting, and random stories that hold podgpu against it."""
