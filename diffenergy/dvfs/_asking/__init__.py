"""`plan`, asked by name or of a measured table, and its `PlanResult`."""
