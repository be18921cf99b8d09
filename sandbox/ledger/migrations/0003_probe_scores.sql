-- What planting the catalogue's leaks showed, for one baseline and one reset method; a whole survey and a sample are kept apart.
CREATE TABLE probe_scores (
  baseline         TEXT    NOT NULL,
  method           TEXT    NOT NULL CHECK (method IN ('hook', 'clean', 'restore', 'rebuild')),
  sampled          INTEGER NOT NULL CHECK (sampled IN (0, 1)),
  environment_name TEXT    NOT NULL,
  catalogue        TEXT    NOT NULL,  -- digest of the leaks that were there to choose from
  at               TEXT    NOT NULL,
  body             TEXT    NOT NULL,
  PRIMARY KEY (baseline, method, sampled)
) STRICT, WITHOUT ROWID;
CREATE INDEX probe_scores_of ON probe_scores (environment_name, at);
