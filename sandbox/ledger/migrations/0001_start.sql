-- Times are UTC text of one width, so that they sort as text. Ids are text; checks and quarantines are numbered here.
-- Columns that name a check are no foreign keys: deleting old checks would search every lease for each. `prune` sees to it.

CREATE TABLE namespaces (
  id               TEXT    NOT NULL PRIMARY KEY,
  environment      TEXT    NOT NULL,
  environment_name TEXT    NOT NULL,
  snapshot         TEXT    NOT NULL,
  state            TEXT    NOT NULL
    CHECK (state IN ('creating', 'verifying', 'ready', 'leased', 'resetting', 'quarantined', 'retired')),
  generation       INTEGER NOT NULL,
  sequence         INTEGER NOT NULL,
  lineage          TEXT    NOT NULL,
  runtime          TEXT    NOT NULL,
  created          TEXT    NOT NULL,
  resets           INTEGER NOT NULL,
  since_restore    INTEGER NOT NULL,
  identity         INTEGER NOT NULL CHECK (identity IN (0, 1)),
  quick_mark       INTEGER NOT NULL,
  deep_mark        INTEGER NOT NULL,
  checked          TEXT,
  last_check       TEXT,
  last_depth       TEXT CHECK (last_depth IN ('quick', 'deep')),
  fork_parent      TEXT REFERENCES leases (trajectory),  -- its present lineage is a fork's, good for that holder only
  details          TEXT    NOT NULL,
  CHECK (deep_mark <= quick_mark AND quick_mark <= sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE transitions (
  number     INTEGER PRIMARY KEY,
  namespace  TEXT    NOT NULL,
  generation INTEGER NOT NULL,
  source     TEXT    NOT NULL,
  event      TEXT    NOT NULL,
  target     TEXT    NOT NULL,
  at         TEXT    NOT NULL,
  note       TEXT    NOT NULL
) STRICT;
CREATE INDEX transitions_of ON transitions (namespace, number);

CREATE TABLE resets (
  number         INTEGER PRIMARY KEY,
  namespace      TEXT    NOT NULL REFERENCES namespaces (id),
  generation     INTEGER NOT NULL,
  method         TEXT    NOT NULL,
  target         TEXT    NOT NULL,
  begun          TEXT    NOT NULL,
  ended          TEXT,
  new_generation INTEGER,
  lineage        TEXT,  -- the one that it began, where it replaced the state
  identity       INTEGER,
  seconds        REAL
) STRICT;
CREATE INDEX resets_of ON resets (namespace, number);

CREATE TABLE checks (
  number     INTEGER PRIMARY KEY,
  id         TEXT    GENERATED ALWAYS AS ('check-' || number) STORED UNIQUE,
  namespace  TEXT    NOT NULL REFERENCES namespaces (id),
  generation INTEGER NOT NULL,
  sequence   INTEGER NOT NULL,  -- its position: made after the lease of that number
  lineage    TEXT    NOT NULL,
  purpose    TEXT    NOT NULL,
  depth      TEXT    NOT NULL CHECK (depth IN ('quick', 'deep')),
  status     TEXT    NOT NULL CHECK (status IN ('clean', 'mismatch', 'inconclusive')),
  fields     INTEGER NOT NULL,
  seconds    REAL    NOT NULL,
  at         TEXT    NOT NULL,
  in_force   TEXT    NOT NULL
) STRICT;
CREATE INDEX checks_of ON checks (namespace, number);
CREATE INDEX checks_failed ON checks (number) WHERE status <> 'clean';

CREATE TABLE mismatches (
  check_id TEXT    NOT NULL REFERENCES checks (id),
  number   INTEGER NOT NULL,
  probe    TEXT    NOT NULL,
  field    TEXT    NOT NULL,
  expected TEXT,
  actual   TEXT,
  depth    TEXT    NOT NULL CHECK (depth IN ('quick', 'deep')),
  PRIMARY KEY (check_id, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE problems (
  check_id TEXT    NOT NULL REFERENCES checks (id),
  number   INTEGER NOT NULL,
  probe    TEXT    NOT NULL,
  reason   TEXT    NOT NULL,
  PRIMARY KEY (check_id, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE quarantines (
  number    INTEGER PRIMARY KEY,
  id        TEXT    NOT NULL UNIQUE,
  namespace TEXT    NOT NULL REFERENCES namespaces (id),
  check_id  TEXT,  -- none where no closing check could be had
  reason    TEXT    NOT NULL CHECK (reason IN ('contaminated', 'unverified')),
  depth     TEXT CHECK (depth IN ('quick', 'deep')),
  after     INTEGER NOT NULL,
  through   INTEGER NOT NULL,
  policy    TEXT    NOT NULL,
  at        TEXT    NOT NULL,
  note      TEXT    NOT NULL
) STRICT;
CREATE INDEX quarantines_of ON quarantines (namespace);

-- A lease and its trajectory are one to one, and so one row.
CREATE TABLE leases (
  id               TEXT    NOT NULL PRIMARY KEY,
  trajectory       TEXT    NOT NULL UNIQUE,
  namespace        TEXT    NOT NULL REFERENCES namespaces (id),
  generation       INTEGER NOT NULL,
  sequence         INTEGER NOT NULL,
  lineage          TEXT    NOT NULL,
  first_of_lineage INTEGER NOT NULL CHECK (first_of_lineage IN (0, 1)),
  environment      TEXT    NOT NULL,
  task             TEXT,
  holder           TEXT    NOT NULL,
  parent           TEXT REFERENCES leases (trajectory),
  start_check      TEXT    NOT NULL,
  start_depth      TEXT    NOT NULL CHECK (start_depth IN ('quick', 'deep')),
  start_identity   INTEGER NOT NULL CHECK (start_identity IN (0, 1)),
  granted          TEXT    NOT NULL,
  expires          TEXT    NOT NULL,
  ended            TEXT,
  outcome          TEXT,
  end_check        TEXT,
  state            TEXT    NOT NULL CHECK (state IN ('pending', 'cleared', 'quarantined', 'released', 'discarded')),
  depth            TEXT CHECK (depth IN ('quick', 'deep')),
  cleared_by       TEXT,
  reason           TEXT CHECK (reason IN ('contaminated', 'unverified')),
  quarantine       TEXT REFERENCES quarantines (id),
  note             TEXT    NOT NULL DEFAULT '',
  person           TEXT    NOT NULL DEFAULT '',
  waits            INTEGER NOT NULL DEFAULT 1 CHECK (waits IN (0, 1)),  -- a later check may still clear it, or clear it deeper
  UNIQUE (namespace, sequence),
  CHECK ((state = 'cleared') = (depth IS NOT NULL)),
  CHECK (state NOT IN ('quarantined', 'released', 'discarded') OR (reason IS NOT NULL AND quarantine IS NOT NULL)),
  CHECK (state NOT IN ('released', 'discarded') OR (note <> '' AND person <> ''))
) STRICT;
CREATE UNIQUE INDEX leases_one_holder ON leases (namespace) WHERE ended IS NULL;
CREATE INDEX leases_waiting ON leases (namespace, state, lineage) WHERE waits = 1;
CREATE INDEX leases_without_end_check ON leases (namespace) WHERE end_check IS NULL;
CREATE INDEX leases_of_parent ON leases (parent) WHERE parent IS NOT NULL;
CREATE INDEX leases_without_clearance ON leases (state) WHERE state IN ('quarantined', 'discarded');

CREATE TABLE quarantine_members (
  quarantine TEXT NOT NULL REFERENCES quarantines (id),
  trajectory TEXT NOT NULL REFERENCES leases (trajectory),
  before     TEXT NOT NULL,  -- its clearance when it was named
  effect     TEXT NOT NULL CHECK (effect IN ('quarantined', 'fork', 'already', 'kept', 'spared')),
  PRIMARY KEY (quarantine, trajectory)
) STRICT, WITHOUT ROWID;
CREATE INDEX quarantine_members_of ON quarantine_members (trajectory);

CREATE TABLE batches (
  id             TEXT NOT NULL PRIMARY KEY,
  policy_version TEXT NOT NULL,
  mode           TEXT NOT NULL CHECK (mode IN ('gated', 'optimistic')),
  at             TEXT NOT NULL
) STRICT;
CREATE TABLE batch_members (
  trajectory TEXT    NOT NULL PRIMARY KEY REFERENCES leases (trajectory),  -- in one batch, ever
  batch      TEXT    NOT NULL REFERENCES batches (id),
  position   INTEGER NOT NULL,
  state      TEXT    NOT NULL,  -- its clearance when it shipped
  depth      TEXT,
  required   TEXT    NOT NULL
) STRICT;
CREATE INDEX batch_members_of ON batch_members (batch, position);

CREATE TABLE updates (
  id TEXT NOT NULL PRIMARY KEY,
  at TEXT NOT NULL
) STRICT;
CREATE TABLE update_batches (
  batch     TEXT NOT NULL REFERENCES batches (id),
  update_id TEXT NOT NULL REFERENCES updates (id),
  PRIMARY KEY (batch, update_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX update_batches_of ON update_batches (update_id);
CREATE TABLE checkpoints (
  id TEXT NOT NULL PRIMARY KEY,
  at TEXT NOT NULL
) STRICT;
CREATE TABLE checkpoint_updates (
  update_id  TEXT NOT NULL REFERENCES updates (id),
  checkpoint TEXT NOT NULL REFERENCES checkpoints (id),
  PRIMARY KEY (update_id, checkpoint)
) STRICT, WITHOUT ROWID;
CREATE INDEX checkpoint_updates_of ON checkpoint_updates (checkpoint);

CREATE TABLE group_members (
  trajectory TEXT NOT NULL,
  name       TEXT NOT NULL,
  PRIMARY KEY (trajectory, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX group_members_of ON group_members (name);

CREATE TABLE snapshots (
  id          TEXT NOT NULL PRIMARY KEY,
  environment TEXT NOT NULL,
  saved       TEXT NOT NULL,
  body        TEXT NOT NULL
) STRICT;
CREATE INDEX snapshots_of ON snapshots (environment);

CREATE TABLE baselines (
  key              TEXT NOT NULL PRIMARY KEY,
  environment      TEXT NOT NULL,
  environment_name TEXT NOT NULL,
  recorded         TEXT NOT NULL,
  body             TEXT NOT NULL
) STRICT;
CREATE INDEX baselines_of ON baselines (environment_name, recorded);

CREATE TABLE audits (
  number INTEGER PRIMARY KEY,
  at     TEXT NOT NULL,
  body   TEXT NOT NULL
) STRICT;
