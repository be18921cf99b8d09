-- An instance that several namespaces share has a row of its own among the namespaces: the same states, resets and checks. Nobody
-- leases it; its `sequence` counts the leases on all of its namespaces, and `deep_mark` is where the last clean check of it stood.
ALTER TABLE namespaces ADD COLUMN shares INTEGER NOT NULL DEFAULT 0 CHECK (shares IN (0, 1));
ALTER TABLE namespaces ADD COLUMN instance TEXT REFERENCES namespaces (id);
CREATE INDEX namespaces_of ON namespaces (instance) WHERE instance IS NOT NULL;

ALTER TABLE leases ADD COLUMN instance TEXT REFERENCES namespaces (id);
ALTER TABLE leases ADD COLUMN instance_sequence INTEGER;
ALTER TABLE leases ADD COLUMN instance_generation INTEGER;
-- How deep the checks of its own namespace cleared it; deep clearance also takes a clean check of the instance.
ALTER TABLE leases ADD COLUMN own_depth TEXT CHECK (own_depth IN ('quick', 'deep'));
CREATE UNIQUE INDEX leases_of_instance ON leases (instance, instance_sequence) WHERE instance IS NOT NULL;

ALTER TABLE mismatches ADD COLUMN shared INTEGER NOT NULL DEFAULT 0 CHECK (shared IN (0, 1));
