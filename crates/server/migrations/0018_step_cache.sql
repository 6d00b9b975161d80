-- What builds of templates can begin with: the files and the context after a step, by the key of the step; and what the
-- references of images meant when they were last looked up.

CREATE TABLE step_cache (
    team_id TEXT NOT NULL REFERENCES teams (id),
    key TEXT NOT NULL,
    -- Name of the snapshot; none when the files are still those of the base.
    snapshot TEXT,
    layers TEXT NOT NULL,
    context TEXT NOT NULL,
    used_at BIGINT NOT NULL,
    PRIMARY KEY (team_id, key)
);
CREATE INDEX step_cache_snapshot ON step_cache (snapshot);
CREATE INDEX step_cache_age ON step_cache (used_at);

CREATE TABLE image_cache (
    team_id TEXT NOT NULL REFERENCES teams (id),
    reference TEXT NOT NULL,
    layer TEXT NOT NULL,
    env TEXT NOT NULL,
    used_at BIGINT NOT NULL,
    PRIMARY KEY (team_id, reference)
);
