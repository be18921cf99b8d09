"""`autoclave demo`: the main job told on the shipped environments: leak, find, quarantine, rebuild, prove."""
