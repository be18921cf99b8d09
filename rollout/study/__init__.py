"""Studies: configurations compared at a fixed quality bar, by a protocol that says why when it was not kept."""
