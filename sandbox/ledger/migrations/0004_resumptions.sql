-- A person's word that an environment is leased again after too many quarantines had stopped it.
CREATE TABLE resumptions (
  number           INTEGER PRIMARY KEY,
  environment_name TEXT    NOT NULL,
  after            INTEGER NOT NULL,  -- the newest check then: what was judged up to it counts no more
  at               TEXT    NOT NULL,
  person           TEXT    NOT NULL CHECK (person <> ''),
  note             TEXT    NOT NULL CHECK (note <> '')
) STRICT;
CREATE INDEX resumptions_of ON resumptions (environment_name, after);
