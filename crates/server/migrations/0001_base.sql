-- Times are microseconds since 1970, UTC. JSON columns hold what is only ever read back whole.

CREATE TABLE teams (
    id TEXT PRIMARY KEY NOT NULL,
    slug TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    is_default BOOLEAN NOT NULL DEFAULT FALSE,
    banned BOOLEAN NOT NULL DEFAULT FALSE,
    blocked_reason TEXT,
    max_sandboxes BIGINT NOT NULL,
    max_session_seconds BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE api_keys (
    id TEXT PRIMARY KEY NOT NULL,
    team_id TEXT NOT NULL REFERENCES teams (id),
    name TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    mask TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    last_used_at BIGINT
);
CREATE INDEX api_keys_team ON api_keys (team_id);

CREATE TABLE templates (
    id TEXT PRIMARY KEY NOT NULL,
    team_id TEXT REFERENCES teams (id),
    name TEXT NOT NULL,
    public BOOLEAN NOT NULL,
    spawn_count BIGINT NOT NULL DEFAULT 0,
    last_spawned_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX templates_name ON templates (COALESCE(team_id, ''), name);

CREATE TABLE template_builds (
    id TEXT PRIMARY KEY NOT NULL,
    template_id TEXT NOT NULL REFERENCES templates (id),
    status TEXT NOT NULL,
    record TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    finished_at BIGINT
);
CREATE INDEX template_builds_template ON template_builds (template_id);

CREATE TABLE template_tags (
    template_id TEXT NOT NULL REFERENCES templates (id),
    tag TEXT NOT NULL,
    build_id TEXT NOT NULL REFERENCES template_builds (id),
    created_at BIGINT NOT NULL,
    PRIMARY KEY (template_id, tag)
);

CREATE TABLE sandboxes (
    id TEXT PRIMARY KEY NOT NULL,
    team_id TEXT NOT NULL REFERENCES teams (id),
    state TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    end_at BIGINT NOT NULL,
    details TEXT NOT NULL,
    settings TEXT NOT NULL
);

CREATE TABLE idempotency_keys (
    team_id TEXT NOT NULL REFERENCES teams (id),
    key TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    sandbox_id TEXT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (team_id, key)
);
